"""The geometries that the training command knows: `tiny`, `tiny-moe`, `tiny-draft`."""

from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from training.tokenizer import CONTEXT, VOCABULARY

SHARED = {
    "vocab_size": VOCABULARY,
    "hidden_size": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": CONTEXT,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
    "tie_word_embeddings": True,
    "bos_token_id": None,
}
DENSE = {"tiny": {"num_hidden_layers": 8}, "tiny-draft": {"num_hidden_layers": 2}}
EXPERTS = {
    "num_hidden_layers": 6,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "norm_topk_prob": True,
    "router_aux_loss_coef": 0.01,
}
NAMES = (*DENSE, "tiny-moe")


def build(name, end_id):
    """A randomly initialised float32 model of preset `name`; `end_id` is the token that closes a chat turn.

    Raises ValueError for an unknown name.
    """
    if name in DENSE:
        config = Qwen3Config(**SHARED, **DENSE[name], intermediate_size=512, eos_token_id=end_id)
        return Qwen3ForCausalLM(config)
    if name == "tiny-moe":
        config = Qwen3MoeConfig(**SHARED, **EXPERTS, intermediate_size=512, eos_token_id=end_id)
        return Qwen3MoeForCausalLM(config)
    raise ValueError(f"no preset {name!r}; choose from {', '.join(NAMES)}")


def generation_config(end_ids, pad_id):
    """Greedy by default; generation ends at any of `end_ids`."""
    return GenerationConfig(eos_token_id=list(end_ids), pad_token_id=pad_id, do_sample=False)
