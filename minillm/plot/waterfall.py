"""What each step took away from a total."""

from collections.abc import Sequence
from itertools import pairwise

from matplotlib.axes import Axes

from minillm.plot.bars import bars
from minillm.plot.style import COLOURS


def waterfall(axes: Axes, names: Sequence[str], values: Sequence[float], kinds: Sequence[str]) -> None:
    """A bar a step from the top down: what is left after it, and in grey what it took from the one before.

    A step that made things worse has nothing grey.
    """
    text = [f"{value:.1f}" for value in values]
    text[1:] = [f"{now:.1f}  ({now - before:+.1f})".replace("-", "−") for before, now in pairwise(values)]
    for row, (before, now) in enumerate(pairwise(values), 1):
        axes.barh(row, max(0.0, before - now), left=now, height=0.66, color=COLOURS["wait"], hatch="..",
                  edgecolor="white", zorder=0.5)  # fmt: skip
    drawn = ["" for _ in names]
    bars(axes, list(names), list(values), list(kinds), drawn)
    for row, (said, value) in enumerate(zip(text, [values[0], *map(max, pairwise(values))], strict=True)):
        axes.annotate(said, (value, row), xytext=(5, 0), textcoords="offset points", va="center", fontsize=9)
