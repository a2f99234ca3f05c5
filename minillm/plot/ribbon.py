"""Bytes in a row, as they lie in a file or in memory."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from minillm.plot.style import COLOURS


def ribbon(axes: Axes, row: float, pieces: Sequence[tuple], begin: float = 0.0) -> float:
    """Draw pieces (size, kind) or (size, kind, label) one behind the other at height `row`, to scale.

    A label stands above its piece. Returns where the last piece ends. No edges: a model's file has hundreds
    of pieces, and lines around them would hide the thin ones.
    """
    for size, kind, *label in pieces:
        axes.barh(row, size, left=begin, height=0.66, color=COLOURS[kind], linewidth=0)
        if label:
            middle = (begin + size / 2, row + 0.36)
            axes.annotate(label[0], middle, ha="center", va="bottom", fontsize=9)
        begin += size
    axes.margins(x=0.01)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return begin
