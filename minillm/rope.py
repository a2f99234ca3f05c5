"""Rotary position embedding (RoPE, arXiv 2104.09864) with YaRN's stretched frequencies (arXiv 2309.00071).

Angles, cosines and sines are float32 whatever the model's dtype: in bfloat16 neighbouring positions
beyond a few hundred would get the same angle.
"""

import math
from functools import cached_property

import torch

from minillm.rope_config import RopeConfig


class Rope:
    """Frequencies of one model; `at(positions)` gives the rotation that every layer applies."""

    def __init__(self, config: RopeConfig, head_dim: int, device: torch.device | str = "cpu"):
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device="cpu") / head_dim
        self.inv_freq = 1.0 / config.rope_theta**exponents  # [D/2], radians a position
        self.scale = 1.0
        if config.rope_type == "yarn":
            self.inv_freq = yarn_frequencies(config, self.inv_freq)
            self.scale = config.attention_factor or max(1.0, 0.1 * math.log(config.factor) + 1.0)
        self.inv_freq = self.inv_freq.to(device)

    def at(self, positions: torch.Tensor) -> "Rotation":
        """The rotation for `positions` [B, T]."""
        return Rotation(self, positions)


class Rotation:
    """Rotates each pair (x[i], x[i + D/2]) of a head by its position's angle."""

    def __init__(self, rope: Rope, positions: torch.Tensor):
        self.rope, self.positions = rope, positions
        self.half = len(rope.inv_freq)

    @cached_property
    def angles(self) -> torch.Tensor:
        """[B, 1, T, D/2] float32 radians, with a dimension for broadcasting over heads."""
        return (self.positions[..., None].float() * self.rope.inv_freq)[:, None]

    @cached_property
    def cos(self) -> torch.Tensor:
        """[B, 1, T, D] float32, each angle once for either half."""
        cos = self.angles.cos()
        if self.rope.scale != 1.0:
            cos = cos * self.rope.scale
        return torch.cat((cos, cos), -1)

    @cached_property
    def signed_sin(self) -> torch.Tensor:
        """The same of sines, the first half negated, so that a roll does for a rotation."""
        sin = self.angles.sin()
        if self.rope.scale != 1.0:
            sin = sin * self.rope.scale
        return torch.cat((-sin, sin), -1)

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """`x` [B, heads, T, D] rotated; computed in float32, returned in x's dtype."""
        turned = x * self.cos + x.roll(self.half, -1) * self.signed_sin
        return turned if x.dtype == torch.float32 else turned.to(x.dtype)


def yarn_frequencies(config: RopeConfig, inv_freq: torch.Tensor) -> torch.Tensor:
    """YaRN section 3.2: keep fast pairs, divide slow pairs by `factor`, blend linearly between."""
    half = len(inv_freq)

    def pair_with(rotations: float) -> float:
        """Index of the pair that turns `rotations` times over the original context."""
        wavelength = config.original_max_position_embeddings / (rotations * 2 * math.pi)
        return half * math.log(wavelength) / math.log(config.rope_theta)

    low = max(math.floor(pair_with(config.beta_fast)), 0)
    high = min(math.ceil(pair_with(config.beta_slow)), 2 * half - 1)
    ramp = ((torch.arange(half, dtype=torch.float32) - low) / max(high - low, 1e-3)).clamp(0, 1)
    return inv_freq / config.factor * ramp + inv_freq * (1 - ramp)
