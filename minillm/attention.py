"""Grouped-query attention with QK-norm.

Shapes, here and in every other file:
    B sequences   T new tokens a sequence   S tokens a sequence in the cache, new ones included
    H query heads   K key/value heads   D head_dim
"""

import torch
import torch.nn.functional as F
from torch.nn import Module

from minillm.cache import LayerCache
from minillm.config import ModelConfig
from minillm.device import has_flash
from minillm.linear import Linear, project, side_by_side
from minillm.norm import RMSNorm
from minillm.rope import Rotation


class Attention(Module):
    """softmax(q·kᵀ/√D)·v; each key/value head serves H/K query heads (GQA, arXiv 2305.13245)."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        hidden, D, bias = config.hidden_size, config.head_dim, config.attention_bias
        self.head_dim = D
        self.q_proj = Linear(hidden, config.num_attention_heads * D, bias=bias)
        self.k_proj = Linear(hidden, config.num_key_value_heads * D, bias=bias)
        self.v_proj = Linear(hidden, config.num_key_value_heads * D, bias=bias)
        self.o_proj = Linear(config.num_attention_heads * D, hidden, bias=bias)
        self.q_norm = RMSNorm(D, config.rms_norm_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(D, config.rms_norm_eps) if config.qk_norm else None
        self.bind()

    def bind(self) -> None:
        """Look at where the weights lie; to be called again when they have moved."""
        self.projections = (self.q_proj, self.k_proj, self.v_proj)
        self.counts = [projection.out_features // self.head_dim for projection in self.projections]
        self.stacked = side_by_side(*self.projections)

    def forward(self, hidden: torch.Tensor, cache: LayerCache, rotation: Rotation) -> torch.Tensor:
        """`hidden` [B, T, hidden] → the same shape; appends T keys and values to `cache`."""
        q, k, v = self.heads(project(hidden, self.projections, self.stacked)).split(self.counts, 1)
        if self.q_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = rotation.apply(q), rotation.apply(k)
        k, v = cache.append(k, v)  # [B, K, S, D]
        return self.o_proj(attend(q, k, v, cache.current.mask))

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        """[B, T, heads·D] → [B, heads, T, D]."""
        B, T, _ = x.shape
        if T == 1:
            return x.view(B, -1, 1, self.head_dim)
        return x.view(B, T, -1, self.head_dim).transpose(1, 2)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """`q` [B, H, T, D] over `k`, `v` [B, K, S, D] → [B, T, H·D], the heads side by side.

    `mask` (True: may look) broadcasts to [B, 1, T, S]; None means causal, the T tokens being the last of S.
    Without FlashAttention None needs S = T or T = 1.
    """
    if q.shape[2] > 1:
        return _attend_many(q, k, v, mask).transpose(1, 2).flatten(2)
    # One token: the H/K query heads of a group become rows of one product, so that no key is repeated.
    grouped = q.view(q.shape[0], k.shape[1], -1, q.shape[3])  # [B, K, H/K, D]
    return F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask).reshape(q.shape[0], 1, -1)


def _attend_many(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    if mask is None and has_flash(q.device, q.dtype, q.shape[3]):
        # Called by name, since only FlashAttention takes shared heads, and T < S without a table of T × S.
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, is_causal=True)[0]
    if q.is_cuda and q.shape[1] > k.shape[1]:  # the next best kernel wants a key for each query head
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=q.shape[1] != k.shape[1]
    )
