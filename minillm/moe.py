"""The mixture-of-experts block: a router sends each token to its top-k experts."""

import torch
import torch.nn.functional as F
from torch.nn import Module, ModuleList

from minillm.config import ModelConfig
from minillm.linear import Linear
from minillm.mlp import MLP


class MoE(Module):
    """Σ over a token's top-k experts of weight · expert(x).

    The softmax runs over all experts before the top k are taken; `norm_topk_prob` rescales the k weights
    to sum to one. Without that rescaling, the other order would give other weights.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.top_k = config.num_experts_per_tok
        self.norm_topk_prob = config.norm_topk_prob
        self.gate = Linear(config.hidden_size, config.num_experts, bias=False)
        self.experts = ModuleList(
            MLP(config.hidden_size, config.moe_intermediate_size) for _ in range(config.num_experts)
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """`hidden` [B, T, hidden] → the same shape."""
        tokens = hidden.flatten(0, -2)  # [B·T, hidden]
        weights, chosen = self.route(tokens)
        out = torch.zeros_like(tokens)
        # One product an expert, over all tokens that chose it, so that each expert's weights are read once.
        for expert in chosen.unique().tolist():
            token, rank = (chosen == expert).nonzero(as_tuple=True)
            part = self.experts[expert](tokens[token]) * weights[token, rank, None]
            out.index_add_(0, token, part)
        return out.view_as(hidden)

    def route(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`tokens` [N, hidden] → weights [N, k] in the tokens' dtype, experts [N, k]."""
        probabilities = F.softmax(self.gate(tokens), dim=-1, dtype=torch.float32)
        weights, chosen = probabilities.topk(self.top_k, dim=-1)
        if self.norm_topk_prob:
            weights = weights / weights.sum(-1, keepdim=True)
        return weights.to(tokens.dtype), chosen
