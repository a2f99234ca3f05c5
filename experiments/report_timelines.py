"""Figures of the report about streaming: budgets, knee, timelines, first tokens, larger models.

A function gives None where the result that it needs is not there.
"""

from collections.abc import Sequence
from dataclasses import replace

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.report_results import Archive, Stored
from experiments.report_tables import CARD
from minillm import plot
from minillm.block_times import BlockTimes
from minillm.budget import Request, decide
from minillm.config import ModelConfig
from minillm.errors import RunError
from minillm.hardware import USABLE
from minillm.memory import block_bytes
from minillm.predict import Machine, Rates, blocks, decode, timeline
from minillm.presets import PRESETS
from minillm.schedule import place
from minillm.simulate import Timeline
from minillm.units import GB, GIB

MODEL = "Qwen3-8B"
CONTEXT = 4096  # tokens for which the course's card keeps room


def block_times(stored: Stored, key: str = "blocks") -> BlockTimes | None:
    """What link and blocks cost, as the command of `stored` measured it before its rows."""
    row = stored.row(key)
    fields = BlockTimes.__dataclass_fields__
    return BlockTimes(**{name: row[name] for name in fields if name in row}) if row else None


def layer_bytes(config: ModelConfig) -> int:
    return sum(block_bytes(config, 0, part, 2) for part in ("attention", "mlp"))


def compute_s(config: ModelConfig, machine: Machine) -> float:
    """Seconds that the device computes for one token, all blocks and the head."""
    return sum(machine.compute_s(config, block, 2) for block in blocks(config))


def knee(config: ModelConfig, machine: Machine) -> float:
    """The budget, with one slot, at which the copies of a token take as long as its computing."""
    return config.num_hidden_layers + 1 - compute_s(config, machine) / machine.copy_s(layer_bytes(config))


def fitting(config: ModelConfig, context: int = CONTEXT) -> int:
    """The largest budget that the course's card has room for, beside the rest and a context; 0: none."""
    asked = {"offload": "prefetch", "gpu_memory_gib": USABLE * CARD.gpu_memory_bytes / GIB}
    try:
        found = decide(Request(config=config, dtype_bytes=2, tokens=context, **asked))
    except RunError:
        return 0
    return found.placement.on_device if found.placement.streamed else config.num_hidden_layers


def speeds(config: ModelConfig, mode: str, machine: Machine, budgets: Sequence[int]) -> list[float]:
    """Simulated tokens a second for each budget, one slot."""
    layers = config.num_hidden_layers
    return [decode(config, 2, mode, place(layers, N, 1), machine).tokens_per_s for N in budgets]


def curves(axes: Axes, config: ModelConfig, machine: Machine) -> None:
    """Both modes simulated, the limit of the link, and the knee."""
    layers = config.num_hidden_layers
    budgets = range(1, layers + 1)
    lines = {mode: speeds(config, mode, machine, budgets) for mode in ("naive", "prefetch")}
    for mode, line in lines.items():
        axes.plot(budgets, line, color=plot.COLOURS[mode], linewidth=2, label=f"{mode}, simulated")
    copy_s = machine.copy_s(layer_bytes(config))
    limits = [1 / (copy_s * (layers - N + 1)) for N in budgets[:-1]]
    axes.plot(budgets[:-1], limits, label="limit of the link", **plot.style.DASHED)
    axes.set(xlabel=f"budget N of {layers} layers", ylabel="tokens a second", xlim=(0, layers + 1))
    axes.set_ylim(0, 1.25 * max(lines["prefetch"]))
    plot.limit(axes, knee(config, machine), f"knee, {knee(config, machine):.1f}")


def sweep(archive: Archive) -> Figure | None:
    """The budget curve: dots measured, lines simulated from block costs of the same command."""
    stored, config = archive.get("budget_sweep"), PRESETS[MODEL]
    machine = block_times(stored)
    if machine is None or not stored.rows("prefetch/"):
        return None
    figure, axes = plt.subplots(figsize=(8.5, 4))
    curves(axes, config, machine)
    for mode, marker in (("naive", "D"), ("prefetch", "o")):
        rows = stored.rows(f"{mode}/")
        x, y = [row["budget"] for row in rows], [row["tokens_per_s"] for row in rows]
        axes.plot(x, y, marker, color=plot.COLOURS[mode], markersize=7, label=f"{mode}, measured")
    top = max(row["tokens_per_s"] for row in stored.rows() if "tokens_per_s" in row)
    low = min(row["tokens_per_s"] for row in stored.rows() if "tokens_per_s" in row)
    axes.set(yscale="log", ylim=(0.7 * low, 2 * top))  # else the two modes are one line up to the last layers
    axes.set_yticks([tick for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500) if 0.7 * low < tick < 2 * top])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.minorticks_off()
    axes.legend(loc="upper left", fontsize=9)
    followed = [row["budget"] for row in stored.rows("prefetch/") if near_limit(row)]
    said = f"at the link’s limit up to N = {max(followed)}" if followed else "below the link’s limit"
    plot.message(figure, f"{MODEL} on the {stored.place}: {said}, the knee is at {knee(config, machine):.1f}")
    return figure


def near_limit(row: dict, share: float = 0.95) -> bool:
    """Whether a row reaches `share` of what the link allows."""
    return bool(row["limit_tokens_per_s"]) and row["tokens_per_s"] >= share * row["limit_tokens_per_s"]


def card() -> Figure:
    """The same curve for the course's card, from published figures."""
    config, machine = PRESETS[MODEL], Rates(CARD.link_gb_s, CARD.gpu_gb_s)
    figure, axes = plt.subplots(figsize=(8.5, 3.8))
    room = fitting(config)
    axes.axvspan(
        0, room, color=plot.COLOURS["wait"], alpha=0.4, linewidth=0, label=f"fits, context {CONTEXT:,}"
    )
    curves(axes, config, machine)
    speed = speeds(config, "prefetch", machine, [room])[0]
    axes.plot(room, speed, "o", color=plot.COLOURS["prefetch"], markersize=9)
    axes.annotate(f"{speed:.2f}", (room, speed), xytext=(0, 10), textcoords="offset points", ha="center")
    axes.legend(loc="upper left", fontsize=9)
    said = f"room for {room} layers, the knee is at {knee(config, machine):.0f}"
    plot.message(figure, f"{MODEL} on an RTX 3070, predicted: {said}")
    return figure


def modes(archive: Archive, budget: int = 13, share: float = 0.2) -> Figure | None:
    """The first part of a steady pass, naive and prefetch, simulated from stored block costs."""
    machine, config = block_times(archive.get("budget_sweep")), PRESETS[MODEL]
    if machine is None:
        return None
    placement = place(config.num_hidden_layers, budget, 1)
    figure, rows = plt.subplots(2, 1, figsize=(9, 3.8), sharex=True)
    names = ("naive", "prefetch")
    passes = {mode: one_pass(timeline(config, 2, mode, placement, machine)) for mode in names}
    takes = {mode: max(event.end for event in found.events) for mode, found in passes.items()}
    for axes, mode in zip(rows, names, strict=True):
        plot.timeline(axes, passes[mode], 0.0, share * takes["naive"])
        axes.set(ylabel=mode, xlabel="")
    rows[-1].set_xlabel(f"milliseconds from the beginning of a token, N = {budget}")
    said = ", ".join(f"{mode} {1e3 * takes[mode]:.0f} ms" for mode in names)
    plot.message(figure, f"Prefetch leaves the link no pause; a token takes: {said} (simulated)")
    plot.key(figure, {kind: name for kind, name in plot.TIMELINE_KEY.items() if kind != "head"})
    return figure


def one_pass(found: Timeline, number: int = 2) -> Timeline:
    """Pass `number` alone, from its beginning on: what link and device do between two tokens."""
    begin, end = found.pass_end(number - 1), found.pass_end(number)
    events = tuple(
        replace(event, begin=max(event.begin, begin) - begin, end=min(event.end, end) - begin)
        for event in found.events
        if event.begin < end and event.end > begin
    )
    return Timeline(events, 1)


def around_knee(archive: Archive) -> Figure | None:
    """One steady token left of the knee and right of it, simulated from stored block costs.

    Where these put the knee behind the last layer there is no right side: then of the course's card.
    """
    machine, config, of = block_times(archive.get("budget_sweep")), PRESETS[MODEL], "simulated"
    if machine is None:
        return None
    layers, turn = config.num_hidden_layers, knee(config, machine)
    if turn >= layers:
        machine, of = Rates(CARD.link_gb_s, CARD.gpu_gb_s), "RTX 3070, predicted"
        turn = knee(config, machine)
    right = min(layers - 1, int(turn) + 1)
    left = max(1, min(right - 1, int(turn) - 4))
    figure, rows = plt.subplots(2, 1, figsize=(9, 3.8))
    for axes, budget in zip(rows, (left, right), strict=True):
        placement = place(layers, budget, 1)
        plot.timeline(axes, one_pass(timeline(config, 2, "prefetch", placement, machine, passes=6), 4))
        axes.set(ylabel=f"N = {budget}", xlabel="")
    rows[-1].set_xlabel("milliseconds of one token")
    where = "Left of the knee the device waits" + (", right of it the link does" if right > turn else "")
    plot.message(figure, f"{where} ({of}, the knee is at {turn:.1f})")
    plot.key(figure, plot.TIMELINE_KEY)
    return figure


def first_tokens(archive: Archive) -> Figure | None:
    """TTFT of long prompts beside what link and computing need."""
    rows = archive.get("offload_compare").rows("ttft/")
    if not rows:
        return None
    x = [row["prompt_tokens"] for row in rows]
    figure, axes = plt.subplots(figsize=(8.5, 3.2))
    for field, label in (("link_s", "the link needs"), ("resident_prefill_s", "computing needs")):
        style = plot.style.DASHED | ({} if field == "link_s" else {"linestyle": ":"})
        axes.plot(x, [1e3 * row[field] for row in rows], label=label, **style)
    times = [1e3 * row["ttft_s"] for row in rows]
    axes.plot(x, times, "o-", color=plot.COLOURS["prefetch"], markersize=7, label="TTFT, prefetch, measured")
    axes.set(xscale="log", ylim=(0, 1.35 * max(times)), xlabel="tokens of the prompt", ylabel="milliseconds")
    axes.set_xticks(x, labels=[f"{tokens:,}" for tokens in x])
    axes.minorticks_off()
    axes.legend(loc="lower right", fontsize=9)
    worst = max(row["ttft_s"] / max(row["link_s"], row["resident_prefill_s"]) for row in rows)
    plot.message(
        figure, f"A streamed prefill takes the larger of copying and computing, at most {worst:.2f} of it"
    )
    return figure


def one_line(archive: Archive) -> Figure | None:
    """Seconds a token against streamed bytes, all models and budgets that were measured with prefetch."""
    named = {"8B, budgets": archive.get("budget_sweep").rows("prefetch/")}
    for row in archive.get("bigger_models").rows():
        if row.get("mode") == "prefetch":
            named.setdefault(f"{row['model'].removeprefix('Qwen3-')}, under the cap", []).append(row)
    named = {name: [r for r in rows if r["streamed_bytes"]] for name, rows in named.items()}
    named = {name: rows for name, rows in named.items() if rows}
    if not named:
        return None
    figure, axes = plt.subplots(figsize=(8.5, 3.6))
    for (name, rows), marker in zip(named.items(), "oDs^vP", strict=False):
        x, y = [row["streamed_bytes"] / GB for row in rows], [1 / row["tokens_per_s"] for row in rows]
        axes.plot(
            x, y, marker, color=plot.COLOURS["prefetch"], markersize=8, markeredgecolor=plot.INK, label=name
        )
    far = 1.08 * max(row["streamed_bytes"] / GB for rows in named.values() for row in rows)
    link = max(row["link_gb_s"] for rows in named.values() for row in rows)
    axes.plot([0, far], [0, far / link], label=f"the link, {link:.1f} GB/s", **plot.style.DASHED)
    axes.set(xlim=(0, far), ylim=(0, None), xlabel="GB over the link for a token", ylabel="seconds a token")
    axes.legend(loc="upper left", fontsize=9)
    plot.message(figure, "Whatever the model, a token takes its streamed bytes over the link")
    return figure


def forecast(archive: Archive) -> Figure | None:
    """Simulated over measured speed, a dot a placement."""
    rows = archive.get("simulator").rows()
    if not rows:
        return None
    figure, axes = plt.subplots(figsize=(8.5, 3))
    for mode, marker in (("naive", "D"), ("prefetch", "o"), ("resident", "s")):
        found = [row for row in rows if row["mode"] == mode]
        colour = plot.COLOURS.get(mode, plot.COLOURS["compute"])
        axes.plot([r["budget"] for r in found], [r["ratio"] for r in found], marker, color=colour, label=mode)
    for bound in (0.95, 1.05):
        plot.floor(axes, bound, f"goal {bound}")
    values = [row["ratio"] for row in rows]
    axes.set(ylim=(min(0.9, min(values) - 0.05), max(1.1, max(values) + 0.05)))
    layers = max(row["budget"] for row in rows)
    axes.set(xlabel="budget N", ylabel="simulated over measured", xlim=(0, 1.12 * layers))
    axes.legend(loc="upper left", ncols=3, fontsize=9)
    plot.message(figure, f"The simulator {how_far(values)}")
    return figure


def how_far(values: Sequence[float], allowed: float = 0.05) -> str:
    """What forecasts over measurements have in common, in a few words."""
    count = len(values)
    for way, off in (("slow", [1 - value for value in values]), ("fast", [value - 1 for value in values])):
        if min(off) >= 0:
            return f"is {100 * min(off):.0f} to {100 * max(off):.0f} % too {way} in all {count} placements"
    inside = sum(1 - allowed <= value <= 1 + allowed for value in values)
    return f"is within {100 * allowed:.0f} % for {inside} of {count} placements"
