"""A decoder layer: two residual blocks, which are the units that offloading moves."""

from collections.abc import Callable
from types import MappingProxyType, MethodType

import torch
from torch.nn import Module

from minillm.attention import Attention
from minillm.cache import LayerCache
from minillm.config import ModelConfig
from minillm.geometry import PARTS, block_shapes
from minillm.mlp import MLP
from minillm.moe import MoE
from minillm.norm import RMSNorm
from minillm.rope import Rotation


class DecoderLayer(Module):
    """Module names are Hugging Face's, so that a checkpoint key is an attribute path.

    Modules are declared in the order in which the forward pass reads them: the flat buffer keeps it.
    `shapes` of each block's parameters and `formats` of its matrices say what that buffer holds.
    """

    def __init__(self, config: ModelConfig, index: int):
        super().__init__()
        self.shapes = {part: block_shapes(config, index, part) for part in PARTS}
        self.formats = {part: config.formats(index, part) for part in PARTS}
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        if config.is_moe_layer(index):
            self.mlp = MoE(config)
        else:
            self.mlp = MLP(config.hidden_size, config.intermediate_size, config.mlp_bias)

    def attention_block(self, hidden: torch.Tensor, cache: LayerCache, rotation: Rotation) -> torch.Tensor:
        """hidden + attention(norm(hidden)), [B, T, hidden]."""
        return hidden + self.self_attn(self.input_layernorm(hidden), cache, rotation)

    def mlp_block(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden + mlp(norm(hidden)), [B, T, hidden]."""
        return hidden + self.mlp(self.post_attention_layernorm(hidden))

    # What computes each block: functions of the layer. A model on a GPU gets fused ones, see `fused.py`.
    blocks = MappingProxyType({"attention": attention_block, "mlp": mlp_block})

    def block(self, part: str) -> Callable[..., torch.Tensor]:
        """The block called `part`: "attention" or "mlp"."""
        return MethodType(self.blocks[part], self)
