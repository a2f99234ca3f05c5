"""Lanes and waterfalls: bars are where the numbers say, and what is free is drawn as waiting."""

import matplotlib.pyplot as plt
import pytest

from minillm import plot


@pytest.fixture
def axes():
    figure, axes = plt.subplots()
    yield axes
    plt.close(figure)


def spans(axes) -> list[tuple]:
    return sorted((bar.get_y() + bar.get_height() / 2, bar.get_x(), bar.get_width()) for bar in axes.patches)


def test_what_a_lane_leaves_free_is_waiting(axes):
    plot.lanes(
        axes, {"host": [(0, 2, "cpu"), (2, 4, "cpu")], "device": [(4, 5, "compute"), (2, 3, "compute")]}
    )
    found = [tuple(round(number, 6) for number in span) for span in spans(axes)]
    assert found == [(0, 0, 2), (0, 2, 2), (0, 4, 1), (1, 0, 2), (1, 2, 1), (1, 3, 1), (1, 4, 1)]
    assert axes.get_xlim() == (0, 5)


def test_a_lane_is_cut_at_the_end(axes):
    plot.lanes(axes, {"device": [(1, 9, "compute")]}, end=4)
    assert spans(axes) == [(0, 0, 1), (0, 1, 3)]


def test_a_waterfall_shows_what_is_left_and_what_was_taken(axes):
    plot.waterfall(axes, ["start", "better", "worse"], [10.0, 4.0, 5.0], ["naive", "compute", "compute"])
    taken = [span for span in spans(axes) if span[0] == 1]
    assert taken == [(1, 0, 4.0), (1, 4.0, 6.0)]
    assert [text.get_text() for text in axes.texts if text.get_text()] == [
        "10.0",
        "4.0  (−6.0)",
        "5.0  (+1.0)",
    ]
    assert max(bar.get_width() for bar in axes.patches if bar.get_y() > 1.5) == 5.0
