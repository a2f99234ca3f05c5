"""Benchmark reports of made-up engines for notebook 10, and right and wrong ways to read a clock."""

from collections.abc import Callable
from itertools import pairwise
from statistics import mean, median

Request = tuple[float, float, int]  # seconds to the first token, seconds to the last, tokens


def reading(
    called: float,
    times: list[float],
    *,
    first: Callable = lambda called, times: times[0] - called,
    counted: Callable = lambda times: len(times) - 1,
    span: Callable = lambda called, times: times[-1] - times[0],
    least: int = 2,
) -> tuple[float | None, float | None]:
    """TTFT and decode tokens a second; the keywords are what a mistake replaces."""
    ttft = first(called, times) if times else None
    return ttft, counted(times) / span(called, times) if len(times) >= least else None


def mean_of_gap_rates(called: float, times: list[float]) -> tuple[float | None, float | None]:
    found = [1 / (b - a) for a, b in pairwise(times)]
    return reading(called, times)[0], mean(found) if found else None


def middle_gap(called: float, times: list[float]) -> tuple[float | None, float | None]:
    spans = [b - a for a, b in pairwise(times)]
    return reading(called, times)[0], 1 / median(spans) if spans else None


def seconds_a_token(called: float, times: list[float]) -> tuple[float | None, float | None]:
    ttft, rate = reading(called, times)
    return ttft, rate and 1 / rate


def milliseconds(called: float, times: list[float]) -> tuple[float | None, float | None]:
    ttft, rate = reading(called, times)
    return ttft and 1e3 * ttft, rate


# ---- several requests, one figure ----


def overall(
    requests: list[Request],
    *,
    counted: Callable = lambda tokens: tokens - 1,
    seconds: Callable = lambda ttft, total: total - ttft,
) -> float:
    """All tokens but the first ones, over all seconds in which they were made."""
    return sum(counted(n) for _, _, n in requests) / sum(seconds(ttft, total) for ttft, total, _ in requests)


def rates(requests: list[Request]) -> list[float]:
    """Decode tokens a second of each request that has a second token."""
    return [(n - 1) / (total - ttft) for ttft, total, n in requests if n > 1]


# ---- what a token costs ----


def token_time(
    layers: int,
    tensors: int,
    layer_bytes: int,
    gb_s: float,
    call_s: float,
    compute_s: float,
    overlap: bool,
    *,
    calls: Callable = lambda layers, tensors: layers * tensors,
    unit: float = 1e9,
    join: Callable = lambda copying, computing, overlap: (
        max(copying, computing) if overlap else copying + computing
    ),
) -> float:
    """Seconds of one token: bytes over the link, a fixed price for each copy, and the computing."""
    copying = layers * layer_bytes / (gb_s * unit) + calls(layers, tensors) * call_s
    return join(copying, compute_s, overlap)


# ---- reports to judge ----

FAULTS = {"A": "memory", "B": "clock", "C": "none", "D": "link", "E": "idle", "F": "prompt"}

_ROW = {
    "resident": 12,
    "peak GiB": 6.3,
    "prompt": 128,
    "new": 64,
    "TTFT s": 0.31,
    "total s": 19.0,
    "tok/s": 3.37,
    "GB a token": 9.26,
    "link GB/s": 31.5,
}
_SLOW = _ROW | {"TTFT s": 0.36, "total s": 21.0, "tok/s": 3.05}
_LESS = {"resident": 20, "peak GiB": 9.2, "TTFT s": 0.21, "total s": 12.81, "tok/s": 5.0, "GB a token": 6.17}
_LONG = {"prompt": 4096}

# letter: (claim, ours, theirs); all of one 8B model in bf16, 36 layers of 0.386 GB.
REPORTS: dict[str, tuple[str, dict, dict]] = {
    "A": ("ours writes 1.6 times as fast", _ROW | _LESS, _SLOW),
    "B": (
        "ours writes 1.6 times as fast",
        _ROW | _LONG | {"TTFT s": 1.9, "total s": 20.59},
        _SLOW | _LONG | {"TTFT s": 8.9, "total s": 29.56, "tok/s": 2.17},
    ),
    "C": (
        "ours writes 1.1 times as fast; its first token is later",
        _ROW | {"TTFT s": 0.39, "total s": 19.08},
        _SLOW,
    ),
    "D": (
        "ours writes 2.0 times as fast",
        _ROW,
        _ROW | {"TTFT s": 0.61, "total s": 37.7, "tok/s": 1.7, "link GB/s": 15.8},
    ),
    "E": (
        "ours writes 12 times as fast",
        _ROW | {"peak GiB": None, "TTFT s": 0.02, "total s": 1.68, "tok/s": 38.0},
        _SLOW | {"peak GiB": None},
    ),
    "F": (
        "ours gives its first token 4 times as soon",
        _ROW,
        _SLOW | _LONG | {"TTFT s": 1.24, "total s": 21.9},
    ),
}


def table(letter: str) -> str:
    """A report as text: the claim, then ours and theirs side by side."""
    claim, ours, theirs = REPORTS[letter]
    lines = [f"{letter}: {claim}", f"{'':12}{'ours':>8}{'theirs':>8}"]
    for name, value in ours.items():
        lines.append(f"{name:12}{_shown(value):>8}{_shown(theirs[name]):>8}")
    return "\n".join(lines)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:,}"
