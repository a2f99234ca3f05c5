"""Published geometries, for `random:NAME` and for planning without a download.

Figures from the `config.json` files of the Qwen3 release.
"""

from dataclasses import replace

from minillm.config import ModelConfig
from minillm.errors import InputError
from minillm.rope_config import RopeConfig

_COMMON = {
    "vocab_size": 151936,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "rope": RopeConfig(rope_theta=1_000_000.0),
    "dtype": "bfloat16",
    "eos_token_ids": (151645, 151643),
}

# name: hidden, MLP width, layers, query heads, KV heads, tied
_DENSE = {
    "Qwen3-0.6B": (1024, 3072, 28, 16, 8, True),
    "Qwen3-1.7B": (2048, 6144, 28, 16, 8, True),
    "Qwen3-4B": (2560, 9728, 36, 32, 8, True),
    "Qwen3-8B": (4096, 12288, 36, 32, 8, False),
    "Qwen3-14B": (5120, 17408, 40, 40, 8, False),
    "Qwen3-32B": (5120, 25600, 64, 64, 8, False),
}


def _dense(row: tuple) -> ModelConfig:
    hidden, width, layers, heads, kv_heads, tied = row
    return ModelConfig(
        hidden_size=hidden,
        intermediate_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        tie_word_embeddings=tied,
        **_COMMON,
    )


_MOE_30B = ModelConfig(
    model_type="qwen3_moe",
    hidden_size=2048,
    intermediate_size=6144,
    num_hidden_layers=48,
    num_attention_heads=32,
    num_key_value_heads=4,
    num_experts=128,
    num_experts_per_tok=8,
    moe_intermediate_size=768,
    norm_topk_prob=True,
    **_COMMON,
)

PRESETS: dict[str, ModelConfig] = {name: _dense(row) for name, row in _DENSE.items()} | {
    "Qwen3-30B-A3B": _MOE_30B,
    "Qwen3-235B-A22B": replace(
        _MOE_30B,
        hidden_size=4096,
        intermediate_size=12288,
        num_hidden_layers=94,
        num_attention_heads=64,
        moe_intermediate_size=1536,
    ),
}


def load(name: str) -> ModelConfig:
    """The configuration of a published size; InputError lists the names when it is unknown."""
    if name not in PRESETS:
        raise InputError(f"no published geometry {name!r}: choose one of {', '.join(PRESETS)}")
    return PRESETS[name]
