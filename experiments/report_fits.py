"""Tables of the report about models that fit: beside vLLM and transformers, on the CPU, step by step."""

from collections.abc import Sequence

from experiments.offloaded import on_card
from experiments.report_results import (
    NOTHING,
    Archive,
    Stored,
    caption,
    middle,
    milliseconds,
    most,
    number,
    over,
    size,
)
from experiments.report_rows import (
    NAMES,
    Group,
    bandwidth_share,
    fast_steps,
    fastest,
    groups,
    is_resident,
    most_memory,
    ran,
    rank,
    reason,
    setting,
    speed,
)
from experiments.report_table import ABSENT, Table
from experiments.vllm_checks import ratio
from minillm.memory import plan
from minillm.presets import PRESETS
from minillm.schedule import place

PROMPTS = (128, 1024, 4096)  # tokens of the prompts whose prefill is timed
CARD_HEAD = "RTX 3070, predicted"


def resident(archive: Archive, experiment: str, model: str, without: str | tuple[str, ...] = ()) -> Table:
    """A model that fits, all programs of one command side by side; not those that begin with `without`."""
    stored = archive.get(experiment)
    found = {name: rows for name, rows in groups(stored, model).items() if is_resident(rows[0])}
    base, best = ran(found.get("vLLM", ())), fastest(found)
    rows = tuple(
        (*_resident(stored, model, name, group, base), fits_card(model) if name == best else NOTHING)
        if ran(group)
        else (name, f"not measured: {reason(group[0])}")
        for name, group in found.items()
        if not name.startswith(without)
    )
    head = ("program", "prompts × tokens", "TTFT", "decode, tok/s", "range", "over vLLM")
    head += ("of GPU bandwidth", "peak GPU memory", CARD_HEAD)
    said = (note for note in stored.content.get("notes", ()) if note.startswith("Resident"))
    notes = [*_resident_notes(stored, model, bool(base), "vLLM".startswith(without)), *said]
    quicker = f"{model} resident: decode tok/s, transformers without cuDNN over as installed"
    if "transformers" in found and (gain := archive.get("peer_settings").check(quicker)):
        notes.append(
            "transformers is as installed; in another command, peer_settings, it was "
            f"{gain:.1f} times as fast without cuDNN’s attention."
        )
    return Table(caption(f"{model}, all layers on the GPU", stored), head, rows or ABSENT, tuple(notes))


def _resident(stored: Stored, model: str, name: str, found: Group, base: Sequence[dict]) -> tuple[str, ...]:
    rows = ran(found)
    return (
        name,
        amount(rows),
        milliseconds(middle(rows, "ttft_s")),
        number(speed(rows), ".1f"),
        spread(rows),
        number(ratio(rows, base)),
        number(bandwidth_share(stored, model, rows), ".0%"),
        NOTHING if "own process" in name else size(most_memory(stored, model, name)),
    )


def _resident_notes(stored: Stored, model: str, beside: bool, alone: bool) -> list[str]:
    """How the ratio to vLLM is taken, and what its memory holds that ours does not."""
    notes = ["Over vLLM: the median of the ratios of each prompt, not the ratio of the medians."] * beside
    notes += ["vLLM’s rows are those of another command, vllm."] * (beside and alone)
    name = f"{model} resident: peak GPU memory less its counts for many sequences, ours over vllm"
    if not alone and (less := stored.check(name)) is not None:
        said = (
            "vLLM’s peak holds counters for as many sequences as it may serve; without them ours over vLLM’s"
        )
        notes.append(f"{said} is {less:.2f}.")
    return notes


def spread(rows: Sequence[dict]) -> str:
    """The slowest and the fastest, three digits each."""
    speeds = sorted(row["tokens_per_s"] for row in rows)
    digits = max(0, 2 - len(f"{speeds[-1]:.0f}") + 1)
    return f"{speeds[0]:.{digits}f}–{speeds[-1]:.{digits}f}" if len(speeds) > 1 else NOTHING


def amount(rows: Sequence[dict]) -> str:
    tokens = sorted({row["new_tokens"] for row in rows})
    return f"{len(rows)} × {' or '.join(map(str, tokens))}"


def fits_card(model: str, context: int = 4096) -> str:
    """Predicted tok/s of the course's card with all layers on it, or that they do not fit."""
    config = PRESETS[model]
    whole = place(config.num_hidden_layers, config.num_hidden_layers, 1)
    value = on_card(config, 2, "none", whole, plan(config, 2, context).total)
    return "does not fit" if value is None else f"{value:.0f}"


def prefills(archive: Archive, experiment: str, model: str, without: str | tuple[str, ...] = ()) -> Table:
    """Prefill latency by prompt length, all programs of one command; without those that begin so."""
    stored = archive.get(experiment)
    found: dict[str, dict[int, dict]] = {}
    for row in stored.rows(f"{model}/"):
        parts = row["key"].split("/")
        if len(parts) > 3 and parts[-2] == "prefill" and "ttft_s" in row:
            name = setting(row | {"mode": row.get("mode") or "resident"})
            found.setdefault(name, {})[row["prompt_tokens"]] = row
    base = found.get("vLLM", {})
    shown = [name for name in sorted(found, key=rank) if not name.startswith(without)]
    rows = tuple((name, *_prefill(found[name], base)) for name in shown)
    head = ("program", *(f"{tokens:,} tokens" for tokens in PROMPTS))
    head += tuple(f"{tokens:,}: over vLLM" for tokens in PROMPTS)
    notes = ("The median of the repetitions; below 1 is faster than vLLM.",)
    return Table(caption(f"{model}: prefill latency", stored), head, rows or ABSENT, notes)


def _prefill(times: dict[int, dict], base: dict[int, dict]) -> tuple[str, ...]:
    def at(found: dict[int, dict], tokens: int) -> float | None:
        return found.get(tokens, {}).get("ttft_s")

    latencies = tuple(milliseconds(at(times, tokens)) for tokens in PROMPTS)
    return latencies + tuple(number(over(at(times, tokens), at(base, tokens))) for tokens in PROMPTS)


def peer_settings(archive: Archive, offloaded: bool = False) -> Table:
    """Hugging Face's libraries as they come, and without cuDNN's attention, all of one command."""
    stored, rows = archive.get("peer_settings"), []
    for model in dict.fromkeys(row["model"] for row in stored.rows()):
        every = groups(stored, model).items()
        found = {name: group for name, group in every if is_resident(group[0]) != offloaded}
        ours = ran(found.get(fastest(found) or "", ()))
        for name, group in found.items():
            program, _, path = name.partition(", ")
            base = ran(found.get(f"{program}, as installed", ()))
            rows.append((model, program, path, *_peer_setting(group, base, ours)))
    head = ("model", "program", "setting", "prompts × tokens", "decode, tok/s", "range")
    head += ("times as fast as installed", "ours, times as fast as it")
    if offloaded:
        head = head[:-1]  # ours is measured in other commands
        rows = [row[: len(head)] for row in rows]
    name = f"{'accelerate' if offloaded else 'transformers'} with and without cuDNN’s attention"
    return Table(caption(name, stored), head, tuple(rows) or ABSENT)


def _peer_setting(group: Group, base: Sequence[dict], ours: Sequence[dict]) -> tuple[str, ...]:
    rows = ran(group)
    if not rows:
        return (f"not measured: {reason(group[0])}",)
    gain = number(ratio(rows, base)) if base else NOTHING
    ahead = number(ratio(ours, rows), ".1f") if rows != ours else NOTHING
    return (amount(rows), number(speed(rows), ".1f" if speed(rows) > 1 else ".3f"), spread(rows), gain, ahead)


def starts(archive: Archive) -> Table:
    """How long each program took to start, the first time for each model in the commands that compare."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for experiment in ("baseline", "vllm"):
        for row in archive.get(experiment).rows():
            if "/loaded" in row["key"]:
                program, model = _start_name(row), row["key"].split("/")[0]
                command = row.get("from", experiment).partition("__")[0]
                found.setdefault((model, program), (program, model, command, *_start(row)))
    rows = [found[key] for key in sorted(found, key=lambda key: (key[0], rank(key[1])))]
    head = ("program", "model", "command", "loading", "first answer", "version")
    notes = ["First answer: compiling and capturing graphs, where that is not done while loading."]
    if cold := archive.get("fast_path").row("starts"):
        notes.append(
            "Our kernels had been compiled by an earlier run and came from a cache on disk. Compiling and "
            f"capturing for {cold['model']} in a new process: {cold['cold_s']:.1f} s without such a cache, "
            f"{cold['warm_s']:.1f} s with it (fast_path)."
        )
    return Table("Starting", head, tuple(rows) or ABSENT, tuple(notes))


def _start(row: dict) -> tuple[str, ...]:
    first = number(row["warm_s"], ".1f", "s") if "warm_s" in row else NOTHING
    return (number(row.get("load_s"), ".1f", "s"), first, str(row.get("version") or NOTHING))


def _start_name(row: dict) -> str:
    _, engine, mode, *_ = row["key"].split("/")
    return f"{NAMES.get(engine, engine)} {mode}"


def on_the_cpu(archive: Archive) -> Table:
    """Decoding on two cores, beside transformers."""
    stored = archive.get("decode_cpu", "cpu2")
    models = dict.fromkeys(row["key"].split("/")[0] for row in stored.rows())
    rows = []
    for model in models:
        ours, theirs = (
            middle((r for r in stored.rows(f"{model}/") if r["program"] == program), "decode_tokens_per_s")
            for program in ("minillm", "transformers")
        )
        rows.append((model, number(ours, ".1f"), number(theirs, ".1f"), number(over(ours, theirs))))
    head = ("model, float32", "minillm, tok/s", "transformers, tok/s", "ratio of the medians")
    return Table(caption("Decoding on a CPU", stored), head, tuple(rows) or ABSENT)


def fast_path(archive: Archive) -> Table:
    """What each step gave: the settings of the experiment in its order."""
    stored = archive.get("fast_path")
    rows = []
    for model, steps in fast_steps(stored).items():
        first = speed(next(iter(steps.values())))
        best = max(steps, key=lambda step: speed(steps[step]))
        for step, group in steps.items():
            now = speed(group)
            figures = (number(now, ".1f"), number(over(now, first)), size(most(group, "peak_bytes")))
            rows.append((model, step, *figures, fits_card(model) if step == best else NOTHING))
    head = ("model", "step", "decode, tok/s", "over the first", "peak GPU memory", CARD_HEAD)
    amounts = {amount(group) for steps in fast_steps(stored).values() for group in steps.values()}
    notes = tuple(f"Each step: {each} (prompts × tokens)." for each in sorted(amounts))
    return Table(caption("The fast path, one step at a time", stored), head, tuple(rows) or ABSENT, notes)
