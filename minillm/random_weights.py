"""Seeded random weights: the real shapes of a published model without a download.

The bits of a parameter depend only on (seed, its name, the element's index): an integer hash, made
uniform in float32 and rounded to the dtype. No transcendental function and no generator state, so every
device, dtype and placement has the same model.
"""

import hashlib
from collections.abc import Iterable

import torch

from minillm.progress import Progress

STD = 0.02  # standard deviation of weights, as Qwen3's `initializer_range`
NORM_SPREAD = 0.1  # norm weights lie in 1 ± this, so that forgetting one shows
# Elements hashed at once: fits a core's cache / fills a GPU, and stays within what plans leave of its memory.
_CHUNK = {"cpu": 1 << 18, "cuda": 1 << 20}


def fill_random(
    parameters: Iterable[tuple[str, torch.Tensor]], seed: int, made_on: torch.device | None = None
) -> None:
    """Fill every named parameter in place; a GPU as `made_on` is quicker for those in host memory, too."""
    named = list(parameters)
    with Progress("making weights", len(named), "tensor") as progress:
        for name, parameter in named:
            packed = not isinstance(parameter, torch.Tensor)
            dense = parameter.empty() if packed else parameter
            fill_parameter(name, dense, seed, made_on)
            if packed:
                parameter.copy_(dense)
            progress.advance()


def fill_parameter(name: str, tensor: torch.Tensor, seed: int, made_on: torch.device | None = None) -> None:
    """Fill `tensor` (contiguous, any float dtype or device, fewer than 2^31 elements) in place."""
    key = int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:4], "little", signed=True)
    flat = tensor.detach().view(-1)
    device = made_on or tensor.device
    step = _CHUNK.get(device.type, 1 << 22)
    count = torch.arange(min(step, flat.numel()), dtype=torch.int32, device=device)
    for begin in range(0, flat.numel(), step):
        chunk = flat[begin : begin + step]
        made = _uniform(count[: len(chunk)] + begin, key, is_norm=name.endswith("norm.weight"))
        chunk.copy_(made.to(chunk.dtype))  # rounded where it was made: half the bytes to move


def _uniform(index: torch.Tensor, key: int, is_norm: bool) -> torch.Tensor:
    """float32 in ±STD·√3 (the uniform law of that deviation), or in 1 ± NORM_SPREAD for a norm."""
    bits = _hash(index.mul_(-1640531527).add_(key))  # 2^32 / golden ratio, as a signed number
    centred = ((bits >> 8) & 0xFFFFFF).sub_(1 << 23)  # 24 bits: exact in float32
    if is_norm:
        return centred.float().mul_(NORM_SPREAD / (1 << 23)).add_(1.0)
    return centred.float().mul_(STD * 3**0.5 / (1 << 23))


def _hash(x: torch.Tensor) -> torch.Tensor:
    """A 32-bit mixer (C. Wellons, "lowbias32"), in place on int32 with wrap-around.

    torch shifts signed numbers arithmetically; the masks make the shifts logical.
    """
    x ^= (x >> 16) & 0xFFFF
    x *= 0x7FEB352D
    x ^= (x >> 15) & 0x1FFFF
    x *= 0x846CA68B - (1 << 32)
    x ^= (x >> 16) & 0xFFFF
    return x
