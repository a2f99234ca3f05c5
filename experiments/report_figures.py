"""Figures of the report: correctness, programs side by side, loading. A function gives None: not measured."""

from collections.abc import Sequence

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.report_results import NOT_YET, Archive, Stored, middle, most, over
from experiments.report_rows import (
    bandwidth_limit,
    fast_steps,
    groups,
    is_resident,
    most_memory,
    ran,
    ratio,
    speed,
)
from experiments.report_table import show
from experiments.report_tables import FLOAT32, rms_ratio
from minillm import plot
from minillm.units import GIB

ALLOWED = 1e-4  # largest logit error in float32
RMS_ALLOWED = 1.05  # of our bfloat16 errors over the reference's
RESIDENT = ("Qwen3-1.7B", "Qwen3-8B")
LOADING = {"minillm": "compute", "naive": "naive", "transformers": "other"}  # colours of ways to load
KINDS = {"naive": "naive", "prefetch": "prefetch", "minillm": "compute", "vLLM": "vllm"}


def kind(name: str) -> str:
    """The colour of a program: by its mode where it streams, else by who it is."""
    first = next(
        (word for word in ("naive", "prefetch") if word in name and "vLLM" not in name), name.split(",")[0]
    )
    return KINDS.get(first.split()[0], "other")


def errors(archive: Archive) -> Figure | None:
    """The largest logit error of each comparison in float32, beside what is allowed."""
    stored = archive.get("parity", "cpu2")
    found = {name: [row["max_logit_error"] for row in stored.rows(FLOAT32[name][0])] for name in FLOAT32}
    if not all(found.values()):
        return None
    figure, axes = plt.subplots(figsize=(8.5, 2.6))
    for row, values in enumerate(found.values()):
        shift = [
            0.24 * (number % 5 - 2) / 2 for number in range(len(values))
        ]  # so that dots lie side by side
        axes.scatter(values, [row + each for each in shift], s=14, color=plot.COLOURS["compute"])
    axes.set(xscale="log", ylim=(len(found) - 0.5, -0.5), xlabel="largest logit error of a comparison")
    axes.set_yticks(range(len(found)), labels=[f"{name}: {len(values)}" for name, values in found.items()])
    plot.limit(axes, ALLOWED, "allowed")
    worst, count = max(map(max, found.values())), sum(map(len, found.values()))
    said = f"the worst of {count} comparisons is {worst / ALLOWED:.2f} of what is allowed"
    plot.message(figure, f"float32 beside transformers: {said}")
    return figure


def rounding(archive: Archive) -> Figure | None:
    """For each prompt, the RMS of our bfloat16 errors over the reference's."""
    stored = archive.get("parity")
    names = list(dict.fromkeys(row["key"].split("/")[1] for row in stored.rows("bf16/")))
    if not names:
        return None
    figure, axes = plt.subplots(figsize=(8.5, 2.2))
    for place, name in enumerate(names):
        ratios = [rms_ratio([row]) for row in stored.rows(f"bf16/{name}/")]
        axes.scatter(ratios, [place] * len(ratios), s=22, color=plot.COLOURS["bfloat16"])
    axes.set(ylim=(len(names) - 0.5, -0.5), xlabel="RMS logit error over the reference’s, a dot a prompt")
    axes.set_yticks(range(len(names)), labels=[name.removeprefix("random:") for name in names])
    plot.limit(axes, 1.0, "as exact")
    plot.limit(axes, RMS_ALLOWED, "allowed")
    ratios = [rms_ratio(stored.rows(f"bf16/{name}/")) for name in names]
    spread = f"{min(ratios):.2f}" + (f" and {max(ratios):.2f}" if len(ratios) > 1 else "")
    plot.message(figure, f"bfloat16: our rounding errors are {spread} of those of transformers")
    return figure


def resident(
    archive: Archive, experiment: str, models: Sequence[str] = ("Qwen3-1.7B", "Qwen3-8B")
) -> Figure | None:
    """Decode speed of all programs where the model fits; the limit: copy bandwidth over a token's bytes."""
    stored = archive.get(experiment)
    found = {model: _speeds(stored, model) for model in models}
    found = {model: speeds for model, speeds in found.items() if speeds}
    if not found:
        return None
    count = max(map(len, found.values()))
    figure, panels = plt.subplots(1, len(found), figsize=(9, 1.5 + 0.42 * count), squeeze=False)
    for axes, (model, speeds) in zip(panels[0], found.items(), strict=True):
        values = list(speeds.values())
        plot.bars(axes, list(speeds), values, [kind(name) for name in speeds], [f"{v:.0f}" for v in values])
        rows = [row for group in groups(stored, model).values() for row in ran(group)]
        bound = bandwidth_limit(stored, model, [row for row in rows if is_resident(row)])
        axes.set(xlim=(0, 1.3 * max([*values, bound or 0])), xlabel=f"{model}: decode, tok/s")
        if bound:
            plot.limit(axes, bound, "copy bandwidth")
            beyond(axes, values, bound)
    plot.message(figure, _lead(stored, list(found)))
    return figure


def _speeds(stored: Stored, model: str) -> dict[str, float]:
    found = groups(stored, model)
    named = {name: speed(ran(rows)) for name, rows in found.items() if is_resident(rows[0])}
    return {name: value for name, value in named.items() if value}


def beyond(axes: Axes, values: Sequence[float], bound: float, share: float = 0.12) -> None:
    """Numbers of bars that end shortly before a limit stand behind its line, not on it."""
    near = share * axes.get_xlim()[1]
    for label, value in zip([text for text in axes.texts if text.get_bbox_patch()], values, strict=True):
        if bound - near < value < bound:
            label.xy = (bound, label.xy[1])


def _lead(stored: Stored, models: Sequence[str]) -> str:
    """Our fastest over the fastest vLLM where that ran, else over transformers."""
    for base in ("vLLM", "transformers"):
        ratios = {model: ratio(stored, model, "minillm", base) for model in models}
        if all(ratios.values()):
            said = ", ".join(f"{model} {value:.2f}" for model, value in ratios.items())
            return f"Our decode speed over that of {base}: {said}"
    return "Decode speed where the model fits"


def steps(archive: Archive) -> Figure | None:
    """What each step of the fast path took away from the time of a token."""
    stored = archive.get("fast_path")
    found = fast_steps(stored)
    model = max(found, key=lambda name: len(found[name]), default=None)
    if model is None:
        return None
    times = {step: 1e3 / speed(rows) for step, rows in found[model].items()}
    figure, axes = plt.subplots(figsize=(8.5, 1.4 + 0.36 * len(times)))
    plot.waterfall(axes, list(times), list(times.values()), ["compute"] * len(times))
    first, last = next(iter(times.values())), min(times.values())
    axes.set(xlim=(0, 1.25 * max(times.values())), xlabel=f"{model}: milliseconds a token")
    if bound := bandwidth_limit(stored, model, [row for rows in found[model].values() for row in rows]):
        plot.limit(axes, 1e3 / bound, "copy bandwidth")
    plot.message(figure, f"The fast path: a token takes {last:.1f} ms instead of {first:.1f}")
    return figure


PANELS = {
    "TTFT, s": ("ttft_s", 1),
    "decode, tok/s": ("tokens_per_s", 1),
    "peak GPU memory, GiB": ("peak_bytes", GIB),
}


def programs(
    found: dict[str, Sequence[dict]],
    limit: float | None,
    said: str,
    peaks: dict[str, int | None] | None = None,
    limit_is: str = "the link",
) -> Figure | None:
    """TTFT, decode speed and memory of programs that offload the same model, beside the limit of the link.

    `peaks`: bytes to show in place of the most that `found` has.
    """
    found = {name: rows for name, rows in found.items() if rows and speed(rows)}
    if len(found) < 2:
        return None
    figure, panels = plt.subplots(1, 3, figsize=(9, 1.4 + 0.42 * len(found)), sharey=True)
    for axes, (title, (field, unit)) in zip(panels, PANELS.items(), strict=True):
        take = most if field == "peak_bytes" else middle
        told = peaks if peaks and field == "peak_bytes" else {}
        values = [(told.get(name) or take(rows, field) or 0) / unit for name, rows in found.items()]
        text = [f"{value:.2f}" if value else "–" for value in values]
        plot.bars(axes, list(found), values, [kind(name) for name in found], text)
        axes.set(xlim=(0, 1.45 * max(values)), xlabel=title)
    if limit:
        plot.limit(panels[1], limit, limit_is)
    plot.message(figure, said)
    return figure


def compared(archive: Archive) -> Figure | None:
    """Naive, prefetch and accelerate."""
    stored = archive.get("offload_compare")
    modes = ("naive", "prefetch", "accelerate")
    found = {mode: [row for row in stored.rows(f"{mode}/") if "ttft_s" in row] for mode in modes}
    limit = most(found["prefetch"], "limit_tokens_per_s")
    share = over(speed(found["prefetch"]), limit)
    said = "Prefetch" if share is None else f"Prefetch writes at {share:.0%} of what the link allows"
    return programs(found, limit, said)


def beside_vllm(archive: Archive, model: str = "Qwen3-8B") -> Figure | None:
    """Our prefetch and vLLM's offloaders; the limit: of our first budget, the layers that vLLM keeps."""
    stored = archive.get("vllm")
    found = {n: ran(rows) for n, rows in groups(stored, model).items() if not is_resident(rows[0])}
    ours = [name for name, rows in found.items() if rows and name.startswith("minillm prefetch")]
    first = found[ours[0]][0] if ours else {}
    streamed = first.get("streamed")
    limit_is = f"the link, {streamed} layers" if streamed else "the link"
    ratios = {name: ratio(stored, model, name, "vLLM prefetch") for name in ours}
    told = ", ".join(f"{value:.2f} ({name.split(', ')[1]})" for name, value in ratios.items() if value)
    said = f"Ours over vLLM’s prefetch offloader: {told}" if told else "Offloaded, beside vLLM"
    peaks = {name: most_memory(stored, model, name) for name in found}
    return programs(found, first.get("limit_tokens_per_s"), said, peaks, limit_is)


def loading(archive: Archive) -> Figure | None:
    """Peak memory of loading over the weights; of several runs of one way the most."""
    values: dict[str, float] = {}
    for stored in (archive.get("loading", "cpu2"), archive.get("loading")):
        for row in stored.rows():
            model, way, _ = row["key"].split("/")
            name = f"{model}, {way if way in LOADING else f'minillm, {way}'}"
            values[name] = max(values.get(name, 0), row["peak_bytes"] / row["weight_bytes"])
    if not values:
        return None
    figure, axes = plt.subplots(figsize=(8.5, 1.2 + 0.34 * len(values)))
    kinds = [LOADING.get(name.split(", ")[-1], "compute") for name in values]
    plot.bars(axes, list(values), list(values.values()), kinds, [f"{value:.2f}" for value in values.values()])
    axes.set(xlim=(0, 1.25 * max(values.values())), xlabel="peak memory of loading over the weights’ bytes")
    plot.limit(axes, 1.0, "the weights")
    beyond(axes, list(values.values()), 1.0)
    ours = max(value for name, value in values.items() if "minillm" in name)
    plot.message(figure, f"minillm holds each weight once: at most {ours:.2f} of the weights’ bytes")
    return figure


def draw(figure: Figure | None, needs: str) -> None:
    """Show a figure, or say which result it waits for."""
    if figure is None:
        show(f"The figure here is {NOT_YET}: it needs the result `{needs}`.")
    else:
        plt.show()
