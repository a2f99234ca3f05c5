"""Filling a model from a GGUF file: the layers' matrices stay packed, all else is expanded by pieces of rows.

The same signature as `loader.fill_from_checkpoint`, so that whatever makes a model can be filled from either.
"""

from collections import Counter
from collections.abc import Callable, Iterable

import torch

from minillm.config import ModelConfig
from minillm.progress import Progress
from minillm.quant import codec
from minillm.quant.formats import Format
from minillm.quant.gguf import blocks, names
from minillm.quant.gguf.file import GGUFFile
from minillm.quant.stored import StoredFormats
from minillm.quant.weight import PackedWeight


def fill_from_gguf(file: GGUFFile, config: ModelConfig) -> Callable:
    """Check the file against `config` now; return the function that writes its weights into parameters.

    Raises InputError before any memory is taken: tensors that are missing, left over or of another shape.
    """
    sources = names.match(file, config.parameter_shapes())

    def fill(parameters: Iterable[tuple[str, torch.Tensor | PackedWeight]]) -> None:
        with Progress("loading", len(sources), "tensor") as progress:
            for name, parameter in parameters:
                stored = sources[name]
                put(stored.format, names.rows_of(file, name, stored), parameter)
                progress.advance()

    return fill


def formats_of(file: GGUFFile) -> StoredFormats | None:
    """The formats of the layers' matrices, those of plain numbers left out; None: there are no others."""
    found = {names.hugging_face_name(name) or "": stored.format for name, stored in file.tensors.items()}
    formats = {
        name.removeprefix("model."): format
        for name, format in found.items()
        if name.endswith("_proj.weight") and _type(format) not in blocks.FLOATS
    }
    counts = Counter(_type(format) for format in formats.values())
    kind = " and ".join(name for name, _ in counts.most_common())
    return StoredFormats(kind, formats) if formats else None


def _type(format: Format) -> str:
    return format.name.removeprefix("gguf-")


def put(format: Format, packed: torch.Tensor, target: torch.Tensor | PackedWeight) -> None:
    """`packed` [rows, bytes] as it is, expanded, or, of plain numbers that are to be quantised, quantised."""
    if isinstance(target, torch.Tensor):
        expand(format, packed, target)
    elif target.format == format:
        target.store({"packed": packed})
    else:
        dense = target.empty()
        expand(format, packed, dense)
        target.copy_(dense)


def expand(format: Format, packed: torch.Tensor, parameter: torch.Tensor) -> None:
    """Dequantise `packed` [rows, bytes] into `parameter` (a vector: one row), on the parameter's device."""
    rows = parameter.view(1, -1) if parameter.dim() == 1 else parameter
    for begin, end in codec.pieces(*rows.shape, 4, rows.device):
        piece = packed[begin:end].to(rows.device)
        rows[begin:end].copy_(codec.dequantise(format, {"packed": piece}, rows.dtype))
