"""Our own formats against packing and rounding written out with Python's numbers, element by element."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minillm.errors import InputError
from minillm.flat import aligned_buffer
from minillm.geometry import ALIGNMENT
from minillm.quant import codec, cpu, int4
from minillm.quant.formats import FORMATS, FP8, INT4, INT4_SYM, INT8, int4_format

ALL = [pytest.param(format, id=name) for name, format in FORMATS.items()]
BF16 = 2**-8  # relative error of one rounding to bfloat16, at most


def weights(rows: int = 20, columns: int = 256, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * 0.02


def e4m3(byte: int) -> float:
    """The number that a byte of float8_e4m3fn is: sign, 4 bits of exponent, 3 of mantissa."""
    sign, exponent, mantissa = byte >> 7, byte >> 3 & 15, byte & 7
    value = mantissa / 8 * 2**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -value if sign else value


def expanded(format, parts) -> list[list[float]]:
    """The matrix by the documented layout, with Python's numbers."""
    packed = parts["packed"].view(torch.uint8).tolist()
    scale = parts["scale"].double().tolist()
    if format.group == 0:
        number = e4m3 if format is FP8 else lambda byte: byte - 256 if byte > 127 else byte
        return [[number(byte) * s for byte in row] for row, s in zip(packed, scale, strict=True)]
    middle = parts["middle"].double().tolist() if "middle" in parts else None
    zero = parts["zero"].tolist() if "zero" in parts else None
    half, matrix = format.group // 2, []
    for r, row in enumerate(packed):
        out = []
        for column in range(2 * len(row)):
            group, place = divmod(column, format.group)
            byte = row[group * half + place % half]
            value = byte >> 4 if place >= half else byte & 15
            shift = zero[r][group] if zero else 8
            out.append((value - shift) * scale[r][group] + (middle[r][group] if middle else 0))
        matrix.append(out)
    return matrix


@pytest.mark.parametrize("format", ALL)
def test_dequantising_is_what_the_layout_says(format):
    parts = codec.quantise(format, weights())
    ours = codec.dequantise(format, parts)
    assert ours.dtype == torch.float32
    expected = torch.tensor(expanded(format, parts), dtype=torch.float64)
    # Python computes in float64, the code in float32: one rounding a step apart.
    assert torch.allclose(ours.double(), expected, rtol=2**-22, atol=1e-9)
    assert torch.equal(codec.dequantise(format, parts, torch.bfloat16), ours.bfloat16())


def test_zeros_are_dequantised_too():
    format = int4_format(32, "zero")
    parts = codec.empty(format, 6, 96)
    generator = torch.Generator().manual_seed(1)
    parts["packed"].random_(0, 256, generator=generator)
    parts["zero"].random_(0, 17, generator=generator)
    parts["scale"].uniform_(0.001, 0.1, generator=generator)
    expected = torch.tensor(expanded(format, parts), dtype=torch.float64)
    assert torch.equal(codec.dequantise(format, parts).double(), expected)  # exact, not only close


def test_int8_error_is_at_most_half_a_step():
    weight = weights()
    error = (codec.dequantise(INT8, codec.quantise(INT8, weight)) - weight).abs()
    step = weight.abs().amax(1, keepdim=True) / 127
    assert (error <= step * 0.505).all()  # also for the largest, whatever the scale's rounding
    assert error.mean() < 0.27 * step.mean()


def test_fp8_error_is_at_most_a_sixteenth():
    weight = weights()
    parts = codec.quantise(FP8, weight)
    error = (codec.dequantise(FP8, parts) - weight).abs()
    smallest = parts["scale"][:, None] * 2**-10  # half of the smallest step
    assert (error <= weight.abs() / 16 + smallest).all()
    assert not parts["packed"].float().isnan().any()


def test_fp8_rounds_to_the_nearest_number():
    weight = weights(rows=2)
    parts = codec.quantise(FP8, weight)
    numbers = torch.tensor([e4m3(byte) for byte in range(256) if byte & 127 != 127], dtype=torch.float64)
    scaled = weight.double() / parts["scale"][:, None].double()
    nearest = (scaled[..., None] - numbers).abs().amin(-1)
    assert torch.allclose((parts["packed"].double() - scaled).abs(), nearest, rtol=0, atol=1e-4)


@pytest.mark.parametrize("format", [INT4, INT4_SYM])
def test_int4_error_is_within_the_groups_step(format):
    """Half a step for what lies inside; the shrunk range cuts its ends, never by more than it is shrunk."""
    weight = weights()
    error = (codec.dequantise(format, codec.quantise(format, weight)) - weight).abs()
    groups = weight.unflatten(1, (-1, format.group))
    spread = (groups.amax(-1) - groups.amin(-1)).repeat_interleave(format.group, 1)
    reach = spread if format is INT4 else 2 * groups.abs().amax(-1).repeat_interleave(format.group, 1)
    assert (error <= reach * (0.5 / 15 + (1 - min(int4.SHRINK)) / 2 + BF16)).all()
    assert error.square().mean().sqrt() < 0.11 * weight.square().mean().sqrt()


@pytest.mark.parametrize("symmetric", [True, False])
def test_no_single_scale_of_a_coarse_search_is_better(symmetric):
    """The chosen fit is at least as good as spanning the whole range, and shrinking helps for bell curves."""
    weight = weights(rows=64)
    format = INT4_SYM if symmetric else INT4
    groups = weight.unflatten(1, (-1, format.group))
    fit = int4._symmetric if symmetric else int4._asymmetric
    whole = int4._Fit(groups, *fit(groups, 1.0)).error[..., 0]
    chosen = (codec.dequantise(format, codec.quantise(format, weight)) - weight).unflatten(
        1, groups.shape[1:]
    )
    assert (chosen.square().sum(-1) <= whole * 1.0001).all()
    assert chosen.square().sum() < 0.95 * whole.sum()


@pytest.mark.parametrize("format", [INT4, INT4_SYM])
def test_sixteen_even_levels_survive(format):
    """Weights that lie on the grid come back as they were."""
    levels = torch.randint(0, 16, (8, 256), generator=torch.Generator().manual_seed(2))
    levels[:, :: format.group], levels[:, 1 :: format.group] = 0, 15
    weight = (levels.float() - 8) * 0.25 + (0.5 if format is INT4 else 0)
    assert torch.equal(codec.dequantise(format, codec.quantise(format, weight)), weight)


@pytest.mark.parametrize("format", ALL)
def test_rows_of_zeros_and_of_one_value(format):
    weight = torch.cat((torch.zeros(1, 256), torch.full((1, 256), 0.5), torch.full((1, 256), -3.0)))
    back = codec.dequantise(format, codec.quantise(format, weight))
    assert back[0].count_nonzero() == 0
    assert torch.allclose(back, weight, rtol=BF16)


@pytest.mark.parametrize("format", ALL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tokens", [1, 3, 40])
def test_product_is_that_of_the_dequantised_matrix(format, dtype, tokens):
    """Also by PyTorch's packed kernels, where the CPU has them: within the rounding of the dtype."""
    parts = codec.quantise(format, weights(rows=80, columns=512))
    x = torch.randn(2, tokens, 512, generator=torch.Generator().manual_seed(3)).to(dtype)[:1]
    bias = torch.arange(80, dtype=dtype) / 8
    exact = x.double() @ codec.dequantise(format, parts).double().T + bias.double()
    size = x.double().abs() @ codec.dequantise(format, parts).double().abs().T + bias.double().abs()
    got = codec.linear(format, x, parts, bias)
    assert got.dtype == dtype
    assert got.shape == (1, tokens, 80)
    assert ((got.double() - exact).abs() <= 2 * torch.finfo(dtype).eps * size).all()


def test_products_by_pieces_are_those_of_the_whole(monkeypatch):
    parts, x = codec.quantise(INT4, weights(rows=100)), torch.randn(5, 256)
    whole = codec.linear(INT4, x, parts)
    monkeypatch.setitem(codec.PIECE_BYTES, "cpu", 7 * 256 * 4)
    assert len(list(codec.pieces(100, 256, 4, x.device))) == 15  # 100 rows, 7 at a time
    assert torch.allclose(codec.linear(INT4, x, parts), whole, rtol=1e-5, atol=1e-6)
    assert torch.equal(codec.quantise(INT4, weights(rows=100))["packed"], parts["packed"])


def test_pieces_are_joined_as_they_are_and_a_single_one_is_not_copied(monkeypatch):
    weight, x = weights(rows=100), torch.randn(2, 5, 256)
    whole = codec.by_pieces(x, 100, lambda begin, end: weight[begin:end])
    assert torch.equal(whole, torch.nn.functional.linear(x, weight))
    monkeypatch.setitem(codec.PIECE_BYTES, "cpu", 30 * 256 * 4)
    products = [torch.nn.functional.linear(x, piece) for piece in weight.split(30)]
    joined = torch.cat(products, -1)
    assert torch.equal(codec.by_pieces(x, 100, lambda begin, end: weight[begin:end]), joined)
    monkeypatch.setattr(torch, "cat", None)
    assert torch.equal(codec.by_pieces(x, 30, lambda begin, end: weight[begin:end]), products[0])


needs_kernels = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in cpu.FAST,
    reason="this processor has neither AVX2 nor AVX-512",
)


@needs_kernels
def test_int8_kernel_is_taken_only_where_it_is_safe():
    """PyTorch reads 16 columns at a time whether they are there or not."""
    x = torch.zeros(1, 64, dtype=torch.bfloat16)
    assert cpu.takes_int8(x)
    assert not cpu.takes_int8(x.float())
    assert not cpu.takes_int8(x[:, :40])
    assert not cpu.takes_int8(x.expand(cpu.INT8_ROWS + 1, 64))


@needs_kernels
def test_int8_kernel_takes_unaligned_activations():
    parts = codec.quantise(INT8, weights(rows=8, columns=64))
    raw = torch.randn(65, generator=torch.Generator().manual_seed(4)).bfloat16()
    x = raw[1:].view(1, 64)  # two bytes beside an aligned address, which alone would end the process
    assert torch.equal(codec.linear(INT8, x, parts), codec.linear(INT8, x.clone(), parts))


@pytest.mark.parametrize("format", ALL)
@given(rows=st.integers(1, 40), groups=st.integers(1, 5), begin=st.integers(0, 600))
@settings(max_examples=30, deadline=None)
def test_places_in_a_buffer(format, rows, groups, begin):
    """Aligned, in order, apart, within the bytes that the shape gives; views are what was written."""
    columns = 128 * groups
    places = format.places(rows, columns, begin)
    end = begin
    for place in places:
        assert place.offset % ALIGNMENT == 0
        assert place.offset >= end
        assert place.num_bytes == math.prod(place.shape) * getattr(torch, place.dtype).itemsize
        end = place.offset + place.num_bytes
    assert end <= begin + format.packed_bytes(rows, columns) + len(places) * ALIGNMENT
    buffer = aligned_buffer(end, "cpu").fill_(0)
    views = codec.at(places, buffer)
    weight = weights(rows, columns)
    codec.write(format, weight, views)
    expected = codec.quantise(format, weight)
    assert all(torch.equal(views[name].view(torch.uint8), expected[name].view(torch.uint8)) for name in views)
    assert buffer[:begin].count_nonzero() == 0


def test_bits_a_weight():
    bits = {name: format.packed_bytes(4096, 12288) * 8 / (4096 * 12288) for name, format in FORMATS.items()}
    assert bits["int4"] == bits["int4-sym"] == 4.25
    assert bits["int8"] == pytest.approx(8, rel=2e-4)
    assert bits["fp8"] == pytest.approx(8, rel=4e-4)
    assert int4_format(128, "zero").packed_bytes(1, 128) == 64 + 3


@pytest.mark.parametrize("format", ALL)
def test_stacked_projections_are_their_rows(format):
    """Quantised together or one by one, each row is the same: stacking needs no format of its own."""
    q, k = weights(32, seed=6), weights(16, seed=7)
    both = codec.quantise(format, torch.cat((q, k)))
    alone = codec.quantise(format, k)
    below = codec.rows_of(both, 32, 48)
    assert all(torch.equal(below[name].view(torch.uint8), alone[name].view(torch.uint8)) for name in alone)


def test_a_group_that_does_not_divide_is_refused():
    line = (
        r"down_proj has 192 columns, which int4's groups of 128 do not divide: choose int8 or int4-sym or fp8"
    )
    with pytest.raises(InputError, match=line):
        codec.quantise(INT4, weights(columns=192), "down_proj")
    assert codec.quantise(INT4_SYM, weights(columns=192), "down_proj")["packed"].shape == (20, 96)


def test_a_vector_is_refused():
    with pytest.raises(InputError, match=r"norm has shape \[256\]: int8 stores matrices"):
        codec.quantise(INT8, torch.ones(256), "norm")


@pytest.mark.parametrize("format", ALL)
@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_infinity_and_nan_are_refused(format, bad):
    weight = weights()
    codec.quantise(format, weight)
    weight[7, 100] = bad
    with pytest.raises(InputError, match=f"o_proj holds infinity or NaN: {format.name} cannot store it"):
        codec.quantise(format, weight, "o_proj")


def test_an_odd_group_is_refused():
    with pytest.raises(InputError, match="groups of 5"):
        int4_format(5, "symmetric")
