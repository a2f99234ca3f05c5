"""The SwiGLU MLP (arXiv 2002.05202)."""

import torch
import torch.nn.functional as F
from torch.nn import Linear, Module


class MLP(Module):
    """down(silu(gate(x)) · up(x)); also one expert of the MoE block."""

    def __init__(self, hidden_size: int, width: int):
        super().__init__()
        self.gate_proj = Linear(hidden_size, width, bias=False)
        self.up_proj = Linear(hidden_size, width, bias=False)
        self.down_proj = Linear(width, hidden_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
