"""`gemv` for a matrix that is stored quantised: the row meets the packed bytes, none is expanded in memory.

What bounds this is instructions: an H200 reads an int4 weight in the time of four. So each number is cut out
of its word of 32 bits by one logic operation and taken for a float32 as it is: n at bit p is n · 2ᵖ⁻¹⁴⁹. A
GPU multiplies such small floats as fast as others. The column of x that n meets is made 2⁹⁰⁻ᵖ times too large
(`packed_row.py`), once for all rows, and what is missing, 2⁵⁹, comes to each sum at the end.

int8 and fp8 have one scale a row, which comes after the sum; four bits (layout: `quant/int4.py`) one a group,
which comes after each chunk's products.
"""

import torch
import triton
import triton.language as tl

from minillm.kernels.early import early, gdc_launch_dependents, gdc_wait
from minillm.kernels.gemv import Tile, finish, gemv_reference
from minillm.kernels.packed_row import columns_of
from minillm.quant.weight import PackedWeight


def tile(inputs: int, columns: int, silu: bool) -> Tile:
    """Rows share x, a thread has one chunk of each at a time; `block` counts chunks, of `columns` each.

    The fastest on an H200 among 7, or nearly.
    """
    block = min(triton.next_power_of_2(triton.cdiv(inputs, columns)), 128)
    return Tile(8 if columns == 32 and not silu else 4, block, max(1, block // 32))


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
    """The same by the kernel: residual + act(rms_norm(x) · weightᵀ), `x` [in] → [out], rounded once."""
    outputs, inputs = weight.shape[0] // (1 + silu), weight.shape[1]
    parts, name = weight.parts, weight.format.name
    four = name not in ("int8", "fp8")
    group = weight.format.group if four else inputs
    if inputs % (16 if four else 8) or (four and group % 32):  # rows of whole longs, groups of whole chunks
        return packed_reference(x, weight, norm, silu, residual)
    packed = parts["packed"].view(torch.uint8) if name == "fp8" else parts["packed"]
    shift = parts.get("middle", parts.get("zero", parts["scale"]))
    out, pdl = x.new_empty(outputs), early(x.device)
    scale, eps = norm or (x, 0.0)  # any pointer serves where there is none
    rows, block, warps = tile(inputs, 32 if four else 16, silu)
    _gemv_packed[(triton.cdiv(outputs, rows),)](
        packed, parts["scale"], shift, x, scale, x if residual is None else residual, out, outputs, eps,
        KIND="int4" if four else name, GROUP=group, MIDDLE="middle" in parts, ZERO="zero" in parts,
        INPUTS=inputs, NORM=norm is not None, SILU=silu, RESIDUAL=residual is not None,
        ROWS=rows, BLOCK=block, PDL=pdl, num_warps=warps, launch_pdl=pdl,
    )  # fmt: skip
    return out


@triton.jit
def _gemv_packed(
    packed, scales, shifts, x, norm, residual, out, outputs, eps, KIND: tl.constexpr, GROUP: tl.constexpr,
    MIDDLE: tl.constexpr, ZERO: tl.constexpr, INPUTS: tl.constexpr, NORM: tl.constexpr, SILU: tl.constexpr,
    RESIDUAL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_launch_dependents()
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    own = row < outputs
    row = tl.minimum(row, outputs - 1)  # the last program repeats a row: cheaper than a mask for every word
    WIDTH: tl.constexpr = 32 if KIND == "int4" else 16  # columns of a chunk
    SHIFT: tl.constexpr = MIDDLE or ZERO
    sums = tl.zeros([ROWS, BLOCK], tl.float32)
    ups = tl.zeros([ROWS, BLOCK], tl.float32)
    squares = tl.zeros([1, BLOCK], tl.float32)
    gate = _read(packed, scales, shifts, row, 0, KIND, GROUP, SHIFT, INPUTS, BLOCK)
    also = gate
    if SILU:
        also = _read(packed, scales, shifts, row + outputs, 0, KIND, GROUP, SHIFT, INPUTS, BLOCK)
    if PDL:  # weights lie there all the time, x comes from the kernel before
        gdc_wait()
    columns, total, squares = columns_of(x, norm, squares, 0, KIND, GROUP, INPUTS, NORM, BLOCK)
    sums = _add(sums, gate, columns, total, KIND, MIDDLE, ZERO)
    if SILU:
        ups = _add(ups, also, columns, total, KIND, MIDDLE, ZERO)
    for start in range(BLOCK, (INPUTS + WIDTH - 1) // WIDTH, BLOCK):
        gate = _read(packed, scales, shifts, row, start, KIND, GROUP, SHIFT, INPUTS, BLOCK)
        if SILU:
            also = _read(packed, scales, shifts, row + outputs, start, KIND, GROUP, SHIFT, INPUTS, BLOCK)
        columns, total, squares = columns_of(x, norm, squares, start, KIND, GROUP, INPUTS, NORM, BLOCK)
        sums = _add(sums, gate, columns, total, KIND, MIDDLE, ZERO)
        if SILU:
            ups = _add(ups, also, columns, total, KIND, MIDDLE, ZERO)
    y, up = tl.sum(sums, 1) * 2.0**59, tl.sum(ups, 1) * 2.0**59
    if KIND != "int4":
        y *= tl.load(scales + row).to(tl.float32)
        if SILU:
            up *= tl.load(scales + outputs + row).to(tl.float32)
    finish(y, up, tl.sum(squares, 1), residual, out, row, own, eps, INPUTS, NORM, SILU, RESIDUAL)


@triton.jit
def _read(
    packed, scales, shifts, row, start, KIND: tl.constexpr, GROUP: tl.constexpr, SHIFT: tl.constexpr,
    INPUTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK chunks, each four words, from chunk `start` of rows on, and their groups' scales and shifts."""
    LONGS: tl.constexpr = INPUTS // (16 if KIND == "int4" else 8)
    place = start * 2 + tl.arange(0, 2 * BLOCK)[None, :]
    at = packed.to(tl.pointer_type(tl.int64), bitcast=True) + row.to(tl.int64)[:, None] * LONGS + place
    if LONGS % (2 * BLOCK) == 0:  # noqa: SIM108
        longs = tl.load(at)
    else:
        longs = tl.load(at, mask=place < LONGS, other=0)
    # Read flat and split, they lie among the threads as x does: nothing has to move for a product.
    low, high = tl.split(tl.reshape(longs, [row.shape[0], BLOCK, 2]))
    scale, shift = low, low
    if KIND == "int4":
        chunk = start + tl.arange(0, BLOCK)[None, :]
        group = tl.minimum(chunk * 32 // GROUP, INPUTS // GROUP - 1)
        number = row.to(tl.int64)[:, None] * (INPUTS // GROUP) + group
        scale = tl.load(scales + number)
        shift = tl.load(shifts + number) if SHIFT else scale
    a, b, c, d = low.to(tl.int32), (low >> 32).to(tl.int32), high.to(tl.int32), (high >> 32).to(tl.int32)
    return a, b, c, d, scale, shift


@triton.jit
def _add(sums, read, columns, total, KIND: tl.constexpr, MIDDLE: tl.constexpr, ZERO: tl.constexpr):
    """The sums with the products of these chunks and their columns."""
    if KIND == "int4":
        sums += _products4(read, columns, total, MIDDLE, ZERO)
    else:
        sums = _products8(sums, read, columns, total, KIND)
    return sums


@triton.jit
def _products8(sums, read, x, total, KIND: tl.constexpr):
    if KIND == "int8":  # its sign bit turned, a byte is the number + 128
        sums -= 128 * total
    for i in tl.static_range(4):
        word = read[i]
        if KIND == "int8":
            word ^= -0x7F7F7F80
            sums += _cut(word, 0xFF) * x[i][0]
            sums += _cut(word, 0xFF00) * x[i][1]
            sums += _cut(word >> 16, 0xFF) * x[i][2]
            sums += _cut(word >> 16, 0xFF00) * x[i][3]
        else:
            sums += _float8(word << 24) * x[i][0]
            sums += _float8(word << 16) * x[i][1]
            sums += _float8(word << 8) * x[i][2]
            sums += _float8(word) * x[i][3]
    return sums


@triton.jit
def _products4(read, x, total, MIDDLE: tl.constexpr, ZERO: tl.constexpr):
    scale, shift = read[4].to(tl.float32), read[5].to(tl.float32)
    sums = -(shift if ZERO else 8.0) * total
    for i in tl.static_range(4):
        sums = _nibbles(sums, read[i], x[i], x[i + 4])
    sums *= scale
    if MIDDLE:
        sums += shift * total
    return sums


@triton.jit
def _nibbles(sums, word, low, high):
    """The sums with the products of a word's eight numbers; a mantissa has 23 bits, so three are shifted."""
    upper = word >> 12
    sums += _cut(word, 0xF) * low[0]
    sums += _cut(word, 0xF0) * high[0]
    sums += _cut(word, 0xF00) * low[1]
    sums += _cut(word, 0xF000) * high[1]
    sums += _cut(word, 0xF0000) * low[2]
    sums += _cut(upper, 0xF00) * high[2]
    sums += _cut(upper, 0xF000) * low[3]
    sums += _cut(upper, 0xF0000) * high[3]
    return sums


@triton.jit
def _cut(word, MASK: tl.constexpr):
    """Some bits of a word as a float32."""
    return (word & MASK).to(tl.float32, bitcast=True)


@triton.jit
def _float8(word):
    """2⁻¹²⁰ times the e4m3 in the upper byte: its exponent and mantissa are a float32's, 120 too low."""
    return ((word >> 4) & -0x78100000).to(tl.float32, bitcast=True)
