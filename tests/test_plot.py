"""Figures: what belongs together must differ in grey, for print and for colour-blind eyes."""

from itertools import combinations

import matplotlib as mpl
import pytest
from matplotlib.colors import to_rgb

from minillm import plot


def lightness(colour: str) -> float:
    """CIE L*, 0 (black) to 100 (white): what is left of a colour on a grey print."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    luminance = sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return 116 * luminance ** (1 / 3) - 16 if luminance > 0.008856 else 903.3 * luminance


def test_lightness_of_known_colours():
    assert lightness("#FFFFFF") == pytest.approx(100, abs=0.1)
    assert lightness("#000000") == 0
    assert lightness("#777777") == pytest.approx(50, abs=1)


@pytest.mark.parametrize(
    "group", [("copy", "compute", "wait", "cpu"), ("naive", "prefetch", "vllm", "limit")]
)
def test_colours_of_a_group_differ_in_grey(group):
    for one, other in combinations(group, 2):
        assert abs(lightness(plot.COLOURS[one]) - lightness(plot.COLOURS[other])) > 7, (one, other)


def test_style_brings_its_own_light_background():
    with mpl.rc_context():
        mpl.rcParams["figure.facecolor"] = "black"
        plot.use()
        assert mpl.rcParams["figure.facecolor"] == plot.PAPER
        assert lightness(plot.PAPER) - lightness(plot.INK) > 80
