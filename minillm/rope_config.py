"""The RoPE part of a configuration, in both spellings that Hugging Face files use."""

from dataclasses import dataclass
from typing import Any

from minillm.checks import number, shown, whole
from minillm.errors import InputError

ROPE_TYPES = ("default", "yarn")
KNOWN = {
    "default": ("rope_type", "type", "rope_theta"),
    "yarn": (
        *("rope_type", "type", "rope_theta", "factor", "original_max_position_embeddings"),
        *("attention_factor", "beta_fast", "beta_slow"),
    ),
}
NEUTRAL = {"partial_rotary_factor": 1.0, "truncate": True}  # what leaves the frequencies as they are
DEFAULT_POSITIONS = 32768
MAX_POSITIONS = 2**31  # far beyond any model; keeps every product of lengths a sane number
MAX_FACTOR = 1024.0
MAX_THETA = 1e15


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

    Raises InputError for an unknown rope type, a bad number, and a key that would change the frequencies
    and is not understood.
    """
    scaling = values.get("rope_parameters") or values.get("rope_scaling") or {}
    if not isinstance(scaling, dict):
        raise InputError(f"rope parameters are {shown(scaling)}: they must be an object")
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind not in ROPE_TYPES:
        raise InputError(f"rope type {shown(kind)} is not supported: minillm knows {', '.join(ROPE_TYPES)}")
    _refuse_unknown(kind, scaling)
    _refuse_unknown(kind, {"partial_rotary_factor": values.get("partial_rotary_factor")})
    theta = number("rope_theta", _first(scaling, values, "rope_theta", 10000.0), 1.0, MAX_THETA, above=True)
    if kind == "default":
        return RopeConfig(rope_theta=theta)
    return _yarn(scaling, theta, _first(values, {}, "max_position_embeddings", DEFAULT_POSITIONS))


def _first(here: dict[str, Any], there: dict[str, Any], key: str, default: Any) -> Any:
    """The value of `key` in the one, else in the other, else the default; null counts as absent."""
    found = [values[key] for values in (here, there) if values.get(key) is not None]
    return found[0] if found else default


def _refuse_unknown(kind: str, scaling: dict[str, Any]) -> None:
    for key, value in scaling.items():
        neutral = value is None or (key in NEUTRAL and value == NEUTRAL[key])
        if key not in KNOWN[kind] and not neutral:
            raise InputError(
                f"rope parameter {key} {shown(value)} is not supported with type {kind}: "
                f"minillm knows {', '.join(KNOWN[kind])}"
            )


def _yarn(scaling: dict[str, Any], theta: float, max_positions: int) -> RopeConfig:
    if scaling.get("factor") is None:
        raise InputError("factor is missing from the YaRN rope parameters: it says how far to stretch")
    original = _first(scaling, {}, "original_max_position_embeddings", max_positions)
    optional = {
        key: number(key, scaling[key], 0.0, 1e6, above=True)
        for key in ("attention_factor", "beta_fast", "beta_slow")
        if scaling.get(key) is not None
    }
    return RopeConfig(
        rope_type="yarn",
        rope_theta=theta,
        factor=number("factor", scaling["factor"], 1.0, MAX_FACTOR),
        original_max_position_embeddings=whole(
            "original_max_position_embeddings", original, 1, MAX_POSITIONS
        ),
        **optional,
    )
