"""AWQ's int4 tensors (AutoAWQ, version "gemm") in safetensors files, unpacked.

    qweight  int32 [in, out / 8]      eight neighbouring output rows of one input column
    qzeros   int32 [groups, out / 8]  their zeros, likewise, as they are
    scales   float [groups, out]

The eight rows 0 … 7 lie at the four-bit places 0 4 1 5 2 6 3 7, so that a GPU unpacks pairs of them at once.
Groups of input columns are always in order.
"""

import torch

from minillm.quant.others import (
    PER_INT,
    Tensors,
    Unpacked,
    check_shapes,
    check_tensors,
    nibbles,
)

PLACES = (0, 4, 1, 5, 2, 6, 3, 7)


def shape_of(name: str, tensors: Tensors) -> tuple[int, int]:
    """Rows and columns of Linear `name`; InputError for tensors that do not fit together."""
    check_tensors(name, tensors)
    columns, rows = tensors["qweight"].shape[0], PER_INT * tensors["qweight"].shape[1]
    check_shapes(name, tensors, rows, columns)
    return rows, columns


def unpack(name: str, tensors: Tensors) -> Unpacked:
    """The tensors of Linear `name`. InputError as of `shape_of`."""
    _, columns = shape_of(name, tensors)
    groups = len(tensors["scales"])
    return Unpacked(
        values=nibbles(tensors["qweight"], PLACES).T.contiguous(),
        zeros=nibbles(tensors["qzeros"], PLACES).T,
        scales=tensors["scales"].T,
        group_of=torch.arange(columns, device=tensors["qweight"].device) // (columns // groups),
    )
