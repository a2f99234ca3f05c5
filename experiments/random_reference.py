"""Hugging Face models that hold the same weights as our `random:NAME`."""

import torch
from transformers import GenerationConfig, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from minillm import ModelConfig, presets
from minillm.random_weights import fill_parameter


def make(
    name: str,
    dtype: torch.dtype = torch.bfloat16,
    device: str = "cpu",
    seed: int = 0,
    made_on: torch.device | None = None,
) -> PreTrainedModel:
    """The model of "random:Qwen3-8B" or "Qwen3-8B"; dense geometries only.

    A GPU as `made_on` makes the weights of a model in host memory sooner.
    """
    model = _empty(hf_config(presets.load(name.removeprefix("random:"))), dtype, device)
    for key, parameter in model.named_parameters():
        fill_parameter(key, parameter, seed, made_on)
    return model


def widened(model: PreTrainedModel) -> PreTrainedModel:
    """The same weights in float32: what the rounded ones stand for, computed without further rounding."""
    wide = _empty(model.config, torch.float32, model.device)
    with torch.no_grad():
        for parameter, rounded in zip(wide.parameters(), model.parameters(), strict=True):
            parameter.copy_(rounded)
    return wide


def hf_config(config: ModelConfig, **others) -> Qwen3Config:
    """The Hugging Face configuration of a dense geometry; ValueError for a mixture of experts."""
    if config.num_experts:
        raise ValueError(f"{config.model_type} has experts: only dense models are made here")
    same = (
        *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
        *("num_key_value_heads", "head_dim", "rms_norm_eps", "max_position_embeddings"),
        *("tie_word_embeddings", "attention_bias"),
    )
    rope = {"rope_type": config.rope.rope_type, "rope_theta": config.rope.rope_theta}
    return Qwen3Config(**{key: getattr(config, key) for key in same}, rope_parameters=rope, **others)


def _empty(config: Qwen3Config, dtype: torch.dtype, device: torch.device | str) -> PreTrainedModel:
    with torch.device("meta"):
        model = Qwen3ForCausalLM(config).to(dtype).eval()
    model.to_empty(device=device)
    model.tie_weights()
    # The one thing that is computed and not loaded: its values were lost with the meta device.
    model.model.rotary_emb = Qwen3RotaryEmbedding(config).to(device)
    model.generation_config = GenerationConfig()
    return model.requires_grad_(False)
