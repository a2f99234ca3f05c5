"""The `config.json` of a model that is saved in fewer bits. No torch."""

from typing import Any

from minillm.config import ARCHITECTURES, ModelConfig, read_json
from minillm.model_source import ModelSource

SAME = (  # keys that are fields of ModelConfig
    *("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps", "max_position_embeddings"),
    *("tie_word_embeddings", "attention_bias"),
)
SAME_MOE = (
    *("num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob", "decoder_sparse_step"),
    "mlp_only_layers",
)


def config_values(source: ModelSource, config: ModelConfig) -> dict[str, Any]:
    """The source's own file where it has one, with `config`'s dtype and formats."""
    values = read_json(source.folder / "config.json", "") if source.folder else _geometry(config)
    values.pop("torch_dtype", None)
    quantisation = {"quant_method": "minillm", "quantize": str(config.quantize)}
    return values | {"dtype": config.dtype, "quantization_config": quantisation}


def _geometry(config: ModelConfig) -> dict[str, Any]:
    """Of a published geometry, which has no file here; all of those have plain RoPE."""
    values = {name: getattr(config, name) for name in SAME + (SAME_MOE if config.num_experts else ())}
    return values | {
        "architectures": [ARCHITECTURES[config.model_type]],
        "rope_parameters": {"rope_type": config.rope.rope_type, "rope_theta": config.rope.rope_theta},
        "eos_token_id": list(config.eos_token_ids),
    }
