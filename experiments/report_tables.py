"""Tables of the report: machines, models and files; correctness."""

from collections.abc import Sequence
from math import prod
from pathlib import Path

from experiments.report_results import (
    FOLDER,
    NOT_YET,
    NOTHING,
    Archive,
    Stored,
    middle,
    most,
    number,
    over,
    size,
)
from experiments.report_table import ABSENT, Table
from minillm.estimate import bytes_per_token, weight_bytes
from minillm.hardware import PUBLISHED, USABLE
from minillm.memory import kv_bytes_per_token, plan
from minillm.presets import PRESETS
from minillm.units import GB

CARD = PUBLISHED["rtx3070"]  # the course's
LEFT = int(USABLE * CARD.gpu_memory_bytes)  # bytes of it that a driver and a desktop leave
MODELS = ("Qwen3-1.7B", "Qwen3-8B", "Qwen3-14B", "Qwen3-32B")
NOTEBOOKS = FOLDER.parent.parent / "notebooks"
# What the report is about; a file that is not there is told, too.
EXPERIMENTS = (
    *("parity", "gpu_tests", "cells", "baseline", "peer_settings", "vllm", "fast_path"),
    *("offload_compare", "budget_sweep", "simulator", "loading", "bigger_models", "quant"),
)


def machines(archive: Archive) -> Table:
    """What each measured machine is and gives, from its latest file; beside them the course's card."""
    latest: dict[str, Stored] = {}
    for stored in archive.all():
        if stored.ceiling("cores") and stored.date >= getattr(latest.get(stored.machine), "date", ""):
            latest[stored.machine] = stored
    rows = [_machine(stored) for stored in latest.values()]
    card = (CARD.name, "published figures", size(CARD.gpu_memory_bytes), f"{CARD.gpu_gb_s:,.0f} GB/s")
    rows.append(
        (*card, f"{CARD.link_gb_s:.1f} GB/s", f"{CARD.host_gb_s:.1f} GB/s", NOTHING, "predicted only")
    )
    head = ("machine", "processor", "GPU memory", "GPU copy", "link", "host copy", "torch", "measured on")
    notes = ("GPU copy: bytes read and written a second; link: pinned host memory to the GPU.",)
    return Table("Machines, measured in the latest command on each", head, tuple(rows), notes)


def _machine(stored: Stored) -> tuple[str, ...]:
    def rate(name: str) -> str:
        value = stored.ceiling(name)
        return NOTHING if value is None else f"{value:,.1f} GB/s"

    gpu, memory = stored.content.get("gpu"), stored.ceiling("gpu_memory_bytes")
    cores = f"{stored.ceiling('cpu')}, {stored.ceiling('cores')} cores"
    where = (gpu or f"{stored.place}, no GPU", cores, size(memory) if memory else NOTHING)
    rates = (rate("device_copy_gb_s"), rate("link_gb_s"), rate("host_copy_gb_s"))
    return (*where, *rates, stored.content["torch"], stored.date)


def models() -> Table:
    """The geometries, counted from their configurations."""
    rows = tuple(_model(name) for name in MODELS)
    head = (
        "model",
        "layers",
        "parameters",
        "weights, 16 bits",
        "a token reads",
        "KV cache a token",
        CARD.name,
    )
    notes = (
        "Counted from the published configurations, not measured. “Fits”: weights and a context of 4,096.",
    )
    return Table("Models", head, rows, notes)


def embedding(model: str) -> int:
    """Bytes of the embedding in 16 bits."""
    return 2 * PRESETS[model].vocab_size * PRESETS[model].hidden_size


def layers(model: str) -> int:
    return PRESETS[model].num_hidden_layers


def weights(model: str) -> int:
    """Bytes of all weights in 16 bits."""
    return weight_bytes(PRESETS[model])


def token_gb(model: str) -> float:
    """10⁹ bytes that one token reads."""
    return bytes_per_token(PRESETS[model]) / GB


def pinned_bytes(model: str) -> tuple[int, int]:
    """Bytes of all layers, and as many when each tensor is rounded up to a power of two."""
    shapes = PRESETS[model].parameter_shapes().items()
    sizes = [2 * prod(shape) for name, shape in shapes if name.startswith("model.layers.")]
    return sum(sizes), sum(1 << (size - 1).bit_length() for size in sizes)


def _model(name: str) -> tuple[str, ...]:
    config = PRESETS[name]
    return (
        name,
        str(config.num_hidden_layers),
        f"{weights(name) / 2e9:.2f} billion",
        size(weights(name)),
        f"{bytes_per_token(config) / GB:.1f} GB",
        size(kv_bytes_per_token(config, 2)),
        "fits" if plan(config, 2, 4096).total <= LEFT else "does not fit",
    )


def files(archive: Archive) -> Table:
    """Every stored result, and those of the report that are not there."""
    rows = [_file(stored) for stored in archive.all()]
    there = {stored.experiment for stored in archive.all()}
    rows += [(name, NOT_YET) for name in EXPERIMENTS if name not in there]
    head = ("experiment", "machine", "date", "commit", "rows", "goals met")
    return Table("Stored results", head, tuple(rows))


def _file(stored: Stored) -> tuple[str, ...]:
    met, goals = stored.met()
    about = (stored.experiment, stored.place, stored.date, stored.commit, str(len(stored.rows())))
    return (*about, f"{met} of {goals}" if goals else NOTHING)


# ---- correctness ----

FLOAT32 = {
    "tiny": ("tiny/", "20 prompts of the shipped model"),
    "tiny-moe": ("tiny-moe/tokens/", "20 prompts of the shipped mixture of experts"),
    "grid": ("grid/", "small models of drawn geometries"),
}


def float32(archive: Archive) -> Table:
    """Greedy tokens and logits in float32 beside those of transformers."""
    stored = archive.get("parity", "cpu2")
    rows = tuple(_float32(name, *about, stored) for name, about in FLOAT32.items())
    head = ("models", "what", "answers", "equal", "ties", "largest logit error", "allowed")
    notes = (
        "A tie: the reference’s two best logits are nearer than 0.0001, so that rounding decides. With "
        "experts, a prompt’s logits are compared up to the first such tie in a router.",
    )
    return Table("float32, every token against Hugging Face transformers", head, rows, notes)


def _float32(name: str, prefix: str, what: str, stored: Stored) -> tuple[str, ...]:
    rows = stored.rows(prefix)
    if not rows:
        return (name, what, NOT_YET)
    counts = [sum(row["answers"] for row in rows), sum(row["equal"] for row in rows)]
    ties = sum(len(row["ties"]) for row in rows)
    error = most(rows, "max_logit_error")
    allowed = next(
        (c["goal"] for c in stored.checks if c["name"] == f"{name} float32: largest logit error"), 1e-4
    )
    return (name, what, *map(str, counts), str(ties), f"{error:.1e}", f"{allowed:.0e}")


def skills(archive: Archive) -> Table | str:
    """Held-out prompts, ours and transformers: a sentence if both answer all of them right, else a table."""
    stored = archive.get("parity", "cpu2")
    found = {(model, skill): counts for model, skill, *counts in _skills(stored)}
    if found and all(len(set(counts)) == 1 for counts in found.values()):
        told = [
            f"{sum(counts[0] for (of, _), counts in found.items() if of == model):,} by `{model}`"
            for model in dict.fromkeys(model for model, _ in found)
        ]
        kinds = ", ".join(dict.fromkeys(skill for _, skill in found))
        return (
            f"They do. All held-out prompts ({kinds}) that were asked here were answered right in float32, "
            f"{' and '.join(told)}; by transformers too, with the same answers."
        )
    head = ("model", "skill", "held-out prompts", "right, ours", "right, transformers", "same answer")
    title = "Trained models, float32: share of prompts whose whole answer is right"
    rows = [(*key, str(of), *(f"{each / of:.1%}" for each in rest)) for key, (of, *rest) in found.items()]
    return Table(title, head, tuple(rows) or ABSENT)


def _skills(stored: Stored) -> list[tuple]:
    """Model, skill, prompts, those right by us, by transformers, and of the same answer."""
    found = []
    for model, prefix in (("tiny", "skills/"), ("tiny-moe", "tiny-moe/skills/")):
        names = (row["key"].removeprefix(prefix).partition("/")[0] for row in stored.rows(prefix))
        for skill in dict.fromkeys(names):
            rows = stored.rows(f"{prefix}{skill}/")
            fields = ("prompts", "right", "right_reference", "same")
            found.append((model, skill, *(sum(row[field] for row in rows) for field in fields)))
    return found


def bf16(archive: Archive) -> Table:
    """Rounding errors in bfloat16: chosen tokens inside the margin, and errors over the reference's own."""
    stored = archive.get("parity")
    names = dict.fromkeys(row["key"].split("/")[1] for row in stored.rows("bf16/"))
    rows = tuple(_bf16(name, stored.rows(f"bf16/{name}/")) for name in names)
    head = (
        "model",
        "prompts",
        "new tokens",
        "outside the margin",
        "RMS error over the reference’s",
        "allowed",
    )
    notes = (
        "Margin: both engines round, so a token counts as right when its logit is within twice the "
        "reference’s own largest rounding error of the best one at that place. Random weights.",
    )
    return Table("bfloat16 on the GPU", head, rows or ABSENT, notes)


def _bf16(name: str, rows: list[dict]) -> tuple[str, ...]:
    tokens = sum(row["tokens"] for row in rows)
    outside = sum(row["outside_margin"] for row in rows)
    ratio = rms_ratio(rows)
    return (
        name.removeprefix("random:"),
        str(len(rows)),
        f"{tokens:,}",
        str(outside),
        number(ratio, ".3f"),
        "≤ 1.05",
    )


def rms_ratio(rows: Sequence[dict]) -> float | None:
    """Root mean square of our logit errors over the reference's, both against float32."""
    ours, theirs = (sum(row[name] for row in rows) for name in ("squared_error", "squared_error_reference"))
    ratio = over(ours, theirs)
    return None if ratio is None else ratio**0.5


def own_modes(archive: Archive) -> Table:
    """Our own modes against each other, counters that prove what was done, and the CUDA tests."""
    rows = []
    for experiment in ("budget_sweep", "offload_compare"):
        stored = archive.get(experiment)
        for name in ("every placement wrote the same tokens", "bytes copied a pass are the schedule's"):
            value = stored.check(name)
            rows.append((experiment, name, NOT_YET if value is None else "yes" if value else "no"))
    checks = archive.get("gpu_tests").checks
    said = f"{checks[0]['value']:.0f} of {checks[0]['goal']:.0f}" if checks else NOT_YET
    rows.append(("tests/gpu", "tests on the GPU that passed, each when it ran last", said))
    rows.append(
        ("notebooks", "notebooks that were run as scripts on the GPU", _scripts(archive.get("cells")))
    )
    tests = archive.get("gpu_tests").rows()
    failures = tests[-1].get("failures", {}) if tests else {}
    notes = tuple(f"Failed: {name}: {why}" for name, why in failures.items())
    return Table("Between our own modes", ("where", "what", "result"), tuple(rows), notes)


def _scripts(stored: Stored) -> str:
    """Which notebooks of all ran as scripts, and how many of them to their end."""
    ran = sorted(Path(row["key"]).name.partition("_")[0] for row in stored.rows())
    if not ran:
        return NOT_YET
    met, which = int(stored.checks[0]["value"]), ", ".join(ran)
    if [int(name) for name in ran] == list(range(int(ran[0]), int(ran[0]) + len(ran))):
        which = f"{ran[0]} to {ran[-1]}"
    every = len(list(NOTEBOOKS.glob("*.ipynb")))
    return f"{len(ran)} of {every} ({which}), {'all' if met == len(ran) else met} passed"


# ---- notes and single figures ----


def notes(archive: Archive) -> list[str]:
    """What the result files say about themselves."""
    found = ((stored, note) for stored in archive.all() for note in stored.content.get("notes", []))
    return [f"{stored.experiment}, {stored.place}: {note}" for stored, note in found]


def smallest_margin(archive: Archive) -> float | None:
    """How near the reference's two best logits came to each other, where our tokens were equal."""
    rows = archive.get("parity", "cpu2").rows()
    return min((row["min_margin"] for row in rows if "min_margin" in row), default=None)


def median_ratio(archive: Archive) -> float | None:
    """Simulated over measured tokens a second, the median of all placements."""
    return middle(archive.get("simulator").rows(), "ratio")
