"""The row that a packed matrix meets: its columns in the order of the numbers in memory, normed and scaled.

`gemv_packed` takes a number for the float that its bits are, too small by a power of two that depends on
where in its word it lies; the column that it meets is made too large here, once for all rows of a program.
"""

import triton
import triton.language as tl


@triton.jit
def columns_of(
    x, norm, squares, start, KIND: tl.constexpr, GROUP: tl.constexpr, INPUTS: tl.constexpr,
    NORM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The x that BLOCK chunks meet, four a word, too large; each chunk's sum; `squares` with theirs."""
    chunk = start + tl.arange(0, BLOCK)[None, :]
    total = tl.zeros([1, BLOCK], tl.float32)
    if KIND == "int4":  # a byte holds a number of each half of its group
        column, half = chunk * 32 // GROUP * GROUP + chunk * 32 % GROUP // 2, GROUP // 2
        a, b, squares, total = _eight(x, norm, column, squares, total, INPUTS, NORM, BLOCK)
        c, d, squares, total = _eight(x, norm, column + 8, squares, total, INPUTS, NORM, BLOCK)
        e, f, squares, total = _eight(x, norm, column + half, squares, total, INPUTS, NORM, BLOCK)
        g, h, squares, total = _eight(x, norm, column + half + 8, squares, total, INPUTS, NORM, BLOCK)
        columns = _low(a), _low(b), _low(c), _low(d), _high(e), _high(f), _high(g), _high(h)
    else:
        a, b, squares, total = _eight(x, norm, chunk * 16, squares, total, INPUTS, NORM, BLOCK)
        c, d, squares, total = _eight(x, norm, chunk * 16 + 8, squares, total, INPUTS, NORM, BLOCK)
        if KIND == "int8":
            columns = _bytes(a), _bytes(b), _bytes(c), _bytes(d)
        else:
            columns = _floats8(a), _floats8(b), _floats8(c), _floats8(d)
    return columns, total * 2.0**-59, squares  # as the products


@triton.jit
def _eight(
    x, norm, column, squares, total, INPUTS: tl.constexpr, NORM: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Eight columns from `column` on, two times four, times the norm; `squares` and `total` with them."""
    a, b = _load(x, column, INPUTS, BLOCK)
    if NORM:
        squares += a[0] * a[0] + a[1] * a[1] + a[2] * a[2] + a[3] * a[3]
        squares += b[0] * b[0] + b[1] * b[1] + b[2] * b[2] + b[3] * b[3]
        c, d = _load(norm, column, INPUTS, BLOCK)
        a, b = _times(a, c), _times(b, d)
    return a, b, squares, total + (((a[0] + a[1]) + (a[2] + a[3])) + ((b[0] + b[1]) + (b[2] + b[3])))


@triton.jit
def _load(x, column, INPUTS: tl.constexpr, BLOCK: tl.constexpr):
    """float32 of eight columns as two times four, by one load of 128 bits if that is what they fill."""
    place = column[:, :, None] + (tl.arange(0, 2) * 4)[None, None, :]
    there = place < INPUTS
    kind: tl.constexpr = x.dtype.element_ty
    if kind.primitive_bitwidth == 16:
        longs = tl.load(x.to(tl.pointer_type(tl.int64), bitcast=True) + place // 4, mask=there, other=0)
        low, high = tl.split(longs)
        eight = _four(low, kind), _four(high, kind)
    else:
        a, b = tl.split(tl.load(x + place, mask=there, other=0.0))
        c, d = tl.split(tl.load(x + place + 1, mask=there, other=0.0))
        e, f = tl.split(tl.load(x + place + 2, mask=there, other=0.0))
        g, h = tl.split(tl.load(x + place + 3, mask=there, other=0.0))
        eight = (a, c, e, g), (b, d, f, h)
    return eight


@triton.jit
def _four(longs, KIND: tl.constexpr):
    """float32 of the four numbers of 16 bits in each long."""
    low, high = longs.to(tl.int32), (longs >> 32).to(tl.int32)
    return _first(low, KIND), _second(low, KIND), _first(high, KIND), _second(high, KIND)


@triton.jit
def _first(pair, KIND: tl.constexpr):
    if KIND == tl.bfloat16:  # noqa: SIM300 - the upper half of a float32
        number = (pair << 16).to(tl.float32, bitcast=True)
    else:
        number = pair.to(tl.int16).to(KIND, bitcast=True).to(tl.float32)
    return number


@triton.jit
def _second(pair, KIND: tl.constexpr):
    if KIND == tl.bfloat16:  # noqa: SIM300
        number = (pair & -65536).to(tl.float32, bitcast=True)
    else:
        number = (pair >> 16).to(tl.int16).to(KIND, bitcast=True).to(tl.float32)
    return number


@triton.jit
def _times(a, b):
    return a[0] * b[0], a[1] * b[1], a[2] * b[2], a[3] * b[3]


@triton.jit
def _low(x):
    """For the low numbers of a word's bytes: at bits 0, 8, 16 and, shifted by `_nibbles`, 12."""
    return _times(x, (2.0**90, 2.0**82, 2.0**74, 2.0**78))


@triton.jit
def _high(x):
    """For the high ones: at bits 4, 12, 8 and 16."""
    return _times(x, (2.0**86, 2.0**78, 2.0**82, 2.0**74))


@triton.jit
def _bytes(x):
    """For bytes, two of them shifted: at bits 0, 8, 0, 8."""
    return _times(x, (2.0**90, 2.0**82, 2.0**90, 2.0**82))


@triton.jit
def _floats8(x):
    """For e4m3 as `_float8` leaves it, 2¹²⁰ too small; 2⁵⁹ are missing as everywhere."""
    return _times(x, (2.0**61, 2.0**61, 2.0**61, 2.0**61))
