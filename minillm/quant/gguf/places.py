"""Where a GGUF file's tensors lie, checked by their headers: the library reads whatever is at an offset."""

from pathlib import Path
from typing import Any

from minillm.errors import InputError
from minillm.quant.gguf.blocks import SIZES


def check_tensors(path: Path, reader: Any) -> None:
    """Raise InputError unless all tensors can be read and lie one after the other at aligned places."""
    if not reader.tensors:
        raise InputError(f"{path} has no tensors: it holds no whole model, download it again")
    for tensor in reader.tensors:
        _check_kind(path, tensor)
    tensors, size = sorted(reader.tensors, key=_offset), len(reader.data) - int(reader.data_offset)
    _check_begins(path, tensors, int(reader.alignment), size)
    _check_sizes(path, tensors, int(reader.alignment), size)


def _check_kind(path: Path, tensor: Any) -> None:
    kind, shape = tensor.tensor_type.name, [int(size) for size in reversed(tensor.shape)]
    if kind not in SIZES:
        raise InputError(f"{path}: {tensor.name} has type {kind}: minillm reads {', '.join(SIZES)}")
    if not shape or not all(shape):
        raise InputError(
            f"{path}: {tensor.name} has shape {shape}: it must have a dimension and each at least 1, "
            "convert the model again"
        )


def _check_begins(path: Path, tensors: list, alignment: int, size: int) -> None:
    odd = [tensor for tensor in tensors if _offset(tensor) % alignment or _offset(tensor) >= size]
    for tensor in odd or tensors[:1]:
        if offset := _offset(tensor):
            raise InputError(
                f"{path}: {tensor.name} begins at byte {offset} of {size} bytes of tensors: the first must "
                f"begin at 0 and each at a multiple of {alignment} within them, download the file again"
            )


def _check_sizes(path: Path, tensors: list, alignment: int, size: int) -> None:
    """The distance to the next tensor proves what a header says of a type."""
    for tensor, end in zip(tensors, [*map(_offset, tensors[1:]), size], strict=True):
        there = end - _offset(tensor)
        if not 0 <= there - int(tensor.n_bytes) < alignment:
            raise InputError(
                f"{path}: {tensor.name} takes {tensor.n_bytes} bytes by its header's type "
                f"{tensor.tensor_type.name}, but {there} are there: download the file again"
            )


def _offset(tensor: Any) -> int:
    """As the header has it: the library's own sum of it and the data's begin wraps round at 2**64."""
    return int(tensor.field.parts[5][0])
