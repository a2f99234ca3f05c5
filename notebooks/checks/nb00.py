"""Notebook 00: bytes and bandwidth."""

from collections.abc import Callable
from itertools import combinations
from math import prod

from checks.exercise import Exercise
from minillm import estimate
from minillm.presets import PRESETS

EMBEDDING = "model.embed_tokens.weight"


def _without(config, *left_out: str) -> int:
    return sum(prod(shape) for name, shape in config.parameter_shapes().items() if name not in left_out)


def _needed(name: str, bits: int) -> int:
    config = PRESETS[name]
    return _without(config, *([] if config.tie_word_embeddings else [EMBEDDING])) * bits // 8


def _with_embedding(name: str, bits: int) -> int:
    return _without(PRESETS[name]) * bits // 8


def _without_head(name: str, bits: int) -> int:
    return _without(PRESETS[name], EMBEDDING) * bits // 8


def _without_last_norm(name: str, bits: int) -> int:
    return estimate.bytes_per_token(PRESETS[name], bits)


needed = Exercise(
    "bytes a token",
    _needed,
    (("Qwen3-8B", 8), ("Qwen3-4B", 16), ("Qwen3-14B", 4)),
    {
        "Qwen3-8B has a head of its own; of its embedding a token reads one row.": _with_embedding,
        "The embedding of Qwen3-4B is tied: the same matrix serves as the head.": _without_head,
        "The norm after the last layer is missing: small, but a token reads it.": _without_last_norm,
        "Bits or bytes? Eight bits are one byte.": lambda name, bits: 8 * _needed(name, bits),
    },
)


def _bandwidth(tokens_per_s: float, name: str, bits: int, reached: float) -> float:
    return tokens_per_s * _needed(name, bits) / 1e9 / reached


bandwidth_for = Exercise(
    "bandwidth for 20 tokens a second",
    _bandwidth,
    ((20, "Qwen3-8B", 4, 0.8), (5, "Qwen3-8B", 16, 0.5)),
    {
        "Reaching only a part of the bandwidth means that you need more of it, not less.": (
            lambda speed, name, bits, reached: _bandwidth(speed, name, bits, 1 / reached)
        ),
        "Where is `reached`?": lambda speed, name, bits, reached: _bandwidth(speed, name, bits, 1),
        "That is GiB/s; GB are 10^9 bytes.": lambda *case: _bandwidth(*case) * 1e9 / 2**30,
        "That is in bytes a second; GB/s are asked for.": lambda *case: 1e9 * _bandwidth(*case),
    },
)

# The first try of a program is often slow: memory is handed out, caches are cold.
TRIES = [0.12, 0.05, 0.05]

COPY_FAULTS = {
    "once": "A copy reads and writes: both count.",
    "mean": "One of the tries was disturbed. Which statistic is a ceiling?",
    "gib": "GB are 10^9 bytes; 2^30 is a GiB.",
}


def _copy(buffer_bytes: int, seconds: list[float], faults: tuple[str, ...] = ()) -> float:
    moved = buffer_bytes if "once" in faults else 2 * buffer_bytes
    took = sum(seconds) / len(seconds) if "mean" in faults else min(seconds)
    return moved / took / (2**30 if "gib" in faults else 1e9)


def _left(faults: tuple[str, ...]) -> Callable:
    return lambda *case: _copy(*case, faults)


copy_gb_s = Exercise(
    "bandwidth of a copy",
    _copy,
    ((256_000_000, TRIES), (10_000_000, [0.004, 0.002])),
    {
        " ".join(COPY_FAULTS[fault] for fault in left): _left(left)
        for count in (1, 2, 3)
        for left in combinations(COPY_FAULTS, count)
    },
)
