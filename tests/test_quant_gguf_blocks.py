"""GGUF's block types against the gguf library's own, element for element, on random bytes."""

import gguf
import numpy as np
import pytest
import torch

from minillm.errors import InputError
from minillm.quant import codec
from minillm.quant.gguf import blocks

TYPES = {name: gguf.GGMLQuantizationType[name] for name in blocks.SIZES}
SCALES = {  # where the float16 numbers of a block lie, in bytes
    "Q8_0": [0],
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
}


def random_rows(name: str, rows: int, count: int, seed: int = 0) -> np.ndarray:
    """Random bytes of `count` blocks a row, with scales that are ordinary numbers."""
    rng = np.random.default_rng(seed)
    size = blocks.SIZES[name][1]
    packed = rng.integers(0, 256, (rows, count, size), dtype=np.uint8)
    if name in blocks.FLOATS:
        weights = torch.randn(rows, count, generator=torch.manual_seed(seed)).to(blocks.FLOATS[name])
        return weights.view(torch.uint8).numpy()
    for place in SCALES[name]:
        numbers = rng.normal(0, 0.1, (rows, count, 1)).astype(np.float16)
        packed[:, :, place : place + 2] = numbers.view(np.uint8)
    return packed.reshape(rows, -1)


@pytest.mark.parametrize("name", blocks.SIZES)
def test_sizes_are_those_of_the_library(name):
    assert blocks.SIZES[name] == gguf.GGML_QUANT_SIZES[TYPES[name]]


@pytest.mark.parametrize("name", blocks.SIZES)
def test_every_element_is_the_librarys(name):
    packed = random_rows(name, rows=48, count=7)
    expected = gguf.quants.dequantize(packed, TYPES[name])
    ours = blocks.dequantise(blocks.format_of(name), torch.from_numpy(packed))
    assert ours.dtype == torch.float32
    assert ours.shape == expected.shape == (48, 7 * blocks.SIZES[name][0])
    assert np.array_equal(ours.numpy(), expected)
    assert len(np.unique(expected)) > 100


@pytest.mark.parametrize("name", SCALES)
def test_one_changed_byte_changes_the_result(name):
    """No byte of a block is left out, which random data alone would not show."""
    packed = random_rows(name, rows=1, count=1)
    format = blocks.format_of(name)
    before = blocks.dequantise(format, torch.from_numpy(packed))
    for place in range(packed.shape[1]):
        changed = packed.copy()
        changed[0, place] ^= 0x55
        assert not torch.equal(blocks.dequantise(format, torch.from_numpy(changed)), before), place


@pytest.mark.parametrize("name", blocks.SIZES)
def test_rows_expand_piece_by_piece(name):
    packed = torch.from_numpy(random_rows(name, rows=9, count=4))
    format = blocks.format_of(name)
    whole = blocks.dequantise(format, packed)
    pieces = [codec.dequantise(format, codec.rows_of({"packed": packed}, i, i + 1)) for i in range(9)]
    assert torch.equal(torch.cat(pieces), whole)


@pytest.mark.parametrize("name", ["Q4_1", "Q6_K", "BF16"])
def test_other_dtypes_are_rounded_once(name):
    packed = torch.from_numpy(random_rows(name, rows=5, count=3))
    format = blocks.format_of(name)
    whole = blocks.dequantise(format, packed)
    assert torch.equal(blocks.dequantise(format, packed, torch.bfloat16), whole.bfloat16())


@pytest.mark.parametrize("name", blocks.SIZES)
def test_bytes_are_known_from_the_shape(name):
    rows, columns = 6, 512
    packed = random_rows(name, rows, columns // blocks.SIZES[name][0])
    assert blocks.format_of(name).packed_bytes(rows, columns) == packed.nbytes


def test_product_is_that_of_the_expanded_matrix():
    format = blocks.format_of("Q4_K")
    parts = {"packed": torch.from_numpy(random_rows("Q4_K", rows=700, count=4))}
    x = torch.randn(2, 3, 1024, generator=torch.manual_seed(1))
    expected = x.double() @ blocks.dequantise(format, parts["packed"]).double().T
    error = (codec.linear(format, x, parts).double() - expected).abs().max()
    assert error < 1e-6 * expected.abs().max()


def test_an_unsupported_type_is_named_with_those_that_are():
    with pytest.raises(InputError, match=r"IQ4_XS is not supported: minillm reads F32, .*Q6_K"):
        blocks.format_of("IQ4_XS")
    assert blocks.format_of("Q6_K").group == 256
