"""GPTQ's and AWQ's tensors against an unpacker that follows the formats one value at a time."""

import pytest
import torch
from int4_files import awq_tensors, brute_force, gptq_tensors, packed_rows

from minillm.errors import InputError
from minillm.quant import awq, codec, gptq

ROWS, COLUMNS, GROUP = 24, 64, 16


def case(seed: int = 0) -> tuple[list, list, torch.Tensor]:
    """Values [in][out], zeros [groups][out] and float16 scales [groups, out]."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(0, 16, (COLUMNS, ROWS), generator=generator).tolist()
    zeros = torch.randint(1, 16, (COLUMNS // GROUP, ROWS), generator=generator).tolist()
    scales = (torch.rand(COLUMNS // GROUP, ROWS, generator=generator) * 0.01 + 0.001).half()
    return values, zeros, scales


IN_ORDER = [column // GROUP for column in range(COLUMNS)]


def unpack_both(values, zeros, scales):
    yield gptq.unpack("q_proj", gptq_tensors(values, zeros, scales))
    yield awq.unpack("q_proj", awq_tensors(values, zeros, scales))


def test_both_are_the_brute_force_unpackers_exactly():
    values, zeros, scales = case()
    expected = brute_force(values, zeros, scales, IN_ORDER)
    assert len(expected.unique()) > 500
    for unpacked in unpack_both(values, zeros, scales):
        assert torch.equal(unpacked.dequantise().double(), expected)


def test_our_layout_stands_for_the_same_weights_exactly():
    values, zeros, scales = case(1)
    expected = brute_force(values, zeros, scales, IN_ORDER)
    for unpacked in unpack_both(values, zeros, scales):
        format, parts = unpacked.parts("q_proj")
        assert format.group == GROUP
        assert {name: part.dtype for name, part in parts.items()} == {
            part.name: getattr(torch, part.dtype) for part in format.parts
        }
        assert all(tuple(parts[part.name].shape) == part.shape(ROWS, COLUMNS) for part in format.parts)
        assert all(part.is_contiguous() for part in parts.values())
        assert torch.equal(codec.dequantise(format, parts).double(), expected)
        x = torch.randn(3, COLUMNS, generator=torch.Generator().manual_seed(2))
        assert torch.allclose(codec.linear(format, x, parts).double(), x.double() @ expected.T, atol=1e-5)


def test_one_group_for_the_whole_row():
    values, zeros, scales = case()
    tensors = awq_tensors(values, zeros[:1], scales[:1])
    format, parts = awq.unpack("q_proj", tensors).parts("q_proj")
    assert format.group == COLUMNS
    expected = brute_force(values, zeros[:1], scales[:1], [0] * COLUMNS)
    assert torch.equal(codec.dequantise(format, parts).double(), expected)


def test_the_second_version_of_gptq_stores_zeros_as_they_are():
    values, zeros, scales = case()
    unpacked = gptq.unpack("q_proj", gptq_tensors(values, zeros, scales, offset=0), offset=0)
    assert torch.equal(unpacked.dequantise().double(), brute_force(values, zeros, scales, IN_ORDER))


def test_a_zero_of_nothing_wraps_round():
    """A zero of 0 is stored, less one, as 15."""
    values, zeros, scales = case()
    zeros[0][3] = 0
    stored = [[(zero - 1) % 16 for zero in line] for line in zeros]
    tensors = gptq_tensors(values, zeros, scales) | {"qzeros": packed_rows(stored)}
    unpacked = gptq.unpack("q_proj", tensors)
    assert torch.equal(unpacked.dequantise().double(), brute_force(values, zeros, scales, IN_ORDER))


def test_act_order_is_dequantised_but_not_stored_packed():
    values, zeros, scales = case()
    group_of = torch.randperm(COLUMNS, generator=torch.Generator().manual_seed(3)) // GROUP
    tensors = gptq_tensors(values, zeros, scales) | {"g_idx": group_of.int()}
    unpacked = gptq.unpack("q_proj", tensors)
    assert torch.equal(unpacked.dequantise().double(), brute_force(values, zeros, scales, group_of.tolist()))
    with pytest.raises(InputError, match=r"q_proj: g_idx is out of order .* desc_act false"):
        unpacked.parts("q_proj")


def test_scales_beyond_float16_are_refused():
    values, zeros, scales = case()
    tensors = awq_tensors(values, zeros, scales.bfloat16())
    awq.unpack("q_proj", tensors).parts("q_proj")  # these bfloat16 numbers are float16 numbers, too
    with pytest.raises(InputError, match=r"q_proj: scales of torch.float32 exceed float16"):
        awq.unpack("q_proj", tensors | {"scales": scales.float() * 1.0001}).parts("q_proj")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"qzeros": None}, r"q_proj\.qzeros is missing"),
        ({"qweight": torch.zeros(8, 24)}, r"q_proj\.qweight is torch\.float32"),
        ({"scales": torch.ones(4, 16)}, r"q_proj\.scales has shape \[4, 16\], but \[4, 24\]"),
        (
            {"scales": torch.ones(3, 24), "qzeros": torch.zeros(3, 3, dtype=torch.int32)},
            "64 columns in 3 groups",
        ),
        ({"g_idx": torch.zeros(5)}, "g_idx has 5 entries for 64 input columns"),
    ],
)
def test_tensors_that_do_not_fit_together(change, line):
    tensors = gptq_tensors(*case())
    gptq.unpack("q_proj", tensors)
    tensors = {key: value for key, value in (tensors | change).items() if value is not None}
    with pytest.raises(InputError, match=line):
        gptq.unpack("q_proj", tensors)
