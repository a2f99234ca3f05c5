"""Packed matrices in a safetensors checkpoint: under which keys, checked by headers, read as parts.

model.layers.0.mlp.up_proj.weight.packed, .scale, …        ours: the parts as they lie in memory
model.layers.0.mlp.up_proj.qweight, .qzeros, .scales       GPTQ's (with .g_idx) and AWQ's
"""

from dataclasses import dataclass

import torch

from minillm.checkpoint import FLOATS, Checkpoint
from minillm.config import ModelConfig
from minillm.errors import InputError
from minillm.geometry import PARTS
from minillm.quant import awq, gptq, others
from minillm.quant.formats import Format
from minillm.quant.mix import Mix

STORED_AS = {"int8": "I8", "uint8": "U8", "float8_e4m3fn": "F8_E4M3"}  # torch's name → safetensors'
STORED_AS |= {torchs: name for name, torchs in FLOATS.items()}


@dataclass(frozen=True)
class PackedSource:
    """Where a matrix that we saved comes from."""

    name: str  # of the parameter
    format: Format

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(f"{self.name}.{part.name}" for part in self.format.parts)

    def check(self, shape: tuple[int, ...], checkpoint: Checkpoint) -> None:
        """Raise InputError for parts of another type or shape."""
        for key, part in zip(self.keys, self.format.parts, strict=True):
            stored, dtype, expected = checkpoint.tensors[key], STORED_AS[part.dtype], part.shape(*shape)
            if (stored.dtype, stored.shape) != (dtype, expected):
                raise InputError(
                    f"{checkpoint.folder}: {key} is {stored.dtype} {list(stored.shape)}, but in "
                    f"{self.format.name} it is {dtype} {list(expected)}; wrong config.json?"
                )

    def read(self, checkpoint: Checkpoint) -> others.Tensors:
        """The parts, views into the file."""
        return {
            part.name: checkpoint.tensor(key) for key, part in zip(self.keys, self.format.parts, strict=True)
        }


@dataclass(frozen=True)
class Int4Source:
    """Where a matrix of a GPTQ or AWQ checkpoint comes from."""

    module: str  # "model.layers.0.mlp.up_proj"
    format: Format
    kind: str
    offset: int
    has_order: bool  # whether there is a g_idx
    needs_order: bool = False  # whether there must be one

    @property
    def keys(self) -> tuple[str, ...]:
        suffixes = ("qweight", "qzeros", "scales") + (("g_idx",) if self.has_order else ())
        return tuple(f"{self.module}.{suffix}" for suffix in suffixes)

    def check(self, shape: tuple[int, ...], checkpoint: Checkpoint) -> None:
        """Raise InputError for tensors that do not fit together or the model, or are not grouped in order."""
        tensors = self._tensors(checkpoint)
        where = f"{checkpoint.folder}: {self.module}"
        found = {"gptq": gptq, "awq": awq}[self.kind].shape_of(where, tensors)
        if found != shape:
            raise InputError(f"{where} has shape {list(found)}, config.json asks for {list(shape)}")
        group = shape[1] // len(tensors["scales"])
        if group != self.format.group:
            raise InputError(
                f"{where} has groups of {group}, config.json says {self.format.group}; wrong config.json?"
            )
        if self.has_order:
            others.check_order(where, tensors["g_idx"], group)
        elif self.needs_order and group < shape[1]:
            raise InputError(
                f"{where}.g_idx is missing, but config.json says desc_act (act-order): download the "
                "checkpoint again, or choose one made with desc_act false"
            )

    def read(self, checkpoint: Checkpoint) -> others.Tensors:
        """The matrix in our layout."""
        tensors = self._tensors(checkpoint)
        if self.kind == "awq":
            return awq.unpack(self.module, tensors).parts(self.module)[1]
        return gptq.unpack(self.module, tensors, self.offset).parts(self.module)[1]

    def _tensors(self, checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
        return {key.rpartition(".")[2]: checkpoint.tensor(key) for key in self.keys}


def is_no_bias(key: str, config: ModelConfig, checkpoint: Checkpoint) -> bool:
    """Whether it is a bias of zeros beside a matrix of GPTQ, whose older programs gave every matrix one."""
    gptq_file = getattr(config.quantize, "kind", None) == "gptq"
    return gptq_file and key.endswith("_proj.bias") and not checkpoint.tensor(key).any()


def packed_sources(config: ModelConfig, checkpoint: Checkpoint) -> dict[str, PackedSource | Int4Source]:
    """Sources of all matrices that the checkpoint of `config` holds packed, by parameter name."""
    stored, sources = config.quantize, {}
    for index in range(config.num_hidden_layers if stored else 0):
        for name, format in (pair for part in PARTS for pair in config.formats(index, part).items()):
            full = f"model.layers.{index}.{name}"
            module = full.removesuffix(".weight")
            if isinstance(stored, Mix):
                sources[full] = PackedSource(full, format)
            else:
                has_order = stored.kind == "gptq" and f"{module}.g_idx" in checkpoint.tensors
                of_all = stored.kind, stored.zero_offset
                sources[full] = Int4Source(module, format, *of_all, has_order, stored.needs_order)
    return sources
