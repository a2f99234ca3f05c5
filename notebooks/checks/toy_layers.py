"""A decoder layer written in one right and many wrong ways, and toy parts to try them with.

Every layer takes the stream `h` [B, T, hidden] and four functions: norm, attention, norm, MLP.
"""

import torch
import torch.nn.functional as F


def numbers(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def layer(h, norm_1, attention, norm_2, mlp):
    h = h + attention(norm_1(h))
    return h + mlp(norm_2(h))


def broken(h, norm_1, attention, norm_2, mlp):
    h = norm_1(h)
    h = h + attention(h)
    return h + norm_2(mlp(h))


def norm_still_after(h, norm_1, attention, norm_2, mlp):
    h = h + attention(norm_1(h))
    return h + norm_2(mlp(h))


def stream_still_normed(h, norm_1, attention, norm_2, mlp):
    h = norm_1(h)
    h = h + attention(h)
    return h + mlp(norm_2(h))


def both_normed(h, norm_1, attention, norm_2, mlp):
    h = h + attention(norm_1(h))
    normed = norm_2(h)
    return normed + mlp(normed)


def side_by_side(h, norm_1, attention, norm_2, mlp):
    return h + attention(norm_1(h)) + mlp(norm_2(h))


def one_norm(h, norm_1, attention, norm_2, mlp):
    h = h + attention(norm_1(h))
    return h + mlp(norm_1(h))


def no_residual(h, norm_1, attention, norm_2, mlp):
    return mlp(norm_2(attention(norm_1(h))))


def old_residual(h, norm_1, attention, norm_2, mlp):
    return h + mlp(norm_2(h + attention(norm_1(h))))


def norm_before_and_after(h, norm_1, attention, norm_2, mlp):
    h = h + attention(norm_1(h))
    return h + norm_2(mlp(norm_2(h)))


def no_second_norm(h, norm_1, attention, norm_2, mlp):
    h = h + attention(norm_1(h))
    return h + mlp(h)


def no_first_residual(h, norm_1, attention, norm_2, mlp):
    h = attention(norm_1(h))
    return h + mlp(norm_2(h))


def no_second_residual(h, norm_1, attention, norm_2, mlp):
    h = h + attention(norm_1(h))
    return mlp(norm_2(h))


def no_first_norm(h, norm_1, attention, norm_2, mlp):
    h = h + attention(h)
    return h + mlp(norm_2(h))


def norms_exchanged(h, norm_1, attention, norm_2, mlp):
    h = h + attention(norm_2(h))
    return h + mlp(norm_1(h))


def mlp_first(h, norm_1, attention, norm_2, mlp):
    h = h + mlp(norm_2(h))
    return h + attention(norm_1(h))


def mlp_first_with_norm_1(h, norm_1, attention, norm_2, mlp):
    h = h + mlp(norm_1(h))
    return h + attention(norm_2(h))


def norms_after_adding(h, norm_1, attention, norm_2, mlp):
    h = norm_1(h + attention(h))
    return norm_2(h + mlp(h))


def first_norm_after_adding(h, norm_1, attention, norm_2, mlp):
    h = norm_1(h + attention(h))
    return h + mlp(norm_2(h))


def second_norm_after_adding(h, norm_1, attention, norm_2, mlp):
    h = h + attention(norm_1(h))
    return norm_2(h + mlp(h))


def norms_of_what_is_written(h, norm_1, attention, norm_2, mlp):
    h = h + norm_1(attention(h))
    return h + norm_2(mlp(h))


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
