"""A matrix in four bits as a dense one, for products with many rows: there multiplying costs more.

Layout: `quant/int4.py`. In one pass over the packed bytes; PyTorch's operations, one after the other, move
fifteen times as many.
"""

import torch
import triton
import triton.language as tl

from minillm.quant.weight import PackedWeight

ROWS, GROUPS = 4, 4  # that a program expands


def expand(weight: PackedWeight, dtype: torch.dtype) -> torch.Tensor:
    """`weight.dense(dtype)` of a matrix in four bits, each element rounded once from float32."""
    (rows, columns), parts, half = weight.shape, weight.parts, weight.format.group // 2
    dense = torch.empty(rows, columns, dtype=dtype, device=parts["packed"].device)
    groups = columns // (2 * half)
    shift = parts.get("middle", parts.get("zero", parts["scale"]))  # any pointer serves where there is none
    _expand[(triton.cdiv(rows, ROWS), triton.cdiv(groups, GROUPS))](
        parts["packed"], parts["scale"], shift, dense, rows, groups, MIDDLE="middle" in parts,
        ZERO="zero" in parts, HALF=half, WIDE=triton.next_power_of_2(half), ROWS=ROWS, GROUPS=GROUPS,
    )  # fmt: skip
    return dense


@triton.jit
def _expand(
    packed, scales, shifts, dense, rows, groups, MIDDLE: tl.constexpr, ZERO: tl.constexpr, HALF: tl.constexpr,
    WIDE: tl.constexpr, ROWS: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None, None]
    group = (tl.program_id(1) * GROUPS + tl.arange(0, GROUPS))[None, :, None]
    each = tl.arange(0, WIDE)[None, None, :]
    number = row.to(tl.int64) * groups + group
    known = (row < rows) & (group < groups)
    there = known & (each < HALF)
    both = tl.load(packed + number * HALF + each, mask=there, other=0)
    scale = tl.load(scales + number, mask=known, other=0.0).to(tl.float32)
    low, high = (both & 15).to(tl.float32), (both >> 4).to(tl.float32)
    if ZERO:
        zero = tl.load(shifts + number, mask=known, other=0).to(tl.float32)
        low, high = (low - zero) * scale, (high - zero) * scale
    else:
        low, high = (low - 8) * scale, (high - 8) * scale
    if MIDDLE:
        middle = tl.load(shifts + number, mask=known, other=0.0).to(tl.float32)
        low, high = low + middle, high + middle
    place = dense + number * (2 * HALF) + each
    tl.store(place, low.to(dense.dtype.element_ty), mask=there)
    tl.store(place + HALF, high.to(dense.dtype.element_ty), mask=there)
