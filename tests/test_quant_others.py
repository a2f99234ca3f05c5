"""GPTQ's and AWQ's tensors against an unpacker that follows the formats one value at a time."""

import pytest
import torch

from minillm.errors import InputError
from minillm.quant import awq, codec, gptq

ROWS, COLUMNS, GROUP = 24, 64, 16
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # which row AutoAWQ puts at each place, from the lowest bits up


def case(seed: int = 0) -> tuple[list, list, torch.Tensor]:
    """Values [in][out], zeros [groups][out] and float16 scales [groups, out]."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(0, 16, (COLUMNS, ROWS), generator=generator).tolist()
    zeros = torch.randint(1, 16, (COLUMNS // GROUP, ROWS), generator=generator).tolist()
    scales = (torch.rand(COLUMNS // GROUP, ROWS, generator=generator) * 0.01 + 0.001).half()
    return values, zeros, scales


def signed(number: int) -> int:
    """32 bits as the int32 that holds them."""
    return number - (1 << 32) if number >= 1 << 31 else number


def packed_rows(table: list, order=range(8)) -> torch.Tensor:
    """[n][8k] numbers of four bits → int32 [n, k]; place p of each holds entry `order[p]` of its eight."""
    return torch.tensor(
        [
            [signed(sum(line[i + order[p]] << 4 * p for p in range(8))) for i in range(0, len(line), 8)]
            for line in table
        ],
        dtype=torch.int32,
    )


def transposed(table: list) -> list:
    return [list(line) for line in zip(*table, strict=True)]


def gptq_tensors(values, zeros, scales, offset: int = 1) -> dict:
    stored = [[zero - offset for zero in line] for line in zeros]
    return {
        "qweight": packed_rows(transposed(values)).T.contiguous(),
        "qzeros": packed_rows(stored),
        "scales": scales,
        "g_idx": torch.arange(COLUMNS, dtype=torch.int32) // GROUP,
    }


def awq_tensors(values, zeros, scales) -> dict:
    return {
        "qweight": packed_rows(values, AWQ_ORDER),
        "qzeros": packed_rows(zeros, AWQ_ORDER),
        "scales": scales,
    }


def brute_force(values, zeros, scales, group_of) -> torch.Tensor:
    """[out, in] in Python's numbers."""
    scale = scales.double().tolist()
    return torch.tensor(
        [
            [
                (values[column][row] - zeros[group_of[column]][row]) * scale[group_of[column]][row]
                for column in range(COLUMNS)
            ]
            for row in range(ROWS)
        ],
        dtype=torch.float64,
    )


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
    settings = {"quant_method": "gptq", "bits": 4}
    assert gptq.zero_offset(settings) == 1
    offset = gptq.zero_offset(settings | {"checkpoint_format": "gptq_v2"})
    unpacked = gptq.unpack("q_proj", gptq_tensors(values, zeros, scales, offset=0), offset)
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


@pytest.mark.parametrize(
    ("check", "settings", "line"),
    [
        (gptq.zero_offset, {"quant_method": "gptq", "bits": 8}, "gptq with 8 bits is not supported: .* 4"),
        (gptq.zero_offset, {"quant_method": "awq", "bits": 4}, "quant_method is 'awq': this reads gptq"),
        (awq.check, {"quant_method": "awq", "bits": 4, "version": "gemv"}, "version 'gemv' .* reads gemm"),
        (awq.check, {"quant_method": "awq", "bits": 3}, "awq with 3 bits"),
    ],
)
def test_settings_that_are_not_read(check, settings, line):
    with pytest.raises(InputError, match=line):
        check(settings)


def test_awqs_usual_settings_are_read():
    awq.check({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"})
