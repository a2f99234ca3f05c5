"""Filling a dense model from a GGUF file: matched by name and shape, expanded by pieces of rows.

The same signature as `loader.fill_from_checkpoint`, so that whatever makes a model can be filled from either.
"""

from collections.abc import Callable, Iterable

import torch

from minillm.config import ModelConfig
from minillm.progress import Progress
from minillm.quant import codec
from minillm.quant.formats import Format
from minillm.quant.gguf import names
from minillm.quant.gguf.file import GGUFFile


def fill_from_gguf(file: GGUFFile, config: ModelConfig) -> Callable:
    """Check the file against `config` now; return the function that writes its weights into parameters.

    Raises InputError before any memory is taken: tensors that are missing, left over or of another shape.
    """
    sources = names.match(file, config.parameter_shapes())

    def fill(parameters: Iterable[tuple[str, torch.Tensor]]) -> None:
        with Progress("loading", len(sources), "tensor") as progress:
            for name, parameter in parameters:
                stored = sources[name]
                expand(stored.format, names.rows_of(file, name, stored), parameter)
                progress.advance()

    return fill


def expand(format: Format, packed: torch.Tensor, parameter: torch.Tensor) -> None:
    """Dequantise `packed` [rows, bytes] into `parameter` (a vector: one row), on the parameter's device."""
    rows = parameter.view(1, -1) if parameter.dim() == 1 else parameter
    for begin, end in codec.pieces(*rows.shape, 4, rows.device):
        piece = packed[begin:end].to(rows.device)
        rows[begin:end].copy_(codec.dequantise(format, {"packed": piece}, rows.dtype))
