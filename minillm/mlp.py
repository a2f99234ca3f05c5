"""The SwiGLU MLP (arXiv 2002.05202)."""

import torch
import torch.nn.functional as F
from torch.nn import Module

from minillm.linear import Linear, project, side_by_side


class MLP(Module):
    """down(silu(gate(x)) · up(x)); also one expert of the MoE block."""

    def __init__(self, hidden_size: int, width: int, bias: bool = False):
        super().__init__()
        self.gate_proj = Linear(hidden_size, width, bias=bias)
        self.up_proj = Linear(hidden_size, width, bias=bias)
        self.down_proj = Linear(width, hidden_size, bias=bias)
        self.bind()

    def bind(self) -> None:
        """Look at where the weights lie; to be called again when they have moved."""
        self.projections = (self.gate_proj, self.up_proj)
        self.stacked = side_by_side(*self.projections)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = project(x, self.projections, self.stacked).chunk(2, -1)
        return self.down_proj(F.silu(gate) * up)
