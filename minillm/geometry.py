"""Names and shapes of a Qwen3 model's parameters from its configuration alone, without torch.

The modules in `layer.py` and `model.py` define the same; a test holds the two equal.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minillm.config import ModelConfig

PARTS = ("attention", "mlp")  # a decoder layer's two residual blocks, in forward order
ALIGNMENT = 256  # bytes at a multiple of which each parameter starts in its layer's flat buffer

Shapes = dict[str, tuple[int, ...]]


def parameter_shapes(config: "ModelConfig") -> Shapes:
    """Every parameter that is stored: embedding, layers, final norm, head (unless tied)."""
    embedding = (config.vocab_size, config.hidden_size)
    shapes: Shapes = {"model.embed_tokens.weight": embedding}
    for index in range(config.num_hidden_layers):
        for part in PARTS:
            prefix = f"model.layers.{index}."
            shapes |= {prefix + name: shape for name, shape in block_shapes(config, index, part).items()}
    shapes["model.norm.weight"] = (config.hidden_size,)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = embedding
    return shapes


def block_shapes(config: "ModelConfig", index: int, part: str) -> Shapes:
    """Parameters of one residual block, `part` "attention" or "mlp", named relative to the layer."""
    if part == "attention":
        return {"input_layernorm.weight": (config.hidden_size,)} | _attention(config)
    mlp = _experts(config) if config.is_moe_layer(index) else _mlp("mlp", config, config.intermediate_size)
    return {"post_attention_layernorm.weight": (config.hidden_size,)} | mlp


def _attention(config: "ModelConfig") -> Shapes:
    hidden = config.hidden_size
    q = config.num_attention_heads * config.head_dim
    kv = config.num_key_value_heads * config.head_dim
    shapes: Shapes = {}
    for name, rows, columns in (
        ("q_proj", q, hidden),
        ("k_proj", kv, hidden),
        ("v_proj", kv, hidden),
        ("o_proj", hidden, q),
    ):
        shapes[f"self_attn.{name}.weight"] = (rows, columns)
        if config.attention_bias:
            shapes[f"self_attn.{name}.bias"] = (rows,)
    norm = (config.head_dim,)
    return shapes | {"self_attn.q_norm.weight": norm, "self_attn.k_norm.weight": norm}


def _mlp(prefix: str, config: "ModelConfig", width: int) -> Shapes:
    return {
        f"{prefix}.gate_proj.weight": (width, config.hidden_size),
        f"{prefix}.up_proj.weight": (width, config.hidden_size),
        f"{prefix}.down_proj.weight": (config.hidden_size, width),
    }


def _experts(config: "ModelConfig") -> Shapes:
    shapes: Shapes = {"mlp.gate.weight": (config.num_experts, config.hidden_size)}
    for expert in range(config.num_experts):
        shapes |= _mlp(f"mlp.experts.{expert}", config, config.moe_intermediate_size)
    return shapes
