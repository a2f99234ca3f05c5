"""What a Linear has in place of its weight where that is stored quantised."""

import torch

from minillm.quant import codec
from minillm.quant.formats import Format
from minillm.quant.layout import Entry


class PackedWeight:
    """A matrix [rows, columns] in the parts of a format, often some rows of a stack of several.

    `linear` takes it as it takes a tensor; it is filled by `copy_`, which quantises, or by `store`. Not a
    Parameter: nothing else is ever done with it.

    `made_on`: where `copy_` quantises. `named_weights` makes it the model's device, so that a GPU does the
    arithmetic for layers in host memory, too; the bits are the same wherever they are made.
    """

    def __init__(self, name: str, format: Format, parts: codec.Parts, columns: int, dtype: torch.dtype):
        self.name, self.format, self.parts, self.dtype = name, format, parts, dtype
        self.shape = torch.Size((len(parts["packed"]), columns))
        self._stack: PackedWeight | None = None
        self.made_on = parts["packed"].device

    @classmethod
    def of_entry(cls, entry: Entry, buffer: torch.Tensor, dtype: torch.dtype) -> "PackedWeight":
        """All rows of an entry of a layer's flat `buffer`; `dtype` is that of what is filled in."""
        parts = codec.at(entry.places, buffer)
        return cls(" and ".join(entry.names), entry.format, parts, entry.columns, dtype)

    def rows(self, name: str, begin: int, end: int) -> "PackedWeight":
        """One of the matrices that are stacked here, which may be the only one."""
        if end - begin == len(self.parts["packed"]):
            self.name = name
            return self
        parts = codec.rows_of(self.parts, begin, end)
        part = PackedWeight(name, self.format, parts, self.shape[1], self.dtype)
        part._stack = self
        return part

    @property
    def stack(self) -> "PackedWeight":
        """All rows that lie together; not kept where that is this: a circle would hold device memory."""
        return self._stack or self

    @property
    def is_cpu(self) -> bool:
        return self.parts["packed"].is_cpu

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts.values())

    def empty(self) -> torch.Tensor:
        """Memory for the dense matrix, to be filled and then given to `copy_`."""
        return torch.empty(self.shape, dtype=self.dtype, device=self.made_on)

    def copy_(self, dense: torch.Tensor) -> None:
        """Quantise `dense`, on any device, into this place; InputError for what the format cannot store.

        What that takes of a GPU for a moment is 0.1 GiB, before there is a KV cache or a workspace.
        """
        codec.write(self.format, dense, self.parts, self.name, self.made_on, self.dtype)

    def store(self, parts: codec.Parts) -> None:
        """Take over what is quantised already, in this format."""
        for key, value in parts.items():
            self.parts[key].copy_(value)

    def dense(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """The matrix that is stored."""
        return codec.dequantise(self.format, self.parts, dtype)

    def linear(self, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """x · weightᵀ + bias; [..., columns] → [..., rows]."""
        return codec.linear(self.format, x, self.parts, bias)
