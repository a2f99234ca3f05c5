"""The timeline: blocks where they belong, grey where a lane waits."""

import matplotlib.pyplot as plt
import pytest

from minillm import plot
from minillm.plot.timeline import gaps
from minillm.schedule import naive, place, prefetch
from minillm.simulate import simulate


@pytest.fixture
def axes():
    figure, axes = plt.subplots(figsize=(9, 2.6))
    yield axes
    plt.close(figure)


def times(schedule, passes=2):
    return simulate(schedule, lambda block: 0.003, lambda block, number: 0.001, passes)


def spans(axes, kind):
    """(begin, end) in rounded milliseconds of all bars of a kind, by lane: 0 is the link's."""
    found = {}
    for collection in axes.collections:
        if collection.get_label() == kind:
            boxes = [path.get_extents() for path in collection.get_paths()]
            found |= {round((box.y0 + box.y1) / 2): _rounded(box for box in boxes) for box in boxes}
    return found


def _rounded(boxes):
    return [(round(box.x0, 6), round(box.x1, 6)) for box in boxes]


def test_naive_takes_turns(axes):
    plot.timeline(axes, times(naive(place(2, 1, 1)), passes=1))
    assert spans(axes, "copy") == {0: [(0, 3), (3, 6), (8, 11), (11, 14)]}
    assert spans(axes, "attention") == {1: [(6, 7), (14, 15)]}
    assert spans(axes, "mlp") == {1: [(7, 8), (15, 16)]}
    assert spans(axes, "head") == {1: [(16, 17)]}
    assert spans(axes, "wait") == {0: [(6, 8), (14, 17)], 1: [(0, 6), (8, 14)]}
    assert [text.get_text() for text in axes.texts] == ["0", "0", "1", "1"] * 2


def test_a_window_clips_what_crosses_its_edges(axes):
    plot.timeline(axes, times(naive(place(2, 1, 1))), begin_s=0.004, end_s=0.0075)
    assert axes.get_xlim() == (4, 7.5)
    assert spans(axes, "copy") == {0: [(4, 6)]}
    assert spans(axes, "mlp") == {1: [(7, 7.5)]}
    assert spans(axes, "wait") == {0: [(6, 7.5)], 1: [(4, 6)]}


def test_no_numbers_where_there_is_no_room(axes):
    plot.timeline(axes, times(prefetch(place(64, 8, 1)), passes=4))
    assert not axes.texts


def test_a_lane_without_events_waits_all_the_time(axes):
    plot.timeline(axes, times(prefetch(place(3, 3, 1)), passes=1))
    assert spans(axes, "wait") == {0: [(0, 7)]}


@pytest.mark.parametrize(
    ("taken", "left"),
    [
        ([], [(0, 9)]),
        ([(0, 9)], []),
        ([(1, 3), (3, 5)], [(0, 1), (5, 9)]),
        ([(1, 5), (2, 4), (6, 9)], [(0, 1), (5, 6)]),
    ],
)
def test_gaps(taken, left):
    assert gaps(taken, 0, 9) == left


def test_every_kind_has_a_colour_and_a_name():
    assert plot.TIMELINE_KEY.keys() <= plot.COLOURS.keys()
