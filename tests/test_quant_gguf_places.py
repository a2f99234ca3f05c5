"""Tensors of a GGUF file whose header says that they lie, or are shaped, as they are not."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf_files import make_llama, write_gguf

from minillm.errors import InputError
from minillm.quant.gguf.config import read_config
from minillm.quant.gguf.file import GGUFFile

NAMES = ["token_embd.weight", "blk.0.attn_q.weight", "blk.1.ffn_norm.weight"]  # the first lies first
OFFSET = 5  # where a tensor's header has it


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("whole") / "model.gguf", make_llama(), "Q8_0")


@pytest.fixture
def edited(whole, tmp_path):
    """`edited(name, part, change)` → a copy with a field of a tensor's header, whole numbers, changed."""

    def edit(name: str, part: int, change) -> Path:
        path = tmp_path / "edited.gguf"
        path.write_bytes(whole.read_bytes())
        reader = gguf.GGUFReader(path, "r+")
        field = next(tensor for tensor in reader.tensors if tensor.name == name).field.parts[part]
        field[0] = change(int(field[0])) % 2 ** (8 * field.itemsize)
        reader.data.flush()
        return path

    return edit


def refused(path: Path, *words: str) -> None:
    with pytest.raises(InputError) as error:
        read_config(GGUFFile(path))
    text = str(error.value)
    assert all(word in text for word in (str(path), "again", *words)), text
    assert "\n" not in text


def test_each_lies_behind_the_one_before(whole):
    assert len(GGUFFile(whole).tensors) > 15
    assert gguf.GGUFReader(whole).tensors[0].name == NAMES[0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "distance", [1, 4, 28, 32, -1, -4, -32, 2**20, 2**31, 2**40, 2**62, 2**63, 2**63 + 32, 2**64 - 64]
)
def test_an_offset_that_is_another(edited, name, distance):
    """Off by less than the alignment, by a multiple of it, beyond the file, and round at 2**64."""
    path = edited(name, OFFSET, lambda offset: offset + distance)
    refused(path, *([f"{name} begins at byte"] if distance % 32 else []))  # else its neighbour is as odd


@pytest.mark.parametrize("name", NAMES[1:])
def test_two_tensors_in_one_place(edited, name):
    refused(edited(name, OFFSET, lambda _: 0), NAMES[0], "0 are there")


def test_a_first_tensor_that_begins_later(whole, tmp_path):
    """Everything moved by a whole block of the alignment, the file with it."""
    path = tmp_path / "moved.gguf"
    path.write_bytes(whole.read_bytes() + bytes(32))
    reader = gguf.GGUFReader(path, "r+")
    for tensor in reader.tensors:
        tensor.field.parts[OFFSET][0] += 32
    reader.data.flush()
    refused(path, NAMES[0], "begins at byte 32", "must begin at 0 and each at a multiple of 32")


@pytest.mark.parametrize("alignment", [8, 64, 256])
def test_a_file_of_another_alignment(tmp_path, alignment):
    path = tmp_path / "model.gguf"
    write_gguf(path, make_llama(), "Q8_0", lambda writer: writer.add_custom_alignment(alignment))
    assert len(GGUFFile(path).tensors) > 15


@pytest.mark.parametrize("name", ["blk.0.attn_q.bias", "rope_freqs.weight", "more"])
@pytest.mark.parametrize("shape", [(), (0,), (4, 0), (0, 64), (2, 0, 2)])
def test_a_tensor_of_nothing(tmp_path, name, shape):
    path = tmp_path / "model.gguf"
    write_gguf(path, make_llama(), "Q8_0", lambda writer: writer.add_tensor(name, np.ones(shape, np.float32)))
    refused(path, f"{name} has shape {list(shape)}", "must have a dimension")


def test_no_tensors(whole, tmp_path):
    path = tmp_path / "model.gguf"
    data = bytearray(whole.read_bytes())
    data[8:16] = bytes(8)  # how many there are
    path.write_bytes(data)
    refused(path, "has no tensors")
    path.unlink()
    writer = gguf.GGUFWriter(path, "llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    refused(path, "has no tensors")
