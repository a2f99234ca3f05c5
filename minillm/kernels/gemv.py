"""One row times a matrix, with what comes before and after it: the products that decoding consists of.

A GPU reads each weight once whatever is done with it, so the norm of the row, the activation of the result
and the sum with the residual cost nothing here; as kernels of their own they cost more than their arithmetic.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from minillm.kernels.early import early, gdc_launch_dependents, gdc_wait
from minillm.norm import rms_norm


class Tile(NamedTuple):
    """What one program computes."""

    rows: int  # outputs
    block: int  # inputs that it reads together
    warps: int


def tile(inputs: int, norm: bool, silu: bool) -> Tile:
    """The fastest on an H200 among 18, for products of 1.7B and 8B and what is fused with each.

    Where several rows share the normed x it is worth reading more of them; those that only add a residual are
    few, and one row a program gives the most programs.
    """
    width = triton.next_power_of_2(inputs)
    if silu:
        block = min(width, 4096)
        return Tile(4096 // block, block, 4)
    if norm:
        block = max(256, min(width // 2, 2048))
        return Tile(4, block, block // 256)
    return Tile(1, min(width, 2048), 4)


def gemv_reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    norm: tuple[torch.Tensor, float] | None = None,
    silu: bool = False,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    """residual + act(rms_norm(x) · weightᵀ); `x` [in], `weight` [out, in] → [out].

    `norm`: weight [in] and eps; `silu`: rows come as gate and up, [2 · out, in], and give silu(gate) · up.
    """
    y = F.linear(x if norm is None else rms_norm(x, *norm), weight)
    if silu:
        gate, up = y.chunk(2, -1)
        y = F.silu(gate) * up
    return y if residual is None else residual + y


def gemv(
    x: torch.Tensor,
    weight: torch.Tensor,
    norm: tuple[torch.Tensor, float] | None = None,
    silu: bool = False,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    """The same by the kernel, rounded once at the end; all contiguous."""
    outputs, inputs = weight.shape[0] // (1 + silu), weight.shape[1]
    out, pdl = x.new_empty(outputs), early(x.device)
    scale, eps = norm or (x, 0.0)  # any pointer serves where there is none
    rows, block, warps = tile(inputs, norm is not None, silu)
    _gemv[(triton.cdiv(outputs, rows),)](
        x, weight, scale, x if residual is None else residual, out, outputs, eps,
        INPUTS=inputs, NORM=norm is not None, SILU=silu, RESIDUAL=residual is not None,
        ROWS=rows, BLOCK=block, PDL=pdl, num_warps=warps, launch_pdl=pdl,
    )  # fmt: skip
    return out


@triton.jit
def _gemv(
    x, weight, scale, residual, out, outputs, eps, INPUTS: tl.constexpr, NORM: tl.constexpr,
    SILU: tl.constexpr, RESIDUAL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_launch_dependents()
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    own = row < outputs
    first = weight + row.to(tl.int64)[:, None] * INPUTS
    second = first + tl.cast(outputs, tl.int64) * INPUTS
    sums = tl.zeros([ROWS, BLOCK], tl.float32)
    ups = tl.zeros([ROWS, BLOCK], tl.float32)
    squares = tl.zeros([BLOCK], tl.float32)
    column = tl.arange(0, BLOCK)
    part, also = _weights(first, second, column, own, INPUTS, SILU)
    if PDL:  # weights lie there all the time, x comes from the kernel before
        gdc_wait()
    sums, ups, squares = _add(sums, ups, squares, part, also, x, scale, column, INPUTS, NORM, SILU)
    for start in range(BLOCK, INPUTS, BLOCK):
        column = start + tl.arange(0, BLOCK)
        part, also = _weights(first, second, column, own, INPUTS, SILU)
        sums, ups, squares = _add(sums, ups, squares, part, also, x, scale, column, INPUTS, NORM, SILU)
    y, up = tl.sum(sums, 1), tl.sum(ups, 1)
    finish(y, up, tl.sum(squares, 0), residual, out, row, own, eps, INPUTS, NORM, SILU, RESIDUAL)


@triton.jit
def _weights(first, second, column, own, INPUTS: tl.constexpr, SILU: tl.constexpr):
    """[ROWS, BLOCK] of the rows at `first` and, for SILU, of those at `second`."""
    mask = own[:, None] & (column < INPUTS)[None, :]
    part = tl.load(first + column[None, :], mask=mask, other=0.0)
    also = part
    if SILU:
        also = tl.load(second + column[None, :], mask=mask, other=0.0)
    return part, also


@triton.jit
def _add(
    sums, ups, squares, part, also, x, scale, column,
    INPUTS: tl.constexpr, NORM: tl.constexpr, SILU: tl.constexpr,
):  # fmt: skip
    """The sums with the products of these weights and their columns of x."""
    there = column < INPUTS
    value = tl.load(x + column, mask=there, other=0.0).to(tl.float32)
    if NORM:
        squares += value * value
        value *= tl.load(scale + column, mask=there, other=0.0).to(tl.float32)
    sums += part.to(tl.float32) * value[None, :]
    if SILU:
        ups += also.to(tl.float32) * value[None, :]
    return sums, ups, squares


@triton.jit
def finish(
    y, up, squares, residual, out, row, own, eps,
    INPUTS: tl.constexpr, NORM: tl.constexpr, SILU: tl.constexpr, RESIDUAL: tl.constexpr,
):  # fmt: skip
    """From sums of rows (`up`: of their second halves) to stored results."""
    if NORM:  # the scale of x is one number, so it can come after the product
        inverse = tl.rsqrt(squares / INPUTS + eps)
        y *= inverse
        up *= inverse
    if SILU:
        y = y * tl.sigmoid(y) * up
    if RESIDUAL:
        y += tl.load(residual + row, mask=own, other=0.0).to(tl.float32)
    tl.store(out + row, y.to(out.dtype.element_ty), mask=own)
