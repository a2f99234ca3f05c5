"""Products with packed matrices against expanded ones in float64, through the interpreter or on a GPU."""

import pytest
import torch

pytest.importorskip("triton", reason="Triton is made for Linux only")

from minillm.kernels import expand, gemv_packed
from minillm.quant import codec
from minillm.quant.formats import FP8, INT4, INT4_SYM, INT8, int4_format
from minillm.quant.weight import PackedWeight

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = {torch.float32: 3e-5, torch.float16: 4e-3}
ZEROS = int4_format(32, "zero")


def packed(format, rows: int, columns: int, dtype: torch.dtype) -> PackedWeight:
    """A random matrix in `format`; one with zero points is made of random parts: nothing quantises to it."""
    weight = torch.randn(rows, columns, device=DEVICE) / columns**0.5
    if format is ZEROS:
        parts = codec.empty(format, rows, columns, DEVICE)
        parts["packed"].random_(0, 256)
        parts["zero"].random_(0, 16)
        parts["scale"].uniform_(0.5, 1).div_(8 * columns**0.5)
    else:
        parts = codec.quantise(format, weight)
    return PackedWeight("weight", format, parts, columns, dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("format", [INT8, FP8, INT4, INT4_SYM, ZEROS], ids=lambda format: format.name)
@pytest.mark.parametrize(("rows", "columns"), [(37, 256), (8, 1152), (4, 2304)])
@pytest.mark.parametrize(("norm", "silu", "residual"), [(0, 0, 0), (1, 1, 0), (1, 0, 1)])
def test_row_times_packed_matrix(dtype, format, rows, columns, norm, silu, residual):
    torch.manual_seed(rows)
    x, scale = (torch.randn(columns).to(DEVICE, dtype) for _ in range(2))
    weight, extra = packed(format, rows * (1 + silu), columns, dtype), torch.randn(rows).to(DEVICE, dtype)
    arguments = (scale, 1e-6) if norm else None, bool(silu), extra if residual else None
    found = gemv_packed.gemv_packed(x, weight, *arguments)
    wide = (scale.double(), 1e-6) if norm else None, bool(silu), extra.double() if residual else None
    expected = gemv_packed.packed_reference(x.double(), weight, *wide)
    assert found.dtype == dtype
    assert (found - expected).abs().max() < TOLERANCE[dtype] * max(1, expected.abs().max())


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("format", [INT4, INT4_SYM, ZEROS], ids=lambda format: format.name)
@pytest.mark.parametrize(("rows", "columns"), [(37, 256), (8, 1152), (1, 128)])
def test_expanding_gives_the_numbers_of_the_reference(dtype, format, rows, columns):
    weight = packed(format, rows, columns, dtype)
    found, expected = expand.expand(weight, dtype), weight.dense(dtype)
    # A GPU multiplies and adds at once, with one rounding less.
    assert torch.equal(found, expected) or (found - expected).abs().max() < 1e-6


def test_every_byte_of_fp8_is_the_number_that_pytorch_says():
    parts = codec.empty(FP8, 256, 8, DEVICE)
    parts["packed"].view(torch.uint8).copy_(torch.arange(256, dtype=torch.uint8)[:, None])
    parts["scale"].fill_(1.0)
    numbers = parts["packed"].float()
    weight, real = PackedWeight("weight", FP8, parts, 8, torch.float32), ~numbers.isnan()
    parts["packed"].view(torch.uint8)[~real] = 0
    assert real.sum() == 8 * 254
    for column in range(8):  # where a byte lies in its long
        found = gemv_packed.gemv_packed(torch.eye(8, device=DEVICE)[column], weight)
        assert torch.equal(found[real[:, column]], numbers[real[:, column], column])
