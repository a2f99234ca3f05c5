"""`gemv` for a matrix that is stored quantised: the row meets the packed bytes, none is expanded in memory.

What bounds this is instructions: an H200 reads an int4 weight in the time of four. So the bytes are read as
words of 32 bits, and a stored number becomes a float by a shift that words share and one logic operation:
n or-ed into the mantissa of 2ᶜ is the float 2ᶜ + n. All the 2ᶜ, and the 8 that four bits count from, leave by
one subtraction a word, of a sum over x that a program computes once for all its rows.

int8 and fp8 have one scale a row, which comes after the sum; four bits (layout: `quant/int4.py`) one a group,
which comes after each chunk's products.
"""

import torch
import triton
import triton.language as tl

from minillm.kernels.early import early, gdc_launch_dependents, gdc_wait
from minillm.kernels.gemv import Tile, finish, gemv_reference
from minillm.quant.weight import PackedWeight


def tile(inputs: int, columns: int, silu: bool) -> Tile:
    """Four rows share x, a thread has a chunk of each; `block` counts chunks of 16 bytes, `columns` each.

    The fastest on an H200 among 11, or nearly: small programs, so that one computes while another reads.
    """
    chunks = triton.next_power_of_2(triton.cdiv(inputs, columns))
    block = min(chunks, 32 if silu else 64 if columns == 32 else 128)
    return Tile(4, block, max(1, block // 32))


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
    if inputs % 4 or (four and group % 32):  # rows of whole words, groups of whole chunks
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
    sums = tl.zeros([ROWS, BLOCK], tl.float32)
    ups = tl.zeros([ROWS, BLOCK], tl.float32)
    squares = tl.zeros([BLOCK, 4], tl.float32)
    for start in tl.static_range(0, INPUTS, BLOCK * WIDTH):
        gate = _read(packed, scales, shifts, row, start // WIDTH, KIND, GROUP, MIDDLE or ZERO, INPUTS, BLOCK)
        also = gate
        if SILU:
            below = row + outputs
            also = _read(
                packed, scales, shifts, below, start // WIDTH, KIND, GROUP, MIDDLE or ZERO, INPUTS, BLOCK
            )
        if PDL and start == 0:  # weights lie there all the time, x comes from the kernel before
            gdc_wait()
        low, high, squares = _columns(x, norm, squares, start // WIDTH, KIND, GROUP, INPUTS, NORM, BLOCK)
        sums = _add(sums, gate, low, high, KIND, MIDDLE, ZERO)
        if SILU:
            ups = _add(ups, also, low, high, KIND, MIDDLE, ZERO)
    y, up = tl.sum(sums, 1), tl.sum(ups, 1)
    if KIND != "int4":
        y *= tl.load(scales + row).to(tl.float32)
        if SILU:
            up *= tl.load(scales + outputs + row).to(tl.float32)
    if KIND == "fp8":  # see `_columns`
        y *= 1.152921504606847e18
        up *= 1.152921504606847e18
    total = tl.sum(tl.sum(squares, 1), 0)
    finish(y, up, total, residual, out, row, own, eps, INPUTS, NORM, SILU, RESIDUAL)


@triton.jit
def _read(
    packed, scales, shifts, row, start, KIND: tl.constexpr, GROUP: tl.constexpr, SHIFT: tl.constexpr,
    INPUTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK chunks of four words from chunk `start` of rows `row`, and the groups' scales and shifts."""
    WORDS: tl.constexpr = INPUTS // (8 if KIND == "int4" else 4)
    chunk = start + tl.arange(0, BLOCK)
    word = chunk[:, None] * 4 + tl.arange(0, 4)[None, :]
    place = row.to(tl.int64)[:, None, None]
    at = packed.to(tl.pointer_type(tl.int32), bitcast=True) + place * WORDS + word[None, :, :]
    if WORDS % (BLOCK * 4) == 0:  # noqa: SIM108
        words = tl.load(at)
    else:
        words = tl.load(at, mask=(word < WORDS)[None, :, :], other=0)
    scale, shift = words, words
    if KIND == "int4":
        group = tl.minimum(chunk * 32 // GROUP, INPUTS // GROUP - 1)
        number = row.to(tl.int64)[:, None] * (INPUTS // GROUP) + group[None, :]
        scale = tl.load(scales + number)
        shift = tl.load(shifts + number) if SHIFT else scale
    return words, scale, shift


@triton.jit
def _columns(
    x, norm, squares, start, KIND: tl.constexpr, GROUP: tl.constexpr, INPUTS: tl.constexpr,
    NORM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The x that the four low numbers of each word meet, and the four high ones if it has eight."""
    chunk, each = start + tl.arange(0, BLOCK)[:, None], tl.arange(0, 4)[None, :]
    if KIND == "int4":
        column = chunk * 32 // GROUP * GROUP + chunk * 32 % GROUP // 2 + each * 4
    else:
        column = chunk * 16 + each * 4
    low = _four(x, column, INPUTS)
    high = low
    if KIND == "int4":
        high = _four(x, column + GROUP // 2, INPUTS)
    if NORM:
        squares += low[0] * low[0] + low[1] * low[1] + low[2] * low[2] + low[3] * low[3]
        low = _times(low, _four(norm, column, INPUTS))
        if KIND == "int4":
            squares += high[0] * high[0] + high[1] * high[1] + high[2] * high[2] + high[3] * high[3]
            high = _times(high, _four(norm, column + GROUP // 2, INPUTS))
    if (
        KIND == "fp8"
    ):  # its floats are 2¹²⁰ too small: half of that here, half at the end, since x may be large
        half = 1.152921504606847e18
        low = (low[0] * half, low[1] * half, low[2] * half, low[3] * half)
    return low, high, squares


@triton.jit
def _four(x, column, INPUTS: tl.constexpr):
    """float32 of x at `column` and the next three, by one load of 64 bits if that is what they fill."""
    there = column < INPUTS
    kind: tl.constexpr = x.dtype.element_ty
    if kind.primitive_bitwidth == 16:
        both = tl.load(x.to(tl.pointer_type(tl.int64), bitcast=True) + column // 4, mask=there, other=0)
        a = both.to(tl.int16).to(kind, bitcast=True)
        b = (both >> 16).to(tl.int16).to(kind, bitcast=True)
        c = (both >> 32).to(tl.int16).to(kind, bitcast=True)
        d = (both >> 48).to(tl.int16).to(kind, bitcast=True)
    else:
        a = tl.load(x + column, mask=there, other=0.0)
        b = tl.load(x + column + 1, mask=there, other=0.0)
        c = tl.load(x + column + 2, mask=there, other=0.0)
        d = tl.load(x + column + 3, mask=there, other=0.0)
    return a.to(tl.float32), b.to(tl.float32), c.to(tl.float32), d.to(tl.float32)


@triton.jit
def _times(a, b):
    return a[0] * b[0], a[1] * b[1], a[2] * b[2], a[3] * b[3]


@triton.jit
def _add(sums, read, low, high, KIND: tl.constexpr, MIDDLE: tl.constexpr, ZERO: tl.constexpr):
    """The sums with the products of these words and their columns."""
    words, scale, shift = read
    # A zero that the compiler does not know: with 2ᶜ in a register it masks and joins in one operation.
    zero = tl.program_id(1)
    all_low = low[0] + low[1] + low[2] + low[3]
    if KIND == "fp8":
        dot = _float8(words << 24) * low[0][None, :, :]
        dot += _float8(words << 16) * low[1][None, :, :]
        dot += _float8(words << 8) * low[2][None, :, :]
        dot += _float8(words) * low[3][None, :, :]
    elif KIND == "int8":  # its sign bit turned, a byte is the number + 128; the shifts bring it to bit 15
        dot = -(384.0 * all_low)[None, :, :]
        dot += _or(words << 15, 0x7F8000, 0x43C00000 - zero) * low[0][None, :, :]
        dot += _or(words << 7, 0x7F8000, 0x43C00000 - zero) * low[1][None, :, :]
        dot += _or(words >> 1, 0x7F8000, 0x43C00000 - zero) * low[2][None, :, :]
        dot += _or(words >> 9, 0x7F8000, 0x43C00000 - zero) * low[3][None, :, :]
    else:  # bytes of a low and a high number, brought to bit 15, 16 or 19: to 2⁸ + n, 2⁷ + n or 2⁴ + n
        total = all_low + (high[0] + high[1] + high[2] + high[3])
        extra = 256 * (low[0] + low[1] + high[2]) + 128 * low[2] + 16 * (high[0] + high[1] + low[3] + high[3])
        dot = -(extra if ZERO else extra + 8 * total)[None, :, :]
        dot += _or(words << 15, 15 << 15, 0x43800000 - zero) * low[0][None, :, :]
        dot += _or(words << 15, 15 << 19, 0x41800000 - zero) * high[0][None, :, :]
        dot += _or(words << 7, 15 << 15, 0x43800000 - zero) * low[1][None, :, :]
        dot += _or(words << 7, 15 << 19, 0x41800000 - zero) * high[1][None, :, :]
        dot += _or(words, 15 << 16, 0x43000000 - zero) * low[2][None, :, :]
        dot += _or(words >> 5, 15 << 15, 0x43800000 - zero) * high[2][None, :, :]
        dot += _or(words >> 5, 15 << 19, 0x41800000 - zero) * low[3][None, :, :]
        dot += _or(words >> 9, 15 << 19, 0x41800000 - zero) * high[3][None, :, :]
    part = tl.sum(dot, 2)  # of a chunk: a thread has it whole
    if KIND == "int4":
        if ZERO:
            part -= shift.to(tl.float32) * tl.sum(total, 1)[None, :]
        part *= scale.to(tl.float32)
        if MIDDLE:
            part += shift.to(tl.float32) * tl.sum(total, 1)[None, :]
    return sums + part


@triton.jit
def _or(words, MASK: tl.constexpr, bits):
    """Some bits of words in place of, or against, those of a float."""
    return ((words & MASK) ^ bits).to(tl.float32, bitcast=True)


@triton.jit
def _float8(words):
    """2⁻¹²⁰ times the e4m3 in the upper byte: its exponent and mantissa are a float32's, 120 too low."""
    return ((words >> 4) & -0x78100000).to(tl.float32, bitcast=True)
