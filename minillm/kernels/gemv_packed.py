"""`gemv` for a matrix that is stored quantised: the row meets the packed bytes, none is expanded in memory.

int8 and fp8 have one scale a row, which comes after the sum. Four bits (layout: `quant/int4.py`) have one a
group, so a program looks at whole groups: byte j of a group meets columns j and j + g/2 of the row.
"""

import torch
import triton
import triton.language as tl

from minillm.kernels.gemv import finish, gemv_reference
from minillm.quant.weight import PackedWeight

ROWS, BLOCK, WARPS = 4, 1024, 4  # outputs a program computes, inputs that it reads together


def packed_reference(
    x: torch.Tensor,
    weight: PackedWeight,
    norm: tuple[torch.Tensor, float] | None = None,
    silu: bool = False,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    """`gemv_reference` on the expanded matrix."""
    return gemv_reference(x, weight.dense(x.dtype), norm, silu, residual)


def gemv_packed(
    x: torch.Tensor,
    weight: PackedWeight,
    norm: tuple[torch.Tensor, float] | None = None,
    silu: bool = False,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    """The same by the kernels: residual + act(rms_norm(x) · weightᵀ), `x` [in] → [out], rounded once."""
    outputs, inputs = weight.shape[0] // (1 + silu), weight.shape[1]
    out, (scale, eps) = x.new_empty(outputs), norm or (x, 0.0)
    parts = weight.parts
    before = (x, scale, x if residual is None else residual, out)  # any pointer serves where there is none
    kinds = {"NORM": norm is not None, "SILU": silu, "RESIDUAL": residual is not None, "INPUTS": inputs}
    grid = (triton.cdiv(outputs, ROWS),)
    if weight.format.name in ("int8", "fp8"):
        packed = parts["packed"].view(torch.uint8) if weight.format.name == "fp8" else parts["packed"]
        block = min(BLOCK, triton.next_power_of_2(inputs))
        _scaled_rows[grid](
            packed, parts["scale"], *before, outputs, eps,
            FP8=weight.format.name == "fp8", ROWS=ROWS, BLOCK=block, num_warps=WARPS, **kinds,
        )  # fmt: skip
    else:
        half = weight.format.group // 2
        groups = triton.next_power_of_2(max(1, min(BLOCK, inputs) // weight.format.group))
        shift = parts.get("middle", parts.get("zero", parts["scale"]))
        _scaled_groups[grid](
            parts["packed"], parts["scale"], shift, *before, outputs, eps,
            MIDDLE="middle" in parts, ZERO="zero" in parts, HALF=half, WIDE=triton.next_power_of_2(half),
            ROWS=ROWS, GROUPS=groups, num_warps=WARPS, **kinds,
        )  # fmt: skip
    return out


@triton.jit
def _scaled_rows(
    packed, scales, x, norm, residual, out, outputs, eps, FP8: tl.constexpr, INPUTS: tl.constexpr,
    NORM: tl.constexpr, SILU: tl.constexpr, RESIDUAL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    own = row < outputs
    first = packed + row.to(tl.int64)[:, None] * INPUTS
    second = first + tl.cast(outputs, tl.int64) * INPUTS
    sums = tl.zeros([ROWS, BLOCK], tl.float32)
    ups = tl.zeros([ROWS, BLOCK], tl.float32)
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, INPUTS, BLOCK):
        column = start + tl.arange(0, BLOCK)
        there = column < INPUTS
        mask = own[:, None] & there[None, :]
        value = tl.load(x + column, mask=there, other=0.0).to(tl.float32)
        if NORM:
            squares += value * value
            value *= tl.load(norm + column, mask=there, other=0.0).to(tl.float32)
        sums += _number(tl.load(first + column[None, :], mask=mask, other=0), FP8) * value[None, :]
        if SILU:
            ups += _number(tl.load(second + column[None, :], mask=mask, other=0), FP8) * value[None, :]
    y = tl.sum(sums, 1) * tl.load(scales + row, mask=own, other=0.0).to(tl.float32)
    up = tl.sum(ups, 1)
    if SILU:
        up *= tl.load(scales + outputs + row, mask=own, other=0.0).to(tl.float32)
    finish(y, up, tl.sum(squares, 0), residual, out, row, own, eps, INPUTS, NORM, SILU, RESIDUAL)


@triton.jit
def _scaled_groups(
    packed, scales, shifts, x, norm, residual, out, outputs, eps, MIDDLE: tl.constexpr, ZERO: tl.constexpr,
    HALF: tl.constexpr, WIDE: tl.constexpr, INPUTS: tl.constexpr, NORM: tl.constexpr, SILU: tl.constexpr,
    RESIDUAL: tl.constexpr, ROWS: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    own = row < outputs
    sums = tl.zeros([ROWS, GROUPS, WIDE], tl.float32)
    ups = tl.zeros([ROWS, GROUPS, WIDE], tl.float32)
    squares = tl.zeros([GROUPS, WIDE], tl.float32)
    each = tl.arange(0, WIDE)
    for start in range(0, INPUTS // (2 * HALF), GROUPS):
        group = start + tl.arange(0, GROUPS)
        there = (group < INPUTS // (2 * HALF))[:, None] & (each < HALF)[None, :]
        column = group[:, None] * (2 * HALF) + each[None, :]
        low = tl.load(x + column, mask=there, other=0.0).to(tl.float32)
        high = tl.load(x + HALF + column, mask=there, other=0.0).to(tl.float32)
        if NORM:
            squares += low * low + high * high
            low *= tl.load(norm + column, mask=there, other=0.0).to(tl.float32)
            high *= tl.load(norm + HALF + column, mask=there, other=0.0).to(tl.float32)
        sums += _groups(
            packed, scales, shifts, row, own, group, there, low, high, MIDDLE, ZERO, HALF, INPUTS, WIDE
        )
        if SILU:
            below = row + outputs
            ups += _groups(
                packed, scales, shifts, below, own, group, there, low, high, MIDDLE, ZERO, HALF, INPUTS, WIDE
            )
    y, up = tl.sum(tl.sum(sums, 2), 1), tl.sum(tl.sum(ups, 2), 1)
    total = tl.sum(tl.sum(squares, 1), 0)
    finish(y, up, total, residual, out, row, own, eps, INPUTS, NORM, SILU, RESIDUAL)


@triton.jit
def _groups(
    packed, scales, shifts, row, own, group, there, low, high,
    MIDDLE: tl.constexpr, ZERO: tl.constexpr, HALF: tl.constexpr, INPUTS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """[ROWS, GROUPS, WIDE] products of a few groups of rows `row` with the two halves of x."""
    place = row.to(tl.int64)[:, None, None]
    byte = group[:, None] * HALF + tl.arange(0, WIDE)[None, :]
    mask = own[:, None, None] & there[None, :, :]
    both = tl.load(packed + place * (INPUTS // 2) + byte[None, :, :], mask=mask, other=0).to(tl.int32)
    # A float32 from 2²³ on counts in ones, so or-ing a small number into its bits adds it; a conversion of
    # integers is four times as slow.
    down, up = (both & 15) | 0x4B000000, (both >> 4) | 0x4B000000
    centre = 8388616.0  # 2²³ + 8
    known = own[:, None, None] & (group < INPUTS // (2 * HALF))[None, :, None]
    number = place * (INPUTS // (2 * HALF)) + group[None, :, None]
    scale = tl.load(scales + number, mask=known, other=0.0).to(tl.float32)
    if ZERO:
        centre = tl.load(shifts + number, mask=known, other=0).to(tl.float32) + 8388608.0
    first, second = down.to(tl.float32, bitcast=True) - centre, up.to(tl.float32, bitcast=True) - centre
    products = (first * low[None, :, :] + second * high[None, :, :]) * scale
    if MIDDLE:
        middle = tl.load(shifts + number, mask=known, other=0.0).to(tl.float32)
        products += middle * (low + high)[None, :, :]
    return products


@triton.jit
def _number(stored, FP8: tl.constexpr):
    """float32 of int8, or of the bits of an e4m3: its exponent and mantissa are a float32's, 120 too low."""
    if not FP8:
        return stored.to(tl.float32)
    bits = stored.to(tl.int32)
    size = ((bits & 0x7F) << 20).to(tl.float32, bitcast=True) * 1.329227995784916e36  # 2¹²⁰
    return tl.where(bits >= 128, -size, size)
