"""RMSNorm (arXiv 1910.07467), used before each block, before the head, and on queries and keys."""

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
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
