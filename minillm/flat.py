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


@dataclass(frozen=True)
class Slot:
    """Where one parameter lies in the buffer."""

    name: str  # relative to the layer, "self_attn.q_proj.weight"
    shape: tuple[int, ...]
    offset: int  # bytes
    num_bytes: int


@dataclass(frozen=True)
class FlatLayout:
    """Slots of one layer in forward order, and the byte range of each block."""

    slots: tuple[Slot, ...]
    ranges: dict[str, tuple[int, int]]  # part → begin, end in bytes
    num_bytes: int


def layout_of(layer: DecoderLayer, dtype: torch.dtype) -> FlatLayout:
    """Lay a layer's parameters out, attention block first. The layer may be on the meta device."""
    slots: list[Slot] = []
    ranges, end = {}, 0
    by_part = {part: [(n, p) for n, p in layer.named_parameters() if part_of(n) == part] for part in PARTS}
    for part in PARTS:
        begin = end
        for name, parameter in by_part[part]:
            num_bytes = parameter.numel() * dtype.itemsize
            slots.append(Slot(name, tuple(parameter.shape), end, num_bytes))
            end += -(-num_bytes // ALIGNMENT) * ALIGNMENT
        ranges[part] = (begin, end)
    return FlatLayout(tuple(slots), ranges, end)


def part_of(name: str) -> str:
    """The block that a layer's parameter belongs to."""
    return "attention" if name.startswith(("input_layernorm.", "self_attn.")) else "mlp"


def bind(layer: Module, layout: FlatLayout, buffer: torch.Tensor, dtype: torch.dtype) -> None:
    """Make the layer's parameters views of `buffer` (uint8, aligned, at least `layout.num_bytes` long)."""
    layer.buffer = buffer
    elements = buffer.view(dtype)
    for slot in layout.slots:
        view = elements.narrow(0, slot.offset // dtype.itemsize, slot.num_bytes // dtype.itemsize)
        owner, name = _owner(layer, slot.name)
        parameter = Parameter(view.view(slot.shape), requires_grad=False)
        # What `setattr` does in more steps: a layer that is fetched is bound for each token.
        owner._parameters[name] = owner.__dict__[name] = parameter
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
