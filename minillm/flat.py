"""A layer as one flat buffer: its parameters are views, its two blocks are contiguous.

Streaming a block is then one copy. Every parameter starts at a multiple of 256 bytes: matrix-vector
kernels choose their path by alignment, and with less the same product can round differently.
"""

from dataclasses import dataclass

import torch
from torch.nn import Module, Parameter

from minillm.attention import Attention
from minillm.geometry import ALIGNMENT, PARTS
from minillm.layer import DecoderLayer
from minillm.mlp import MLP
from minillm.quant.layout import Entry, block_layout
from minillm.quant.weight import PackedWeight


@dataclass(frozen=True)
class Field:
    """Where one parameter lies in the buffer."""

    name: str  # relative to the layer, "self_attn.q_proj.weight"
    shape: tuple[int, ...]
    offset: int  # bytes
    num_bytes: int


@dataclass(frozen=True)
class FlatLayout:
    """Fields and packed matrices of one layer in forward order, and the byte range of each block."""

    fields: tuple[Field, ...]  # parameters that are stored as they are
    packed: tuple[Entry, ...]  # quantised matrices, those of one input stacked
    ranges: dict[str, tuple[int, int]]  # part → begin, end in bytes
    num_bytes: int


def layout_of(layer: DecoderLayer, dtype: torch.dtype, mlp_begin: int = 0) -> FlatLayout:
    """Lay a layer's parameters out, attention block first. The layer may be on the meta device.

    `mlp_begin`: bytes before which the MLP block may not start, though the attention block leaves room.
    """
    fields: list[Field] = []
    packed: list[Entry] = []
    ranges, end = {}, 0
    for part in PARTS:
        shapes, formats = layer.shapes[part], layer.formats[part]
        begin = max(end, mlp_begin) if part == "mlp" else end
        block = block_layout(shapes, formats, str(dtype).removeprefix("torch."), begin)
        for entry in block.entries:
            if entry.names[0] in formats:
                packed.append(entry)
            else:
                (name,), place = entry.names, entry.places[0]
                fields.append(Field(name, shapes[name], place.offset, place.num_bytes))
        ranges[part], end = (begin, block.end), block.end
    return FlatLayout(tuple(fields), tuple(packed), ranges, end)


def bind(layer: Module, layout: FlatLayout, buffer: torch.Tensor, dtype: torch.dtype) -> None:
    """Make the layer's parameters views of `buffer` (uint8, aligned, at least `layout.num_bytes` long)."""
    layer.buffer = buffer
    elements = buffer.view(dtype)
    for field in layout.fields:
        view = elements.narrow(0, field.offset // dtype.itemsize, field.num_bytes // dtype.itemsize)
        owner, name = _owner(layer, field.name)
        parameter = Parameter(view.view(field.shape), requires_grad=False)
        # What `setattr` does in more steps: a layer that is fetched is bound for each token.
        owner._parameters[name] = owner.__dict__[name] = parameter
    for entry in layout.packed:
        stack = PackedWeight.of_entry(entry, buffer, dtype)
        for path in entry.names:
            owner, name = _owner(layer, path)
            owner._parameters.pop(name, None)
            owner.__dict__[name] = stack.rows(path, *entry.row_range(path))
    for module in layer.modules():
        if isinstance(module, Attention | MLP):
            module.bind()


def _owner(layer: Module, name: str) -> tuple[Module, str]:
    """The module that has the parameter, and the parameter's name there."""
    *path, last = name.split(".")
    for part in path:
        layer = layer._modules[part]
    return layer, last


def aligned_buffer(num_bytes: int, device: torch.device | str) -> torch.Tensor:
    """Uninitialised uint8 [num_bytes] that starts at a multiple of `ALIGNMENT`."""
    raw = torch.empty(num_bytes + ALIGNMENT, dtype=torch.uint8, device=device)
    skip = -raw.data_ptr() % ALIGNMENT  # PyTorch's CPU allocator aligns to 64 bytes only
    return raw[skip : skip + num_bytes]
