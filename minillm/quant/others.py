"""What GPTQ's and AWQ's int4 files have in common: eight values in an int32, a zero and a scale a group."""

from dataclasses import dataclass

import torch

from minillm.errors import InputError
from minillm.quant import int4
from minillm.quant.formats import Format, int4_format

Tensors = dict[str, torch.Tensor]  # of one Linear: "qweight", "qzeros", "scales", perhaps "g_idx"
PER_INT = 8
WORDS, FLOATS = (torch.int32,), (torch.float16, torch.bfloat16, torch.float32)
DTYPES = {"qweight": WORDS, "qzeros": WORDS, "scales": FLOATS}


@dataclass(frozen=True)
class Unpacked:
    """A matrix [out, in] of such a file: w = (value - zero) · scale, in groups of input columns."""

    values: torch.Tensor  # uint8 [out, in]
    zeros: torch.Tensor  # uint8 [out, groups]
    scales: torch.Tensor  # float [out, groups]
    group_of: torch.Tensor  # int64 [in]: the group of each column

    def dequantise(self) -> torch.Tensor:
        """float32 [out, in], exact: 0 to 15 times a number of 11 bits. Others round this to float16."""
        zeros, scales = self.zeros[:, self.group_of], self.scales[:, self.group_of]
        return (self.values.float() - zeros.float()) * scales.float()

    def parts(self, name: str) -> tuple[Format, Tensors]:
        """Our int4 layout with zeros, which stands for the very same weights.

        Raises InputError, with `name`, where there is none: columns that are not grouped in their order
        (act-order), and scales that float16 does not hold or that are no numbers.
        """
        group = self.values.shape[1] // self.zeros.shape[1]
        check_order(name, self.group_of, group)
        if not self.scales.isfinite().all():
            raise InputError(f"{name}: scales hold infinity or NaN: download the checkpoint again")
        scales = self.scales.half()
        if not torch.equal(scales.float(), self.scales.float()):
            raise InputError(
                f"{name}: scales of {self.scales.dtype} exceed float16: choose another checkpoint"
            )
        format = int4_format(group, "zero")
        packed = int4.pack(self.values.unflatten(1, (-1, group)))
        return format, {"packed": packed, "scale": scales.contiguous(), "zero": self.zeros.contiguous()}


def check_order(name: str, group_of: torch.Tensor, group: int) -> None:
    """Raise InputError unless input columns are grouped in their order, `group` by `group`."""
    order = torch.arange(len(group_of), device=group_of.device) // group
    if not torch.equal(group_of.long(), order):
        raise InputError(
            f"{name}: g_idx is out of order (desc_act, act-order), which minillm cannot store packed: "
            "choose a checkpoint made with desc_act false"
        )


def nibbles(packed: torch.Tensor, places: tuple[int, ...]) -> torch.Tensor:
    """int32 [n, k] → uint8 [n, 8k]: of each int32 the four bits at `places[0]`, then at `places[1]`, …"""
    shifts = 4 * torch.tensor(places, dtype=torch.int32, device=packed.device)
    return (packed[..., None] >> shifts & 15).to(torch.uint8).flatten(1)


def check_tensors(name: str, tensors: Tensors) -> None:
    """Raise InputError for tensors that are missing or of another kind."""
    missing = [key for key in DTYPES if key not in tensors]
    if missing:
        raise InputError(f"{name}.{missing[0]} is missing: download the checkpoint again")
    for key, dtypes in DTYPES.items():
        found = tensors[key]
        if found.dtype not in dtypes or found.dim() != 2:
            known = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
            raise InputError(
                f"{name}.{key} is {found.dtype} {list(found.shape)}: minillm reads {known} matrices, choose "
                "another checkpoint"
            )


def check_shapes(name: str, tensors: Tensors, rows: int, columns: int) -> None:
    """Raise InputError for tensors that do not belong together."""
    groups = len(tensors["scales"])
    expected = {"qzeros": (groups, rows // PER_INT), "scales": (groups, rows)}
    for key, shape in expected.items():
        if tuple(tensors[key].shape) != shape:
            raise InputError(
                f"{name}.{key} has shape {list(tensors[key].shape)}, but {list(shape)} belong to its "
                "qweight: download the checkpoint again"
            )
    if not groups or rows % PER_INT or columns % (2 * groups):
        raise InputError(
            f"{name} has {columns} columns in {groups} groups and {rows} rows: minillm reads groups of a "
            "whole, even number of columns and rows that 8 divides"
        )
