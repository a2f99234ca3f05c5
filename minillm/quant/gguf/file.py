"""A GGUF file: metadata, and tensors as packed rows; read with the `gguf` library, checked on opening.

Tensors are views into the mapped file, to be copied from and never computed with.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from minillm import checks
from minillm.errors import InputError
from minillm.quant.formats import Format
from minillm.quant.gguf.blocks import format_of
from minillm.quant.gguf.places import check_tensors


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of the file; a vector has one row."""

    name: str
    shape: tuple[int, ...]  # in torch's order
    format: Format
    packed: torch.Tensor  # uint8 [rows, bytes of a row]


class GGUFFile:
    """All of one file. Raises InputError for one that is damaged, cut off or not wholly supported."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        reader = _open(self.path)
        self._fields = reader.fields
        parts = self.whole("split.count", 1)
        if parts > 1:
            raise InputError(f"{path} is one of {parts} files: join them with llama-gguf-split --merge")
        check_tensors(self.path, reader)
        self.tensors = {tensor.name: _stored(tensor) for tensor in reader.tensors}

    def get(self, key: str, default: Any = None) -> Any:
        """A metadata value: a number, a truth value, a text or a list of those."""
        from minillm.quant.gguf.reader import contents

        if key not in self._fields:
            return default
        try:
            return contents(self._fields[key])
        except ValueError as error:
            raise InputError(f"{self.path}: {key} is no text ({error}): download the file again") from None

    def whole(self, key: str, default: int | None = None, low: int = 0) -> int:
        """A whole number of at least `low`; InputError when it is missing and has no default."""
        return checks.whole(f"{self.path}: {key}", self._needed(key, default), low)

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number above 0; InputError likewise."""
        return checks.number(f"{self.path}: {key}", self._needed(key, default), 0.0, above=True)

    def text(self, key: str, default: str | None = None) -> str:
        """A text; InputError likewise."""
        value = self._needed(key, default)
        if not isinstance(value, str):
            raise InputError(f"{self.path}: {key} is {checks.shown(value)}: it must be a text")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """A truth value; InputError for anything else."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise InputError(f"{self.path}: {key} is {checks.shown(value)}: it must be true or false")
        return value

    def texts(self, key: str) -> list[str]:
        """A list of texts, empty where the key is missing; InputError for anything else."""
        found = self.get(key, [])
        odd = [text for text in found if not isinstance(text, str)] if isinstance(found, list) else [found]
        if odd:
            raise InputError(
                f"{self.path}: {key} holds {checks.shown(odd[0])}: it must be a list of texts, convert the "
                "model again"
            )
        return found

    def _needed(self, key: str, default: Any) -> Any:
        value = self.get(key, default)
        if value is None:
            raise InputError(f"{self.path} has no {key}: convert the model again, with a newer llama.cpp")
        return value


def _open(path: Path) -> Any:
    """The library's reader of the file."""
    try:
        from minillm.quant.gguf.reader import Reader
    except ImportError:
        raise InputError("GGUF files need the gguf library: pip install 'minillm[gguf]'") from None
    if not path.is_file():
        raise InputError(f"no file {str(path)!r}: give a .gguf file")
    try:
        with np.errstate(all="ignore"):
            # "c": pages that could be written to, though nothing does; torch warns about others.
            reader = Reader(path, "c")
    except Exception as error:  # the library checks little: a damaged file fails in many ways
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise InputError(f"{path} is not a whole GGUF file ({reason}): download it again") from None
    if reader.byte_order != "I":
        raise InputError(f"{path} is written for processors of another byte order: convert the model again")
    return reader


def _stored(tensor: Any) -> StoredTensor:
    packed = torch.from_numpy(tensor.data.view(np.uint8))
    shape = tuple(int(size) for size in reversed(tensor.shape))
    format = format_of(tensor.tensor_type.name)
    return StoredTensor(tensor.name, shape, format, packed.reshape(-1, packed.shape[-1]))
