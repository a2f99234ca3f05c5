"""The RoPE part of a configuration, in both spellings that Hugging Face files use."""

import math
from dataclasses import dataclass
from typing import Any

from minillm.errors import InputError

ROPE_TYPES = ("default", "yarn")


@dataclass(frozen=True, kw_only=True)
class RopeConfig:
    """Base frequency and, for YaRN (arXiv 2309.00071), how far the context is stretched."""

    rope_type: str = "default"
    rope_theta: float = 10000.0
    factor: float = 1.0  # extended length / original length
    original_max_position_embeddings: int = 0  # positions the model was trained on; 0: not given
    attention_factor: float | None = None  # scale of cos and sin; None: 0.1 ln(factor) + 1
    beta_fast: float = 32.0  # rotations over the original length above which a pair is left alone
    beta_slow: float = 1.0  # … and below which it is fully interpolated

    @property
    def extended_length(self) -> int:
        """Positions after stretching; 0 without YaRN."""
        return int(self.factor * self.original_max_position_embeddings)


def read_rope(values: dict[str, Any]) -> RopeConfig:
    """Read `rope_parameters` (newer files) or `rope_theta` with `rope_scaling` (older ones).

    Raises InputError for an unknown rope type or a bad number.
    """
    scaling = values.get("rope_parameters") or values.get("rope_scaling") or {}
    if not isinstance(scaling, dict):
        raise InputError(f"rope parameters are {scaling!r}: they must be an object")
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    theta = scaling.get("rope_theta") or values.get("rope_theta") or 10000.0
    if kind not in ROPE_TYPES:
        raise InputError(f"rope type {kind!r} is not supported: minillm knows {', '.join(ROPE_TYPES)}")
    if kind == "default":
        return RopeConfig(rope_theta=_number("rope_theta", theta))
    return _yarn(scaling, theta, values.get("max_position_embeddings", 32768))


def _yarn(scaling: dict[str, Any], theta: float, max_positions: int) -> RopeConfig:
    optional = {
        k: _number(k, scaling[k]) for k in ("attention_factor", "beta_fast", "beta_slow") if scaling.get(k)
    }
    if "factor" not in scaling:
        raise InputError("factor is missing from the YaRN rope parameters: it says how far to stretch")
    return RopeConfig(
        rope_type="yarn",
        rope_theta=_number("rope_theta", theta),
        factor=_number("factor", scaling["factor"]),
        original_max_position_embeddings=int(
            _number(
                "original_max_position_embeddings",
                scaling.get("original_max_position_embeddings") or max_positions,
            )
        ),
        **optional,
    )


def _number(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InputError(f"{key} is {value!r}: it must be a finite number above 0")
    return float(value)
