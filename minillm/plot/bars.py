"""Horizontal bars, and pairs of dots for logarithmic axes."""

from matplotlib.axes import Axes

from minillm.plot.style import BEHIND_NUMBERS, COLOURS, HATCHES, INK
from minillm.units import short


def bars(axes: Axes, names: list[str], values: list[float], kinds: list[str], text: list[str]) -> None:
    """Horizontal bars from the top down, each coloured by what it is and labelled with its value."""
    drawn = axes.barh(range(len(names)), values, color=[COLOURS[kind] for kind in kinds], height=0.66)
    for bar, kind in zip(drawn, kinds, strict=True):
        bar.set_hatch(HATCHES.get(kind, ""))
    labels = axes.bar_label(drawn, labels=text, padding=4, color=INK)
    for label in labels:
        label.set_bbox(BEHIND_NUMBERS)
    _name_rows(axes, names)


def pairs(
    axes: Axes, names: list[str], left: list[float], right: list[float], kinds: tuple[str, str]
) -> None:
    """Two dots a row, joined by a line: one thing in two places. On a logarithmic axis a bar has no foot."""
    rows = range(len(names))
    axes.hlines(rows, left, right, color=COLOURS["wait"], linewidth=3, zorder=1)
    for values, kind, marker in ((left, kinds[0], "o"), (right, kinds[1], "D")):
        axes.scatter(values, rows, s=70, marker=marker, color=COLOURS[kind], zorder=2)
        for row, value in zip(rows, values, strict=True):
            axes.annotate(short(value), (value, row), xytext=(0, 8), textcoords="offset points", ha="center",
                          fontsize=8.5, bbox=BEHIND_NUMBERS)  # fmt: skip
    _name_rows(axes, names)


def _name_rows(axes: Axes, names: list[str]) -> None:
    axes.set_yticks(range(len(names)), labels=names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
