"""Notebook 00: bytes and bandwidth."""

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
        "That is in bytes a second; GB/s are asked for.": lambda *case: 1e9 * _bandwidth(*case),
    },
)

# The first try of a program is often slow: memory is handed out, caches are cold.
TRIES = [0.12, 0.05, 0.05]

copy_gb_s = Exercise(
    "bandwidth of a copy",
    lambda buffer_bytes, seconds: 2 * buffer_bytes / min(seconds) / 1e9,
    ((256_000_000, TRIES), (10_000_000, [0.004, 0.002])),
    {
        "A copy reads and writes: both count.": lambda size, seconds: size / min(seconds) / 1e9,
        "One of the tries was disturbed. Which statistic is a ceiling?": (
            lambda size, seconds: 2 * size * len(seconds) / sum(seconds) / 1e9
        ),
        "GB are 10^9 bytes; 2^30 is a GiB.": lambda size, seconds: 2 * size / min(seconds) / 2**30,
    },
)
