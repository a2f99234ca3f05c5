"""AWQ's int4 tensors (AutoAWQ, version "gemm") in safetensors files, unpacked.

    qweight  int32 [in, out / 8]      eight neighbouring output rows of one input column
    qzeros   int32 [groups, out / 8]  their zeros, likewise, as they are
    scales   float [groups, out]

The eight rows 0 … 7 lie at the four-bit places 0 4 1 5 2 6 3 7, so that a GPU unpacks pairs of them at once.
Groups of input columns are always in order.
"""

import torch

from minillm.errors import InputError
from minillm.quant.others import (
    PER_INT,
    Tensors,
    Unpacked,
    check_settings,
    check_shapes,
    check_tensors,
    nibbles,
)

PLACES = (0, 4, 1, 5, 2, 6, 3, 7)


def check(settings: dict) -> None:
    """Raise InputError unless a `quantization_config` says int4 AWQ in the layout that is read here."""
    check_settings(settings, "awq")
    version = str(settings.get("version", "gemm")).lower()
    if version != "gemm":
        raise InputError(f"awq of version {version!r} is not supported: minillm reads gemm")


def unpack(name: str, tensors: Tensors) -> Unpacked:
    """The tensors of Linear `name`. InputError for tensors that do not fit together."""
    check_tensors(name, tensors)
    columns, rows = tensors["qweight"].shape[0], PER_INT * tensors["qweight"].shape[1]
    check_shapes(name, tensors, rows, columns)
    groups = len(tensors["scales"])
    return Unpacked(
        values=nibbles(tensors["qweight"], PLACES).T.contiguous(),
        zeros=nibbles(tensors["qzeros"], PLACES).T,
        scales=tensors["scales"].T,
        group_of=torch.arange(columns, device=tensors["qweight"].device) // (columns // groups),
    )
