"""A decoder layer's two blocks by fused kernels: what `DecoderLayer` computes, in fewer steps on the GPU.

A single row goes through products that do everything around them as well. With more rows the products are
PyTorch's, which multiply faster; what lies between query, cache and attention is fused in either case.
"""

import torch

from minillm import attention
from minillm.cache import LayerCache
from minillm.kernels.attend import attend
from minillm.kernels.attend_many import attend_many, suits
from minillm.kernels.expand import expand
from minillm.kernels.gemv import gemv
from minillm.kernels.gemv_packed import gemv_packed
from minillm.kernels.place import place
from minillm.kernels.swiglu import swiglu
from minillm.layer import DecoderLayer
from minillm.linear import linear
from minillm.mlp import MLP
from minillm.model import Qwen3
from minillm.norm import RMSNorm
from minillm.quant.codec import by_pieces
from minillm.quant.weight import PackedWeight
from minillm.rope import Rotation


def fuse(model: Qwen3) -> None:
    """Let every layer compute by the blocks here; layers of experts keep their MLP."""
    for layer in model.model.layers:
        mlp = mlp_block if isinstance(layer.mlp, MLP) else layer.blocks["mlp"]
        layer.blocks = {"attention": attention_block, "mlp": mlp}
    model.model.layers.prepare()
    model.product = product


def attention_block(
    layer: DecoderLayer, hidden: torch.Tensor, cache: LayerCache, rotation: Rotation
) -> torch.Tensor:
    """`DecoderLayer.attention_block`; may write its result over `hidden`."""
    own = layer.self_attn
    qkv = product(hidden, own.stacked, layer.input_layernorm)
    norms = own.q_norm.weight, own.k_norm.weight
    q = place(qkv, norms, own.q_norm.eps, rotation, cache.keys, cache.values)
    if hidden.shape[1] == 1:
        mixed = attend(q, cache.keys, cache.values, rotation.positions)
    else:
        mixed = look_back(q, cache)
    return add_product(hidden, mixed, own.o_proj.weight)


def look_back(q: torch.Tensor, cache: LayerCache) -> torch.Tensor:
    """Attention of several tokens, `q` [B, T, H, D], over what is in the cache, themselves included."""
    end, mask = cache.current.end, cache.current.mask
    if mask is None and suits(q.device, q.dtype, q.shape[3]):
        return attend_many(q, cache.keys, cache.values, end)
    k, v = (stored.narrow(2, 0, end) for stored in (cache.keys, cache.values))
    return attention.attend(q.transpose(1, 2), k, v, mask)


def mlp_block(layer: DecoderLayer, hidden: torch.Tensor) -> torch.Tensor:
    """`DecoderLayer.mlp_block`; may write its result over `hidden`."""
    mlp, norm = layer.mlp, layer.post_attention_layernorm
    if is_row(hidden):
        active = row_product(hidden.view(-1), mlp.stacked, norm=(norm.weight, norm.eps), silu=True)
        return add_product(hidden, active, mlp.down_proj.weight)
    active = swiglu(product(hidden, mlp.stacked, norm))
    return add_product(hidden, active, mlp.down_proj.weight)


def product(hidden: torch.Tensor, weight: torch.Tensor, norm: RMSNorm) -> torch.Tensor:
    """`normed_product`."""
    if not is_row(hidden):
        return many_rows(norm(hidden), weight)
    row = row_product(hidden.view(-1), weight, norm=(norm.weight, norm.eps))
    return row.view(*hidden.shape[:-1], -1)


def add_product(hidden: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """`hidden` [B, T, hidden] + `x` · weightᵀ."""
    if is_row(hidden):
        return row_product(x.view(-1), weight, residual=hidden.view(-1)).view_as(hidden)
    if not isinstance(weight, torch.Tensor):
        return hidden.add_(many_rows(x, weight))
    # In place, and inside the product: a sum of its own would read and write the hidden states once more.
    hidden.view(-1, hidden.shape[-1]).addmm_(x.reshape(-1, x.shape[-1]), weight.t())
    return hidden


def row_product(x: torch.Tensor, weight: torch.Tensor | PackedWeight, **around) -> torch.Tensor:
    """`gemv`, whichever way the matrix is stored."""
    return (gemv if isinstance(weight, torch.Tensor) else gemv_packed)(x, weight, **around)


def many_rows(x: torch.Tensor, weight: torch.Tensor | PackedWeight) -> torch.Tensor:
    """x · weightᵀ for `x` [..., in] of several rows."""
    if isinstance(weight, torch.Tensor) or not weight.format.name.startswith("int4"):
        return linear(x, weight)
    return by_pieces(x, weight.shape[0], lambda *piece: expand(weight.rows(weight.name, *piece), x.dtype))


def is_row(hidden: torch.Tensor) -> bool:
    """Whether there is one token of one sequence."""
    return hidden.numel() == hidden.shape[-1]
