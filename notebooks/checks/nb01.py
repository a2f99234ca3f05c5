"""Notebook 01: RMSNorm and RoPE."""

from collections.abc import Callable
from itertools import combinations

import torch

from checks.exercise import Exercise


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class SizesError(Exception):
    """Two tensors of the answer do not line up."""


def _try(answer: Callable, *case: object) -> object:
    """`answer(*case)`; sizes that do not line up are an error of their own, so that a hint can tell it."""
    try:
        return answer(*case)
    except RuntimeError as error:
        if "must match the size" in str(error):
            raise SizesError(error) from error
        raise


def _misaligned(*case: object) -> None:
    raise SizesError


# ---- 1. RMSNorm ----


class DtypeError(Exception):
    """The answer has other numbers inside than asked for."""


def _norm(x: torch.Tensor, weight: torch.Tensor, eps: float, **changes: Callable) -> torch.Tensor:
    """RMSNorm, each step of which can be changed into a mistake."""
    widen = changes.get("widen", torch.Tensor.float)
    mean = changes.get("mean", lambda squares: squares.mean(-1, keepdim=True))
    divide = changes.get("divide", lambda wide, mean: wide * torch.rsqrt(mean + eps))
    wide = widen(x)
    return (divide(wide, mean(wide.pow(2))) * weight).to(x.dtype)


def _try_norm(answer: Callable, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    result = _try(answer, x, weight, eps)
    if isinstance(result, torch.Tensor) and result.dtype != x.dtype:
        raise DtypeError(f"x is {x.dtype}, the result {result.dtype}.")
    return result


def _layer_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return _norm(x.float() - x.float().mean(-1, keepdim=True), weight, eps).to(x.dtype)


SMALL = 1e-3 * _random(4, 6, seed=1)
SMALL[2] = 0.0
LARGE = (300 * _random(2, 3, 16, seed=2)).half()

rms_norm = Exercise(
    "RMSNorm",
    _norm,
    (
        (_random(3, 5, 8) + 0.5, _random(8, seed=3) + 1.0, 1e-6),
        (SMALL, _random(6, seed=4) + 1.0, 1e-5),
        (LARGE, (_random(16, seed=5) + 1.0).half(), 1e-6),
    ),
    {
        "The mean runs over the tokens. Each token has its own scale: the mean runs over its numbers.": (
            lambda *case: _norm(*case, mean=lambda squares: squares.mean(-2, keepdim=True))
        ),
        "The mean runs over the first dimension. Each token has its own scale: use the last dimension.": (
            lambda *case: _norm(*case, mean=lambda squares: squares.mean(0, keepdim=True))
        ),
        "There is one mean for all tokens together, so a loud token makes the others quiet.": (
            lambda *case: _norm(*case, mean=torch.Tensor.mean)
        ),
        "Sizes do not line up. The mean has lost a dimension: keep it with size 1, so that each token's mean "
        "stands beside all its numbers.": _misaligned,
        "That is a sum of squares. A wide vector would come out smaller than a narrow one.": (
            lambda *case: _norm(*case, mean=lambda squares: squares.sum(-1, keepdim=True))
        ),
        "That is LayerNorm: RMSNorm does not subtract the mean.": _layer_norm,
        "Where is eps? A vector of zeros becomes 0 / 0.": lambda x, weight, eps: _norm(x, weight, 0.0),
        "eps is outside of the root. There it hardly changes anything until the vector is almost zero.": (
            lambda x, weight, eps: _norm(x, weight, eps, divide=lambda wide, mean: wide / (mean.sqrt() + eps))
        ),
        "You divide by the mean of the squares. The scale is its square root.": (
            lambda x, weight, eps: _norm(x, weight, eps, divide=lambda wide, mean: wide / (mean + eps))
        ),
        "You multiply by the scale. Divide by it, so that the RMS becomes 1.": (
            lambda x, weight, eps: _norm(x, weight, eps, divide=lambda wide, mean: wide * (mean + eps).sqrt())
        ),
        "The weight comes last. Multiplied in before the norm, it changes the RMS that you divide by.": (
            lambda x, weight, eps: _norm(x.float() * weight, torch.ones_like(weight), eps).to(x.dtype)
        ),
        "Where is the weight?": lambda x, weight, eps: _norm(x, torch.ones_like(weight), eps),
        "A square did not fit in float16 and became infinite. In which dtype is the mean taken?": (
            lambda *case: _norm(*case, widen=lambda x: x)
        ),
        "The numbers are right, but they stay float32. The result has the dtype of x.": (
            lambda x, weight, eps: _norm(x.float(), weight, eps)
        ),
    },
    run=_try_norm,
)

# ---- 2. Neighbours as pairs ----


def _neighbours(
    x: torch.Tensor,
    positions: torch.Tensor,
    theta: float,
    join: Callable | None = None,
    sign: int = 1,
    flip: int = 1,
) -> torch.Tensor:
    """RoPE over neighbours; the other arguments turn it into mistakes."""
    D = x.shape[-1]
    angles = sign * positions[:, None, None] * theta ** (-torch.arange(0, D, 2) / D)
    first, second = x[..., 0::2], x[..., 1::2]
    turned = (
        first * angles.cos() - flip * second * angles.sin(),
        first * angles.sin() + second * angles.cos(),
    )
    return join(turned) if join else torch.stack(turned, -1).flatten(-2)


def _halves(x: torch.Tensor, positions: torch.Tensor, theta: float) -> torch.Tensor:
    together = torch.stack(x.chunk(2, -1), -1).flatten(-2)
    return _neighbours(together, positions, theta, join=lambda turned: torch.cat(turned, -1))


def _one_after_the_other(x: torch.Tensor, positions: torch.Tensor, theta: float) -> torch.Tensor:
    D = x.shape[-1]
    angles = positions[:, None, None] * theta ** (-torch.arange(0, D, 2) / D)
    result = x.clone()
    result[..., 0::2] = x[..., 0::2] * angles.cos() - x[..., 1::2] * angles.sin()
    result[..., 1::2] = result[..., 0::2] * angles.sin() + x[..., 1::2] * angles.cos()
    return result


def _second_subtracted(x: torch.Tensor, positions: torch.Tensor, theta: float) -> torch.Tensor:
    return _neighbours(x * torch.tensor([1.0, -1.0]).repeat(x.shape[-1] // 2), positions, theta, flip=-1)


def _one_angle_a_number(x: torch.Tensor, positions: torch.Tensor, theta: float) -> torch.Tensor:
    D = x.shape[-1]
    angles = positions[:, None, None] * theta ** (-torch.arange(D) / D)
    partner = torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2)
    return x * angles.cos() + partner * angles.sin()


rotate_neighbours = Exercise(
    "RoPE with neighbours as pairs",
    _neighbours,
    (
        (_random(5, 3, 8), torch.tensor([0, 3, 4, 10, 200]), 10_000.0),
        (_random(2, 4, 6, seed=1), torch.tensor([7, 1]), 100.0),
    ),
    {
        "You paired number i with number i + D/2. Here the pairs are (0, 1), (2, 3), and so on.": _halves,
        "The pairs are turned well, but they are put back in halves: each number must return to its place.": (
            lambda *case: _neighbours(*case, join=lambda turned: torch.cat(turned, -1))
        ),
        "Each pair turns the other way round. At (1, 0) a small angle makes the second number positive.": (
            lambda *case: _neighbours(*case, sign=-1)
        ),
        "The signs are not those of a turn: the pairs change their length.": (
            lambda *case: _neighbours(*case, flip=-1)
        ),
        "A token at position 0 must stay as it is. Which sign has the cosine in the second number?": (
            _second_subtracted
        ),
        "Sizes do not line up. x is [T, H, D], and all heads of a token turn alike: the angles need a "
        "dimension of size 1 where x has its heads.": _misaligned,
        "The second number of each pair is computed from the new first one. Both need the old values.": (
            _one_after_the_other
        ),
        "You count the rows from 0. The tokens stand at `positions`.": (
            lambda x, positions, theta: _neighbours(x, torch.arange(len(x)), theta)
        ),
        "Every position is one too large: a token at position 0 must not be turned.": (
            lambda x, positions, theta: _neighbours(x, positions + 1, theta)
        ),
        "The hands slow down too little from pair to pair. Pair i has theta to the power of -2i/D.": (
            lambda x, positions, theta: _neighbours(x, positions, theta**0.5)
        ),
        "The hands slow down too much from pair to pair. Pair i has theta to the power of -2i/D.": (
            lambda x, positions, theta: _neighbours(x, positions, theta**2)
        ),
        "The hands get faster from pair to pair. Pair 0 is the fastest.": (
            lambda x, positions, theta: _neighbours(x, positions, 1 / theta)
        ),
        "cos and sin take radians, not degrees.": (
            lambda x, positions, theta: _neighbours(x, positions * torch.pi / 180, theta)
        ),
        "Both numbers of a pair turn by one angle. There are D/2 angles a position, not D.": (
            _one_angle_a_number
        ),
    },
    run=_try,
)

# ---- 3. Look back ----


def _turned(key: torch.Tensor, position: float, theta: float) -> torch.Tensor:
    half = len(key) // 2
    angles = position * theta ** (-torch.arange(half) / half)
    first, second = key.chunk(2)
    return torch.cat(
        (first * angles.cos() - second * angles.sin(), first * angles.sin() + second * angles.cos())
    )


looking_back = Exercise(
    "a query that looks back",
    lambda key, distance, theta: _turned(key, -distance, theta),
    ((_random(8), 5, 10_000.0), (_random(6, seed=1), 2, 100.0)),
    {
        "That query has its peak at keys that are `distance` tokens after it.": (
            lambda key, distance, theta: _turned(key, distance, theta)
        ),
        "That query has its peak at distance 0: it looks at its own token.": lambda key, distance, theta: key,
        "Without RoPE the opposite key gives the lowest score. Think of angles, not of signs.": (
            lambda key, distance, theta: -key
        ),
        "The direction is right. The norm √(Σ query²) should be that of `key`.": (
            lambda key, distance, theta: _turned(key, -distance, theta) / key.norm()
        ),
        "That looks one token farther back than asked.": (
            lambda key, distance, theta: _turned(key, -distance - 1, theta)
        ),
        "That looks one token less far back than asked.": (
            lambda key, distance, theta: _turned(key, 1 - distance, theta)
        ),
    },
)

# ---- 4. Find the bug ----

FAULTS = {
    "start": "The tokens of a later piece are turned as if the text began with them.",
    "exact": "From position 256 on, neighbours get the same angle.",
    "half": "From position 2,048 on, neighbours get the same angle.",
    "sign": "A token at position 0 must stay as it is, and no token may change its length.",
}


def _rotate_from(
    x: torch.Tensor, start: int, theta: float, faults: frozenset[str] = frozenset()
) -> torch.Tensor:
    T, D = x.shape
    positions = torch.arange(T) + (0 if "start" in faults else start)
    if "exact" in faults:
        positions = positions.bfloat16()
    if "half" in faults:  # seen only in a text that starts far along
        positions = positions.half()
    angles = positions[:, None] * theta ** (-torch.arange(0, D, 2) / D)
    cos, sin = angles.cos(), angles.sin()
    first, second = x.chunk(2, -1)
    turned = first * sin - second * cos if "sign" in faults else first * sin + second * cos
    return torch.cat((first * cos - second * sin, turned), -1)


def _left(faults: tuple[str, ...]) -> Callable:
    return lambda *case: _rotate_from(*case, faults=frozenset(faults))


repaired = Exercise(
    "the repaired rotation",
    _rotate_from,
    (
        (_random(5, 8), 0, 10_000.0),
        (_random(4, 6, seed=1), 7, 100.0),
        (_random(3, 8, seed=2), 3008, 10_000.0),  # exact in 16 bits, unlike the next positions
        (_random(300, 4, seed=3), 0, 10_000.0),
    ),
    {
        " ".join(FAULTS[fault] for fault in left): _left(left)
        for count in (1, 2, 3)
        for left in combinations(FAULTS, count)
        if "half" not in left or not {"start", "exact"} & set(left)  # those hide it
    },
)
