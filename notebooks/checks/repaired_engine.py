"""The engine of notebook 06 with its three repairs, and parts of it with other mistakes."""

import torch
import torch.nn.functional as F

from checks.broken_engine import Engine


class Repaired(Engine):
    """The solution."""

    def rotate(self, x):
        return rotated(x, self.config.rope.rope_theta)

    def attend(self, q, k, v):
        return attended(q, k, v, self.config.head_dim**-0.5)

    def mlp(self, x, gate, up, down):
        return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def rotated(x: torch.Tensor, theta: float, start: int = 0) -> torch.Tensor:
    T, D = x.shape[1:]
    angles = (torch.arange(T)[:, None] + start) * theta ** (-torch.arange(0, D, 2) / D)
    first, second = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, hide: int = 1) -> torch.Tensor:
    k, v = (x.repeat_interleave(len(q) // len(x), 0) for x in (k, v))
    scores = q @ k.mT * scale
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(hide)
    return scores.masked_fill(later, float("-inf")).softmax(-1) @ v


def swapped_heads(self, q, k, v):
    k, v = (x.repeat(len(q) // len(x), 1, 1) for x in (k, v))
    return Repaired.attend(self, q, k, v)


def pairs_of_neighbours(self, x):
    mixed = x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)
    return Repaired.rotate(self, mixed).unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)
