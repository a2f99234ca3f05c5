"""A decoder layer written in one right and many wrong ways, and toy parts to try them with.

Every layer takes `hidden` [B, T, hidden] and four functions: norm, attention, norm, MLP.
"""

import torch
import torch.nn.functional as F


def numbers(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def layer(hidden, norm_1, attention, norm_2, mlp):
    hidden = hidden + attention(norm_1(hidden))
    return hidden + mlp(norm_2(hidden))


def broken(hidden, norm_1, attention, norm_2, mlp):
    hidden = norm_1(hidden)
    hidden = hidden + attention(hidden)
    return hidden + norm_2(mlp(hidden))


def norm_still_after(hidden, norm_1, attention, norm_2, mlp):
    hidden = hidden + attention(norm_1(hidden))
    return hidden + norm_2(mlp(hidden))


def stream_still_normed(hidden, norm_1, attention, norm_2, mlp):
    hidden = norm_1(hidden)
    hidden = hidden + attention(hidden)
    return hidden + mlp(norm_2(hidden))


def both_normed(hidden, norm_1, attention, norm_2, mlp):
    hidden = hidden + attention(norm_1(hidden))
    normed = norm_2(hidden)
    return normed + mlp(normed)


def side_by_side(hidden, norm_1, attention, norm_2, mlp):
    return hidden + attention(norm_1(hidden)) + mlp(norm_2(hidden))


def one_norm(hidden, norm_1, attention, norm_2, mlp):
    hidden = hidden + attention(norm_1(hidden))
    return hidden + mlp(norm_1(hidden))


def no_residual(hidden, norm_1, attention, norm_2, mlp):
    return mlp(norm_2(attention(norm_1(hidden))))


def old_residual(hidden, norm_1, attention, norm_2, mlp):
    return hidden + mlp(norm_2(hidden + attention(norm_1(hidden))))


def norm_before_and_after(hidden, norm_1, attention, norm_2, mlp):
    hidden = hidden + attention(norm_1(hidden))
    return hidden + norm_2(mlp(norm_2(hidden)))


def no_second_norm(hidden, norm_1, attention, norm_2, mlp):
    hidden = hidden + attention(norm_1(hidden))
    return hidden + mlp(hidden)


def pieces(hidden: int, seed: int) -> tuple:
    """A state and toy parts of a layer: norms with weights of their own, a causal mean, a bent product."""
    mix, bend = numbers(hidden, hidden, seed=seed), numbers(hidden, hidden, seed=seed + 1)

    def norm(weight: torch.Tensor):
        return lambda x: F.rms_norm(x, weight.shape, weight, 1e-6)

    def attention(x: torch.Tensor) -> torch.Tensor:
        counts = torch.arange(1, x.shape[-2] + 1)[:, None]
        return (x.cumsum(-2) / counts) @ mix

    first, second = 1 + numbers(hidden, seed=seed + 2).abs(), 2 + numbers(hidden, seed=seed + 3).abs()
    state = 3 * numbers(2, 4, hidden, seed=seed + 4)
    return state, norm(first), attention, norm(second), lambda x: F.silu(x @ bend)
