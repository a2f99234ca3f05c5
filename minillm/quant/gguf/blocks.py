"""GGUF's block types: bytes of a row to weights, with torch on any device.

A row of a matrix is a run of blocks; a block is a few scales and the packed values of 32 or 256
neighbouring weights. Every function takes blocks [n, bytes of a block] (uint8) and returns float32
[n, weights of a block]. The arithmetic is llama.cpp's, operation by operation, so that each element is the
one that its reference gives. K-blocks: a float16 scale for 256 weights, and small whole-number scales for
16 or 32 of them.
"""

from collections.abc import Callable

import torch

from minillm.errors import InputError
from minillm.quant.formats import Format, Part

# weights of a block, bytes of a block
SIZES = (
    {"F32": (1, 4), "F16": (1, 2), "BF16": (1, 2)}
    | {"Q8_0": (32, 34), "Q4_0": (32, 18), "Q4_1": (32, 20), "Q5_0": (32, 22), "Q5_1": (32, 24)}
    | {"Q2_K": (256, 84), "Q3_K": (256, 110), "Q4_K": (256, 144), "Q5_K": (256, 176), "Q6_K": (256, 210)}
)
FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def format_of(type_name: str) -> Format:
    """The type as a format of one part, "packed" uint8 [rows, bytes of a row]; InputError if unsupported."""
    if type_name not in SIZES:
        raise InputError(f"GGUF type {type_name} is not supported: minillm reads {', '.join(SIZES)}")
    weights, num_bytes = SIZES[type_name]
    return Format(f"gguf-{type_name}", weights, (Part("packed", "uint8", num_bytes, weights),))


def dequantise(format: Format, packed: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """`packed` uint8 [rows, bytes] → weights [rows, columns] in `dtype`, rounded once from float32."""
    name = format.name.removeprefix("gguf-")
    if name in FLOATS:
        return packed.contiguous().view(FLOATS[name]).to(dtype)
    blocks = packed.reshape(-1, SIZES[name][1])
    return _EXPAND[name](blocks).to(dtype).view(len(packed), -1)


# ---- pieces of a block ----


def _half(two: torch.Tensor) -> torch.Tensor:
    """Bytes of float16 numbers as float32: [n, 2k] → [n, k]."""
    return two.contiguous().view(torch.float16).float()


def _fields(packed: torch.Tensor, bits: int, run: int) -> torch.Tensor:
    """Values of `bits` bits: [n, bytes] → [n, bytes · 8 / bits] uint8.

    Of each run of bytes come first the lowest bits of all its bytes, then the next ones.
    """
    # Of bytes that lie apart, and with a tensor of shifts, PyTorch's CPU code is several times as slow.
    runs = packed.contiguous().unflatten(1, (-1, run))
    return torch.stack([runs >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)], 2).flatten(1)


def _six_bits(scales: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Q4_K's and Q5_K's twelve bytes: eight scales and eight minimums of six bits, float32 [n, 8, 1] each.

    Four bytes hold the first four scales and the top bits of the last four, four do so for the minimums,
    and four hold the low bits of the last four of both.
    """
    scale, low, rest = scales.unflatten(1, (3, 4)).unbind(1)
    scale = torch.cat((scale & 0x3F, (rest & 0x0F) | (scale >> 2 & 0x30)), 1)
    low = torch.cat((low & 0x3F, rest >> 4 | (low >> 2 & 0x30)), 1)
    return scale.float()[..., None], low.float()[..., None]


# ---- blocks of 32 ----


def _q8_0(blocks: torch.Tensor) -> torch.Tensor:
    return blocks[:, 2:].view(torch.int8).float().mul_(_half(blocks[:, :2]))


def _q4_0(blocks: torch.Tensor) -> torch.Tensor:
    return _fields(blocks[:, 2:], 4, 16).float().sub_(8).mul_(_half(blocks[:, :2]))


def _q4_1(blocks: torch.Tensor) -> torch.Tensor:
    return _fields(blocks[:, 4:], 4, 16).float().mul_(_half(blocks[:, :2])).add_(_half(blocks[:, 2:4]))


def _q5_0(blocks: torch.Tensor) -> torch.Tensor:
    values = _fields(blocks[:, 6:], 4, 16) | _fields(blocks[:, 2:6], 1, 1) << 4
    return values.float().sub_(16).mul_(_half(blocks[:, :2]))


def _q5_1(blocks: torch.Tensor) -> torch.Tensor:
    values = _fields(blocks[:, 8:], 4, 16) | _fields(blocks[:, 4:8], 1, 1) << 4
    return values.float().mul_(_half(blocks[:, :2])).add_(_half(blocks[:, 2:4]))


# ---- blocks of 256 ----


def _q2_k(blocks: torch.Tensor) -> torch.Tensor:
    scales, values = blocks[:, :16], _fields(blocks[:, 16:80], 2, 32).unflatten(1, (16, 16))
    scale = (_half(blocks[:, 80:82]) * (scales & 15).float())[..., None]
    low = (_half(blocks[:, 82:84]) * (scales >> 4).float())[..., None]
    return values.float().mul_(scale).sub_(low).flatten(1)


def _q3_k(blocks: torch.Tensor) -> torch.Tensor:
    top, low = _fields(blocks[:, :32], 1, 32), _fields(blocks[:, 32:96], 2, 32)
    scales = _fields(blocks[:, 96:104], 4, 8) | _fields(blocks[:, 104:108], 2, 4) << 4
    scale = _half(blocks[:, 108:110]) * (scales.float() - 32)
    values = low.float().sub_((top ^ 1) << 2)  # a set bit means that nothing is subtracted
    return values.unflatten(1, (16, 16)).mul_(scale[..., None]).flatten(1)


def _q4_k(blocks: torch.Tensor) -> torch.Tensor:
    return _scaled(blocks, _fields(blocks[:, 16:], 4, 32))


def _q5_k(blocks: torch.Tensor) -> torch.Tensor:
    return _scaled(blocks, _fields(blocks[:, 48:], 4, 32) | _fields(blocks[:, 16:48], 1, 32) << 4)


def _scaled(blocks: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """What Q4_K and Q5_K share: 32 weights have a scale and a minimum of six bits."""
    scale, low = _six_bits(blocks[:, 4:16])
    scale = _half(blocks[:, :2])[..., None] * scale
    low = _half(blocks[:, 2:4])[..., None] * low
    return values.unflatten(1, (8, 32)).float().mul_(scale).sub_(low).flatten(1)


def _q6_k(blocks: torch.Tensor) -> torch.Tensor:
    values = _fields(blocks[:, :128], 4, 64) | _fields(blocks[:, 128:192], 2, 32) << 4
    scale = _half(blocks[:, 208:210]) * blocks[:, 192:208].view(torch.int8).float()
    return values.float().sub_(32).unflatten(1, (16, 16)).mul_(scale[..., None]).flatten(1)


_EXPAND: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "Q8_0": _q8_0,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
} | {"Q2_K": _q2_k, "Q3_K": _q3_k, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k}
