"""Rows of programs side by side, as the report groups them: by model, program and setting."""

import re
import textwrap
from collections.abc import Sequence
from statistics import median

from experiments import vllm_checks
from experiments.report_results import Archive, Stored, middle, most, over

SHORT = 128  # tokens of a prompt
NAMES = {"minillm": "minillm", "vllm": "vLLM", "transformers": "transformers", "accelerate": "accelerate"}
MANY = 160  # characters of a reason
Group = tuple[dict, ...]  # rows of one program in one setting


def groups(stored: Stored, model: str) -> dict[str, Group]:
    """Whole answers of `model` by program and setting; of one that did not run, the row that says why."""
    found: dict[str, list[dict]] = {}
    rows = [row for row in stored.rows() if row.get("model") == model]
    for row in [row for row in rows if reason(row)] + vllm_checks.answers([r for r in rows if "ttft_s" in r]):
        found.setdefault(setting(row), []).append(row)
    return {name: tuple(found[name]) for name in sorted(found, key=rank)}


def rank(name: str) -> int:
    """Ours first, then the peers in the order of `NAMES`; settings of one program keep their order."""
    programs = list(NAMES.values())
    return programs.index(program) if (program := re.split("[ ,]", name)[0]) in programs else len(programs)


def reason(row: dict) -> str | None:
    """Why there is no measurement, in a few words."""
    said = row.get("skipped") or row.get("failed")
    return said and textwrap.shorten(said, MANY, placeholder=" …")


def ran(rows: Sequence[dict]) -> list[dict]:
    """Those that were measured."""
    return [row for row in rows if not reason(row)]


def is_resident(row: dict) -> bool:
    """Whether all layers stay; a peer's engine may be in a process of its own ("resident-process")."""
    return row.get("mode", "resident").startswith("resident")


def setting(row: dict) -> str:
    """Such as "minillm, eager", "minillm prefetch, N = 14" or "vLLM prefetch, 2 slots"."""
    parts = row["key"].split("/")
    engine, mode = row.get("engine", parts[1]), row.get("mode", parts[2] if len(parts) > 2 else "resident")
    name = NAMES.get(engine, engine)
    if mode.startswith("resident"):
        name += ", own process" if mode == "resident-process" else ""
    else:
        name += f" {'UVA' if mode == 'uva' else mode}"
        if row.get("budget"):
            name += f", N = {row['budget']}"
        elif row.get("slots"):
            name += f", {row['slots']} slots"
    return name + (f", {row['path']}" if row.get("path") else "")


def speed(rows: Sequence[dict]) -> float | None:
    """Decode tokens a second, the median of the prompts."""
    return middle(rows, "tokens_per_s")


def fastest(found: dict[str, Group]) -> str | None:
    """Our fastest setting: what is predicted for the course's card is without overhead."""
    ours = {name: speed(ran(rows)) for name, rows in found.items() if name.startswith("minillm")}
    return max(ours, key=lambda name: ours[name] or 0, default=None)


def copy_gb_s(stored: Stored) -> float | None:
    """GB/s that the GPU copies, read and written: one rate for all shares that are told of a file's rows."""
    return vllm_checks.copy_gb_s(stored.rows()) or stored.ceiling("device_copy_gb_s")


def bandwidth_limit(stored: Stored, model: str, rows: Sequence[dict]) -> float | None:
    """Tokens a second at which answers like `rows` would read as many bytes as the GPU copies."""
    read = [vllm_checks.read_gb(model, row) for row in rows]
    return over(copy_gb_s(stored), median(read) if read else None)


def bandwidth_share(stored: Stored, model: str, rows: Sequence[dict]) -> float | None:
    """Of that limit, what `rows` reached: the median."""
    rate = copy_gb_s(stored)
    return middle(({"share": vllm_checks.bandwidth_share(model, row, rate)} for row in rows), "share")


def most_memory(stored: Stored, model: str, name: str) -> int | None:
    """GPU memory of a setting's longest request with room for the whole context; else of its answers."""
    rows = [row for row in stored.rows(f"{model}/") if "ttft_s" in row and setting(row) == name]
    longest = [row for row in rows if row["key"].endswith("/peak")]
    return most(longest or rows, "peak_bytes")


def ratio(stored: Stored, model: str, ours: str, theirs: str) -> float | None:
    """Decode speed of one setting over another's; a name without its end stands for the fastest such one."""
    found = {name: ran(rows) for name, rows in groups(stored, model).items()}
    return vllm_checks.ratio(*(_fastest(found, name) for name in (ours, theirs)))


def _fastest(found: dict[str, list[dict]], name: str) -> list[dict]:
    named = [rows for full, rows in found.items() if rows and name in (full, full.split(",")[0])]
    return max(named, key=speed, default=[])


def models_in(stored: Stored, models: Sequence[str], part: str = "resident") -> list[str]:
    """Those of `models` of which there is something in a result."""
    keys = [row["key"] for row in stored.rows() if "ttft_s" in row or reason(row)]
    return [model for model in models if any(key.startswith(f"{model}/") and part in key for key in keys)]


def fast_steps(stored: Stored) -> dict[str, dict[str, Group]]:
    """Rows of the fast path by model and step, in the order in which they were measured."""
    found: dict[str, dict[str, Group]] = {}
    for row in stored.rows():
        if row.get("tokens_per_s") is not None:
            steps = found.setdefault(row.get("model", row["key"].split("/")[0]), {})
            steps[step_name(row)] = (*steps.get(step_name(row), ()), row)
    return found


def step_name(row: dict) -> str:
    """What was added in this row: its own word for it, or what its key says."""
    if row.get("step"):
        return str(row["step"])
    parts = row["key"].split("/")[1:]
    return " ".join(part for part in parts if not part.isdigit() and part != "minillm")


def eager_spread(archive: Archive) -> tuple[str, float] | None:
    """The model whose rows of ours without graphs differ most, and the fastest over the slowest.

    Of short prompts: a long one is more work for the device, whatever the host does.
    """
    speeds: dict[str, list[float]] = {}
    for stored in map(archive.get, ("baseline", "vllm")):
        for model in dict.fromkeys(row.get("model") for row in stored.rows()):
            rows = ran(groups(stored, model).get("minillm, eager", ()))
            short = (row["tokens_per_s"] for row in rows if row["prompt_tokens"] <= SHORT)
            speeds.setdefault(model, []).extend(short)
    for model, steps in fast_steps(archive.get("fast_path")).items():
        rows = [*steps.get("eager", ()), *archive.get("quant").rows(f"{model}/dense/resident-eager")]
        speeds.setdefault(model, []).extend(row["tokens_per_s"] for row in rows)
    found = {model: max(each) / min(each) for model, each in speeds.items() if each}
    return max(found.items(), key=lambda item: item[1], default=None)
