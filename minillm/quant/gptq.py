"""GPTQ's int4 tensors (AutoGPTQ, GPTQModel) in safetensors files, unpacked.

    qweight  int32 [in / 8, out]      eight neighbouring input columns, the first in the lowest bits
    qzeros   int32 [groups, out / 8]  zeros of eight neighbouring output rows; each less 1 (see below)
    scales   float [groups, out]
    g_idx    int32 [in]               the group of each input column; absent: in order

The first version of the format stores each zero less one, and where the zero is 0 the four bits wrap round to
15. That is read as 0, as AutoGPTQ does, since no quantiser makes a zero of 16; vLLM reads 16. The second
("gptq_v2") stores zeros as they are.
"""

import torch

from minillm.errors import InputError
from minillm.quant.others import (
    PER_INT,
    Tensors,
    Unpacked,
    check_shapes,
    check_tensors,
    nibbles,
)

IN_ORDER = tuple(range(PER_INT))


def shape_of(name: str, tensors: Tensors) -> tuple[int, int]:
    """Rows and columns of Linear `name`; InputError for tensors that do not fit together."""
    check_tensors(name, tensors)
    columns, rows = PER_INT * tensors["qweight"].shape[0], tensors["qweight"].shape[1]
    check_shapes(name, tensors, rows, columns)
    if "g_idx" in tensors and tuple(tensors["g_idx"].shape) != (columns,):
        raise InputError(f"{name}.g_idx has {tensors['g_idx'].numel()} entries for {columns} input columns")
    return rows, columns


def unpack(name: str, tensors: Tensors, offset: int = 1) -> Unpacked:
    """The tensors of Linear `name`; `offset`: what the zeros lack. InputError as of `shape_of`."""
    _, columns = shape_of(name, tensors)
    groups = len(tensors["scales"])
    in_order = torch.arange(columns, device=tensors["qweight"].device) // (columns // groups)
    return Unpacked(
        values=nibbles(tensors["qweight"].T, IN_ORDER),
        zeros=(nibbles(tensors["qzeros"], IN_ORDER) + offset & 15).T,
        scales=tensors["scales"].T,
        group_of=tensors["g_idx"].long() if "g_idx" in tensors else in_order,
    )
