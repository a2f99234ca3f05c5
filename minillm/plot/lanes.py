"""Who is busy when, in any number of lanes: a host that asks and a device that does, or one device twice."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from minillm.plot.style import COLOURS, HATCHES, PAPER
from minillm.plot.timeline import HEIGHT, gaps

Span = tuple[float, float, str]  # begin, end, kind


def lanes(axes: Axes, rows: dict[str, Sequence[Span]], end: float | None = None, unit: str = "µs") -> None:
    """Draw `{"device": [(begin, end, kind), …]}` from 0 to `end` (None: the last end), a row each.

    Spans of a row follow each other; what they leave free is drawn as waiting.
    """
    end = max(span[1] for spans in rows.values() for span in spans) if end is None else end
    for row, spans in enumerate(rows.values()):
        spans = sorted(spans)
        for begin, stop in gaps([span[:2] for span in spans], 0.0, end):
            _bar(axes, row, begin, min(stop, end), "wait")
        for begin, stop, kind in spans:
            _bar(axes, row, begin, min(stop, end), kind)
    axes.set(xlim=(0, end), ylim=(len(rows) - 0.5, -0.5), xlabel=unit)
    axes.set_yticks(range(len(rows)), labels=list(rows))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _bar(axes: Axes, row: int, begin: float, end: float, kind: str) -> None:
    """Bars that touch are told apart by their white edges."""
    if end > begin:
        axes.barh(row, end - begin, left=begin, height=HEIGHT, color=COLOURS[kind], hatch=HATCHES.get(kind),
                  edgecolor=PAPER, linewidth=0.5)  # fmt: skip
