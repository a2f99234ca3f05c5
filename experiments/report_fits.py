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
    fast_steps,
    groups,
    is_resident,
    most_memory,
    ran,
    reason,
    setting,
    speed,
)
from experiments.report_table import ABSENT, Table
from experiments.vllm_checks import bandwidth_share, ratio
from minillm.memory import plan
from minillm.presets import PRESETS
from minillm.schedule import place

PROMPTS = (128, 1024, 4096)  # tokens of the prompts whose prefill is timed
CARD_HEAD = "RTX 3070, predicted"


def resident(archive: Archive, experiment: str, model: str) -> Table:
    """A model that fits, all programs of one command side by side."""
    stored = archive.get(experiment)
    found = {name: rows for name, rows in groups(stored, model).items() if is_resident(rows[0])}
    base = ran(found.get("vLLM", ()))
    rows = tuple(_resident(stored, model, name, group, base) for name, group in found.items())
    head = ("program", "prompts × tokens", "TTFT", "decode, tok/s", "range", "over vLLM")
    head += ("of GPU bandwidth", "peak GPU memory", CARD_HEAD)
    notes = tuple(note for note in stored.content.get("notes", ()) if note.startswith("Resident"))
    return Table(caption(f"{model}, all layers on the GPU", stored), head, rows or ABSENT, notes)


def _resident(stored: Stored, model: str, name: str, found: Group, base: Sequence[dict]) -> tuple[str, ...]:
    rows = ran(found)
    if not rows:
        return (name, f"not measured: {reason(found[0])}")
    share = middle(({"share": bandwidth_share(model, row)} for row in rows), "share")
    ours = name.startswith("minillm")
    return (
        name,
        amount(rows),
        milliseconds(middle(rows, "ttft_s")),
        number(speed(rows), ".1f"),
        spread(rows),
        number(ratio(rows, base)),
        number(share, ".0%"),
        size(most_memory(stored, model, name)),
        fits_card(model) if ours else NOTHING,
    )


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


def prefills(archive: Archive, experiment: str, model: str) -> Table:
    """Prefill latency by prompt length, all programs of one command."""
    stored = archive.get(experiment)
    found: dict[str, dict[int, dict]] = {}
    for row in stored.rows(f"{model}/"):
        parts = row["key"].split("/")
        if len(parts) > 3 and parts[-2] == "prefill" and "ttft_s" in row:
            name = setting(row | {"mode": row.get("mode") or "resident"})
            found.setdefault(name, {})[row["prompt_tokens"]] = row
    base = found.get("vLLM", {})
    rows = tuple((name, *_prefill(times, base)) for name, times in found.items())
    head = ("program", *(f"{tokens:,} tokens" for tokens in PROMPTS))
    head += tuple(f"{tokens:,}: over vLLM" for tokens in PROMPTS)
    notes = ("The median of the repetitions; below 1 is faster than vLLM.",)
    return Table(caption(f"{model}: prefill latency", stored), head, rows or ABSENT, notes)


def _prefill(times: dict[int, dict], base: dict[int, dict]) -> tuple[str, ...]:
    def at(found: dict[int, dict], tokens: int) -> float | None:
        return found.get(tokens, {}).get("ttft_s")

    latencies = tuple(milliseconds(at(times, tokens)) for tokens in PROMPTS)
    return latencies + tuple(number(over(at(times, tokens), at(base, tokens))) for tokens in PROMPTS)


def starts(archive: Archive) -> Table:
    """How long each program took to start, in the commands that compare them."""
    rows = [
        (
            _start_name(row),
            row["key"].split("/")[0],
            experiment,
            number(row.get("load_s"), ".1f", "s"),
            number(row["warm_s"], ".1f", "s") if "warm_s" in row else NOTHING,
            str(row.get("version") or NOTHING),
        )
        for experiment in ("baseline", "vllm")
        for row in archive.get(experiment).rows()
        if "/loaded" in row["key"]
    ]
    head = ("program", "model", "command", "loading", "first answer", "version")
    notes = ("First answer: compiling and capturing graphs, where that is not done while loading.",)
    return Table("Starting", head, tuple(rows) or ABSENT, notes)


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
        for step, group in steps.items():
            now = speed(group)
            figures = (number(now, ".1f"), number(over(now, first)), size(most(group, "peak_bytes")))
            rows.append((model, step, *figures, fits_card(model)))
    head = ("model", "step", "decode, tok/s", "over the first", "peak GPU memory", CARD_HEAD)
    return Table(caption("The fast path, one step at a time", stored), head, tuple(rows) or ABSENT)
