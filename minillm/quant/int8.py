"""Eight bits a weight, one scale a row: w ≈ packed · scale.

The scale is a bfloat16 number, so that PyTorch's packed kernels, which want it in the dtype of the
activations, use the very same number as the reference in float32. Every device makes the same bits.
"""

import torch

Parts = dict[str, torch.Tensor]
LARGEST = 127


def quantise(weight: torch.Tensor) -> Parts:
    """`weight` [rows, columns] → "packed" int8 [rows, columns] in -127…127, "scale" bfloat16 [rows]."""
    weight = weight.float()
    # By a tensor: CUDA multiplies by the inverse of a number, and its scales would not be the CPU's.
    scale = (weight.abs().amax(1) / weight.new_full((), LARGEST)).bfloat16()
    divisor = torch.where(scale == 0, 1.0, scale.float())
    # bfloat16 may have rounded the scale down: without the limit the largest weight could become 128.
    packed = (weight / divisor[:, None]).round().clamp(-LARGEST, LARGEST)
    return {"packed": packed.to(torch.int8), "scale": scale}


def dequantise(parts: Parts, dtype: torch.dtype) -> torch.Tensor:
    """[rows, columns] in `dtype`: computed in float32, rounded once."""
    return (parts["packed"].float() * parts["scale"].float()[:, None]).to(dtype)
