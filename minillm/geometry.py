"""Names and shapes of a Qwen3 model's parameters from its configuration alone, and what they allow. No torch.

The modules in `layer.py` and `model.py` define the same; a test holds the two equal.
"""

from typing import TYPE_CHECKING

from minillm.checks import shown
from minillm.errors import InputError

if TYPE_CHECKING:
    from minillm.config import ModelConfig

PARTS = ("attention", "mlp")  # a decoder layer's two residual blocks, in forward order
CHUNK = 1024  # tokens of a prompt that go through a block together
ALIGNMENT = 256  # bytes at a multiple of which each parameter starts in its layer's flat buffer

# Far beyond any published model: what is above is a damaged file, and would keep a loop busy for hours.
MAX_LAYERS, MAX_EXPERTS, MAX_ALL_EXPERTS, MAX_SIZE = 1000, 4096, 2**17, 2**24
SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"),
    *("head_dim", "moe_intermediate_size"),
)

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
    if not config.qk_norm:
        return shapes
    norm = (config.head_dim,)
    return shapes | {"self_attn.q_norm.weight": norm, "self_attn.k_norm.weight": norm}


def _mlp(prefix: str, config: "ModelConfig", width: int) -> Shapes:
    shapes: Shapes = {}
    for name, rows, columns in (
        ("gate_proj", width, config.hidden_size),
        ("up_proj", width, config.hidden_size),
        ("down_proj", config.hidden_size, width),
    ):
        shapes[f"{prefix}.{name}.weight"] = (rows, columns)
        if config.mlp_bias:
            shapes[f"{prefix}.{name}.bias"] = (rows,)
    return shapes


def _experts(config: "ModelConfig") -> Shapes:
    shapes: Shapes = {"mlp.gate.weight": (config.num_experts, config.hidden_size)}
    for expert in range(config.num_experts):
        shapes |= _mlp(f"mlp.experts.{expert}", config, config.moe_intermediate_size)
    return shapes


def check_geometry(config: "ModelConfig") -> None:
    """Raise InputError where a size is beyond reason or two numbers contradict each other."""
    _check_bounds(config)
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    if heads % kv_heads:
        raise InputError(
            f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}: "
            "each KV head serves the same number of query heads"
        )
    if config.head_dim < 2:
        raise InputError(f"head_dim is {config.head_dim} (null: hidden_size / heads): it must be at least 2")
    if config.head_dim % 2:
        raise InputError(f"head_dim {config.head_dim} is odd: RoPE rotates pairs")
    if config.num_experts_per_tok > config.num_experts:
        raise InputError(
            f"num_experts_per_tok {config.num_experts_per_tok} is more than the {config.num_experts} experts"
        )


def _check_bounds(config: "ModelConfig") -> None:
    limits = dict.fromkeys(SIZES, MAX_SIZE)
    limits |= {"num_hidden_layers": MAX_LAYERS, "num_experts": MAX_EXPERTS}
    for name, limit in limits.items():
        if getattr(config, name) > limit:
            raise InputError(f"{name} is {shown(getattr(config, name))}: minillm takes at most {limit}")
    if config.num_hidden_layers * config.num_experts > MAX_ALL_EXPERTS:
        raise InputError(
            f"num_hidden_layers {config.num_hidden_layers} with num_experts {config.num_experts}: "
            f"minillm takes at most {MAX_ALL_EXPERTS} experts in all"
        )
