"""What the link and the device do in time: two lanes, and in grey when one of them waits."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from minillm.plot.style import BEHIND_NUMBERS, COLOURS, HATCHES, INK, PAPER
from minillm.schedule import Copy, Step
from minillm.simulate import Timeline

LANES = ("link", "compute")  # from the top down
HEIGHT = 0.72
CHARACTER = 6.5  # points that a digit of a layer's number takes, with air

TIMELINE_KEY = {
    "copy": "copy of a block",
    "attention": "attention block",
    "mlp": "MLP block",
    "head": "head",
    "wait": "waits",
}  # for `key`: what the colours of a timeline mean


def timeline(axes: Axes, timeline: Timeline, begin_s: float = 0.0, end_s: float | None = None) -> None:
    """Draw `timeline` from `begin_s` to `end_s` (None: its end), simulated or recorded, in milliseconds.

    Blocks carry their layer's number where it fits. A limit at the end of a pass is
    `limit(axes, 1000 * timeline.pass_end(number), "token")`.
    """
    end_s = max(event.end for event in timeline.events) if end_s is None else end_s
    axes.set_xlim(1e3 * begin_s, 1e3 * end_s)
    axes.set_ylim(len(LANES) - 0.5, -0.5)
    axes.set_yticks(range(len(LANES)), labels=LANES)
    axes.set_xlabel("milliseconds")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    for row, lane in enumerate(LANES):
        events = [event for event in timeline.events if _lane(event.step) == lane]
        shown = [
            (max(event.begin, begin_s), min(event.end, end_s), event.step)
            for event in sorted(events, key=lambda event: event.begin)
            if event.begin < end_s and event.end > begin_s
        ]
        _bars(axes, row, "wait", gaps([(begin, end) for begin, end, _ in shown], begin_s, end_s))
        for kind in dict.fromkeys(_kind(step) for *_, step in shown):
            _bars(axes, row, kind, [(begin, end) for begin, end, step in shown if _kind(step) == kind])
        _number(axes, row, shown)


def gaps(spans: Sequence[tuple[float, float]], begin: float, end: float) -> list[tuple[float, float]]:
    """What `spans`, sorted by their beginnings, leave free between `begin` and `end`."""
    found = []
    for start, stop in (*spans, (end, end)):
        if start > begin:
            found.append((begin, start))
        begin = max(begin, stop)
    return found


def _lane(step: Step) -> str:
    return "link" if isinstance(step, Copy) else "compute"


def _kind(step: Step) -> str:
    return "copy" if isinstance(step, Copy) else step.block.part


def _bars(axes: Axes, row: int, kind: str, spans: list[tuple[float, float]]) -> None:
    """One collection a kind: a figure has hundreds of blocks. Edges would hide thin ones."""
    thin = 4 * _seconds_a_point(axes)
    edge = 0.8 if all(end - begin > thin for begin, end in spans) else 0.0
    axes.broken_barh([(1e3 * begin, 1e3 * (end - begin)) for begin, end in spans], (row - HEIGHT / 2, HEIGHT),
                     facecolor=COLOURS[kind], hatch=HATCHES.get(kind), edgecolor=PAPER, linewidth=edge,
                     label=kind)  # fmt: skip


def _number(axes: Axes, row: int, shown: list[tuple[float, float, Step]]) -> None:
    for begin, end, step in shown:
        text = str(step.block.layer)
        if step.block.part != "head" and end - begin > (len(text) + 1) * CHARACTER * _seconds_a_point(axes):
            copied = isinstance(step, Copy)
            axes.text(500 * (begin + end), row, text, ha="center", va="center", fontsize=9,
                      color=INK if copied else PAPER,
                      bbox={**BEHIND_NUMBERS, "pad": 1.5} if copied else None)  # fmt: skip


def _seconds_a_point(axes: Axes) -> float:
    low, high = axes.get_xlim()
    inches = axes.figure.get_figwidth() * axes.get_position().width
    return (high - low) / 1e3 / (72 * inches)
