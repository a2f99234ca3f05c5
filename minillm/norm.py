"""RMSNorm (arXiv 1910.07467), used before each block, before the head, and on queries and keys."""

from functools import cache

import torch
import torch.nn.functional as F
from torch.nn import Module, Parameter


class RMSNorm(Module):
    """x / sqrt(mean(x²) + eps) · weight over the last dimension; the mean is taken in float32."""

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight = Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, self.weight, self.eps)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """`x` [..., width] normalised.

    PyTorch's `rms_norm` is one kernel on a GPU, but a dozen small operations on the CPU, a fifth of a small
    model's step. There, with n = width: x · √n · weight / hypot(‖x‖, √(n · eps)), which is the same number.
    """
    if not (x.is_cpu and x.dtype == torch.float32):
        return F.rms_norm(x, weight.shape, weight, eps)
    width = weight.shape[0]
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x * (weight * width**0.5) / torch.hypot(norm, _floor(width, eps))


@cache
def _floor(width: int, eps: float) -> torch.Tensor:
    """√(width · eps) as the tensor that `hypot` wants."""
    return torch.tensor((width * eps) ** 0.5, device="cpu")
