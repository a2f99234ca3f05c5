"""Lines that are named where they end, so that no legend has to be searched."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from minillm.plot.style import COLOURS

MARKERS = ("o", "D", "s", "^", "v", "P")
MANY = 40  # points beyond which markers would run into one band


def curve(
    axes: Axes, x: Sequence[float], y: Sequence[float], kind: str, label: str, marker: str = "o"
) -> None:
    """One line in the colour of `kind`, named at its right end."""
    shown = marker if len(x) <= MANY else None
    axes.plot(x, y, color=COLOURS[kind], marker=shown, markersize=5, linewidth=1.8)
    axes.annotate(label, (x[-1], y[-1]), xytext=(6, 0), textcoords="offset points", va="center", fontsize=9)


def curves(axes: Axes, x: Sequence[float], named: dict[str, tuple[Sequence[float], str]]) -> None:
    """Several lines over the same `x`: `{"label": (y, kind)}`; markers differ, for grey prints."""
    for number, (label, (y, kind)) in enumerate(named.items()):
        curve(axes, x, y, kind, label, MARKERS[number % len(MARKERS)])
