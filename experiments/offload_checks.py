"""Checks that several experiments of layer offloading share, computed from their rows."""

from statistics import median

from experiments.results import aligned, check
from minillm.units import GIB

COLUMNS = {  # heading: key in a row, unit
    "resident": ("resident", 1),
    "tok/s": ("tokens_per_s", 1.0),
    "limit": ("limit_tokens_per_s", 1.0),
    "simulated": ("simulated_tokens_per_s", 1.0),
    "TTFT, s": ("ttft_s", 1.0),
    "link alone, s": ("link_s", 1.0),
    "resident TTFT, s": ("resident_prefill_s", 1.0),
    "peak, GiB": ("peak_bytes", GIB),
    "RTX 3070, predicted": ("rtx3070_tokens_per_s", 1.0),
}


def row_table(rows: list[dict]) -> str:
    """Rows of generations as aligned text; what no row has is left out, what a row lacks is a dash."""
    columns = {name: which for name, which in COLUMNS.items() if any(which[0] in row for row in rows)}
    lines = [[row["key"], *(_cell(row.get(key), unit) for key, unit in columns.values())] for row in rows]
    return aligned([["", *columns], *lines])


def _cell(value: float | None, unit: float) -> str:
    """Three digits, or a whole number."""
    if value is None:
        return "-"
    whole = isinstance(value, int) and unit == 1
    return f"{value:,}" if whole else f"{value / unit:,.0f}" if value / unit >= 100 else f"{value / unit:.3g}"


def over(value: float | None, other: float | None) -> float | None:
    """A ratio; None where a part is missing."""
    return value / other if value is not None and other else None


def pace(token_s: list[float]) -> float | None:
    """Median seconds a token in the last third of the decode over those in the first third."""
    decode = token_s[1:]  # the first is the prompt's
    third = len(decode) // 3
    return median(decode[-third:]) / median(decode[:third]) if third else None


def peak_checks(name: str, rows: list[dict]) -> list[dict]:
    """Predicted over measured peak of some rows, lowest and highest; and the cap, where there was one."""
    ratios = [row["predicted_peak_bytes"] / row["peak_bytes"] for row in rows]
    checks = [
        check(f"{name}: predicted over measured peak memory, lowest", min(ratios), 0.98),
        check(f"{name}: predicted over measured peak memory, highest", max(ratios), 1.02, "lower"),
    ]
    shares = [row["held_bytes"] / (row["cap_gib"] * GIB) for row in rows if row["cap_gib"]]
    if shares:
        checks.append(check(f"{name}: peak memory over the cap, highest", max(shares), 1.0, "lower"))
    return checks


def locked_checks(loaded: list[dict]) -> list[dict]:
    """Locked host memory over what was asked for, where anything is locked."""
    name = "locked host bytes over bytes asked to be pinned"
    ratios = [over(row["locked_bytes"], row["asked_bytes"]) for row in loaded]
    return [check(name, ratio, 1.02, "lower") for ratio in ratios if ratio is not None]


def same_checks(rows: list[dict]) -> list[dict]:
    """True on every device: wherever the layers lay, a prompt got the same tokens."""
    answers: dict[int | None, set[str]] = {}
    for row in rows:
        answers.setdefault(row.get("question_id"), set()).add(row["answer"])
    same = all(len(found) == 1 for found in answers.values())
    return [check("every placement wrote the same tokens", same, True), *copied_checks(rows)]


def copied_checks(rows: list[dict]) -> list[dict]:
    """True on every device, or the row would not be there: each streamed byte was copied once a pass."""
    copied = all(row["copied_bytes_a_pass"] == row["streamed_bytes"] for row in rows)
    return [check("bytes copied a pass are the schedule's", copied, True)]
