"""A safetensors checkpoint on disk: one file, or shards with an index.

Only headers are read here; `tensor` gives views into the memory-mapped file, to be copied from and
never computed with (they are pages of the file, not memory of ours).
"""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from minillm.errors import InputError
from minillm.weight_files import INDEX, SINGLE, files_in, read_weight_map

FLOATS = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}  # safetensors' names → torch's


@dataclass(frozen=True)
class Stored:
    """What a header says of one tensor."""

    file: str
    dtype: str  # safetensors' name, "BF16"
    shape: tuple[int, ...]


class Checkpoint:
    """All tensors of a model folder by name; a context manager that closes its files.

    Raises InputError: no weights, an index that names a missing shard or tensor, a bad header, a tensor
    that is there twice.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        names = files_in(self.folder)
        if not names:
            raise InputError(f"no weights in {str(self.folder)!r}: expected {SINGLE} or {INDEX}")
        self.files = {name: self._open(name) for name in names}
        self.tensors: dict[str, Stored] = {}
        for file, handle in self.files.items():
            for key in handle.keys():  # noqa: SIM118 - the handle is no mapping
                if key in self.tensors:
                    raise InputError(
                        f"{key} is in {self.tensors[key].file} and again in {file}: download the model again"
                    )
                part = handle.get_slice(key)
                self.tensors[key] = Stored(file, part.get_dtype(), tuple(part.get_shape()))
        self._check_index()

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.files.clear()

    def tensor(self, key: str) -> torch.Tensor:
        """The whole tensor, a view into the file."""
        return self.files[self.tensors[key].file].get_tensor(key)

    def _open(self, name: str):
        path = self.folder / name
        if not path.is_file():
            raise InputError(f"{INDEX} names {name}, which is not in {str(self.folder)!r}: download it again")
        try:
            return safe_open(path, framework="pt", device="cpu")
        except (SafetensorError, OSError, json.JSONDecodeError) as error:
            raise InputError(f"{path} is not a whole safetensors file ({error}): download it again") from None

    def _check_index(self) -> None:
        index = {} if SINGLE in self.files else read_weight_map(self.folder / INDEX)
        for key, file in index.items():
            stored = self.tensors.get(key)
            if stored is None or stored.file != file:
                raise InputError(f"{INDEX} says {file} holds {key}, but it does not: download both again")
