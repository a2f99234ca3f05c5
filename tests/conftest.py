"""Fixtures shared by the tests: small random checkpoints saved by transformers, the reference."""

import json
import os
from pathlib import Path

import pytest
import torch
from hub_model import hub_cache, served  # noqa: F401 - fixtures
from saved_models import saved_model, small_model  # noqa: F401 - fixtures

# Two processes that each start as many threads as there are cores spend their time waiting for each other.
torch.set_num_threads(1)

# Without a GPU the kernels run in Triton's interpreter, which is chosen when they are imported.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

SMALL = {
    "vocab_size": 101,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,  # ≠ 48 / 4
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "eos_token_id": None,
    "bos_token_id": None,
    "pad_token_id": None,
}
SMALL_MOE = SMALL | {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
}


@pytest.fixture(autouse=True)
def modes_end_with_the_test():
    """A mode of PyTorch that a test leaves behind would break another one, somewhere else."""
    yield
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()


def make_reference(seed: int = 0, **config):
    """A transformers Qwen3 (MoE when `num_experts` is given), random, with logits that are not flat."""
    from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

    moe = "num_experts" in config
    values = (SMALL_MOE if moe else SMALL) | config
    theta = values.pop("rope_theta")
    values.setdefault("rope_parameters", {"rope_type": "default", "rope_theta": theta})
    config_class, model_class = (
        (Qwen3MoeConfig, Qwen3MoeForCausalLM) if moe else (Qwen3Config, Qwen3ForCausalLM)
    )
    torch.manual_seed(seed)
    model = model_class(config_class(**values)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.uniform_(0.5, 1.5)
            else:
                # Twice the usual width: weaker layers answer every prompt with one token, over and over.
                gain = 2.0 if ".layers." in name else 1.0
                parameter.normal_(0, gain * parameter.shape[-1] ** -0.5)
    return model


@pytest.fixture
def make_checkpoint(tmp_path):
    """`make_checkpoint(name, **config)` → (folder, reference model): saved float32 safetensors."""

    def make(name: str = "model", save: dict | None = None, seed: int = 0, **config) -> tuple[Path, object]:
        reference = make_reference(seed, **config)
        folder = tmp_path / name
        reference.save_pretrained(folder, **(save or {}))
        return folder, reference

    return make


def edit_config(folder: Path, **changes) -> None:
    """Change keys of a saved config.json; a value of `...` removes the key."""
    path = folder / "config.json"
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in values.items() if v is not ...}))
