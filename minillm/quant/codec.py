"""Quantising, expanding and multiplying, whatever the format: the reference for every faster product.

All of it goes by pieces of rows: an expanded piece stays in the cache of a processor, and on a GPU the
memory that expanding takes is bounded.
"""

from collections.abc import Callable, Iterable, Iterator

import torch

from minillm.errors import InputError
from minillm.linear import linear as multiply
from minillm.quant import cpu, fp8, int4, int8
from minillm.quant.formats import Format, Place

Parts = dict[str, torch.Tensor]
PIECE_BYTES = {"cpu": 2 << 20, "cuda": 16 << 20}  # of an expanded piece
PIECES_HELD = 4  # as much memory as so many pieces: float32 and bytes on the way, and the piece


def empty(format: Format, rows: int, columns: int, device: torch.device | str = "cpu") -> Parts:
    """Uninitialised parts of a [rows, columns] matrix."""
    return {
        part.name: torch.empty(part.shape(rows, columns), dtype=getattr(torch, part.dtype), device=device)
        for part in format.parts
    }


def at(places: Iterable[Place], buffer: torch.Tensor) -> Parts:
    """Parts as views of `buffer` (uint8, aligned) at `places`."""
    return {
        place.name: buffer.narrow(0, place.offset, place.num_bytes)
        .view(getattr(torch, place.dtype))
        .view(place.shape)
        for place in places
    }


def rows_of(parts: Parts, begin: int, end: int) -> Parts:
    """The parts of rows `begin` to `end`, as views."""
    return {name: part[begin:end] for name, part in parts.items()}


def quantise(format: Format, weight: torch.Tensor, name: str = "weight") -> Parts:
    """The parts of `weight` [rows, columns]; InputError, with `name`, for one that the format cannot hold."""
    format.check(name, tuple(weight.shape))
    parts = empty(format, *weight.shape, device=weight.device)
    write(format, weight, parts, name)
    return parts


def write(
    format: Format,
    weight: torch.Tensor,
    parts: Parts,
    name: str = "weight",
    device: torch.device | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Quantise `weight` into parts that are there; on `device` and as `dtype`, by default its own.

    It goes there in pieces of rows: a GPU may be nearly full of resident layers. A piece takes about 6 times
    `PIECE_BYTES` for a moment.
    """
    device, dtype = device or weight.device, dtype or weight.dtype
    for begin, end in pieces(*weight.shape, 4, device):
        for key, value in _quantise(format, weight[begin:end].to(device, dtype)).items():
            if key != "packed" and not value.isfinite().all():
                raise InputError(f"{name} holds infinity or NaN: {format.name} cannot store it")
            parts[key][begin:end].copy_(value)


def dequantise(format: Format, parts: Parts, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The matrix that the parts stand for, in `dtype`; each element rounded once from float32."""
    if format.name.startswith("gguf-"):
        from minillm.quant.gguf import blocks

        return blocks.dequantise(format, parts["packed"], dtype)
    return _module(format).dequantise(parts, dtype)


def linear(format: Format, x: torch.Tensor, parts: Parts, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x · weightᵀ + bias for `x` [..., columns], in x's dtype; → [..., rows].

    Dequantises by pieces and multiplies; a packed kernel of PyTorch where that was measured to be faster.
    """
    if format.name == "int8" and cpu.takes_int8(x):
        out = cpu.int8(x, parts)
    else:
        out = by_pieces(
            x, len(parts["packed"]), lambda *piece: dequantise(format, rows_of(parts, *piece), x.dtype)
        )
    return out if bias is None else out + bias


def by_pieces(x: torch.Tensor, rows: int, expand: Callable[[int, int], torch.Tensor]) -> torch.Tensor:
    """x · weightᵀ, [..., columns] → [..., rows]; `expand(begin, end)` gives those rows of the weight."""
    ranges = pieces(rows, x.shape[-1], x.element_size(), x.device)
    products = [multiply(x, expand(*piece)) for piece in ranges]
    return products[0] if len(products) == 1 else torch.cat(products, -1)  # one would be copied, too


def _quantise(format: Format, weight: torch.Tensor) -> Parts:
    module = _module(format)
    if module is int4:
        return int4.quantise(weight, format.group, symmetric=len(format.parts) == 2)
    return module.quantise(weight)


def _module(format: Format):
    kind = format.name.split("-")[0]
    return {"int8": int8, "int4": int4, "fp8": fp8}[kind]


def scratch_bytes(device: torch.device, pieces_held: int = PIECES_HELD) -> int:
    """Memory that expanding takes for a moment, where a GPU's is short."""
    return 0 if device.type == "cpu" else pieces_held * PIECE_BYTES.get(device.type, PIECE_BYTES["cuda"])


def pieces(rows: int, columns: int, item_bytes: int, device: torch.device) -> Iterator[tuple[int, int]]:
    """Row ranges of about `PIECE_BYTES` of dense weights each."""
    step = max(1, PIECE_BYTES.get(device.type, PIECE_BYTES["cuda"]) // (columns * item_bytes))
    for begin in range(0, rows, step):
        yield begin, min(begin + step, rows)
