"""Four bits a weight, a scale for each group of columns; the value 8 stands for the group's middle.

    "middle"      w ≈ (value - 8) · scale + middle     ours, groups of 128
    "symmetric"   w ≈ (value - 8) · scale              ours, groups of 64
    "zero"        w = (value - zero) · scale           files of GPTQ and AWQ

Bit layout, with g = columns of a group: the bytes of a row are its groups one after the other, g/2 bytes
each; byte j of a group holds the value of its column j in the low four bits and that of column j + g/2 in
the high four. Both halves of a group are then neighbours in memory, and so are the activations they meet.
"scale", "middle" and "zero" are [rows, groups]. Scale and middle are bfloat16 and mean what they mean in
PyTorch's int4 products, so that those compute with the same numbers as the reference.

Every device makes the same bits of the same weights: all is done one element at a time or does not depend on
an order, and what CUDA would do differently is marked below.
"""

import torch

Parts = dict[str, torch.Tensor]

# Shares of a group's range that are tried besides the whole: a few weights at the ends are cut off and all
# others get a finer scale. On the weights of `tiny` the RMS error falls by 5 % for three times the work.
SHRINK = (0.92, 0.85)


def quantise(weight: torch.Tensor, group: int, symmetric: bool) -> Parts:
    """`weight` [rows, columns] → "packed", "scale" and, if not symmetric, "middle"."""
    groups = weight.float().unflatten(1, (-1, group))  # [rows, groups, group]
    fit = _symmetric if symmetric else _asymmetric
    best = _Fit(groups, *fit(groups, 1.0))
    for shrink in SHRINK:
        best = best.or_better(_Fit(groups, *fit(groups, shrink)))
    parts = {"packed": pack(best.values.to(torch.uint8)), "scale": best.scale[..., 0]}
    return parts if symmetric else parts | {"middle": best.middle[..., 0]}


def _symmetric(groups: torch.Tensor, shrink: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale and middle with which the weight of the largest magnitude is stored as 0, that is -8 · scale."""
    # Of several the first, as argmax promises: their signs can differ. Dividing by a power of two is exact.
    largest = groups.gather(-1, groups.abs().argmax(-1, keepdim=True))
    scale = (largest * shrink / -8).bfloat16()
    return scale, torch.zeros_like(scale)


def _asymmetric(groups: torch.Tensor, shrink: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale and middle with which 0 to 15 span the group's range, shrunk about its centre."""
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    low, high = low + 0.0, high + 0.0  # of zeros of both signs either may have been found; now it is +0
    # By a tensor: CUDA multiplies by the inverse of a number. Halves are the same either way.
    scale = ((high - low) * shrink / groups.new_full((), 15)).bfloat16()
    return scale, ((low + high) / 2 + scale.float() / 2).bfloat16()


class _Fit:
    """Groups in four bits with one choice of scale and middle, and how far off that is."""

    def __init__(self, groups: torch.Tensor, scale: torch.Tensor, middle: torch.Tensor):
        self.scale, self.middle = scale, middle  # [rows, groups, 1]
        step, centre = scale.float(), middle.float()
        self.values = ((groups - centre) / torch.where(step == 0, 1.0, step) + 8).round_().clamp_(0, 15)
        self.error = _sum(((self.values - 8) * step + centre - groups).square_())

    def or_better(self, other: "_Fit") -> "_Fit":
        """Of each group the closer one; this one where they are equal."""
        closer = other.error < self.error
        for name in ("scale", "middle", "values", "error"):
            setattr(self, name, torch.where(closer, getattr(other, name), getattr(self, name)))
        return self


def _sum(numbers: torch.Tensor) -> torch.Tensor:
    """Of the last dimension, which stays; in pairs, since the order of `torch.sum` depends on the device.

    Otherwise fits that are nearly as close as each other would be chosen differently.
    """
    while (width := numbers.shape[-1]) > 1:
        half = width // 2
        rest = numbers[..., 2 * half :]
        numbers = numbers[..., :half] + numbers[..., half : 2 * half]
        numbers = torch.cat((numbers, rest), -1) if width % 2 else numbers
    return numbers


def dequantise(parts: Parts, dtype: torch.dtype) -> torch.Tensor:
    """[rows, columns] in `dtype`: computed in float32, rounded once."""
    scale = parts["scale"].float()[..., None]  # [rows, groups, 1]
    weight = unpack(parts["packed"], scale.shape[1]).float()
    weight.sub_(parts["zero"].float()[..., None] if "zero" in parts else 8).mul_(scale)
    if "middle" in parts:
        weight.add_(parts["middle"].float()[..., None])
    return weight.flatten(1).to(dtype)


def pack(values: torch.Tensor) -> torch.Tensor:
    """uint8 values 0…15 [rows, groups, group] → bytes [rows, groups · group / 2]."""
    low, high = values.chunk(2, -1)
    return (low | high << 4).flatten(1)


def unpack(packed: torch.Tensor, groups: int) -> torch.Tensor:
    """The inverse: bytes [rows, columns / 2] → uint8 values [rows, groups, group]."""
    halves = packed.unflatten(1, (groups, -1))
    return torch.cat((halves & 15, halves >> 4), -1)
