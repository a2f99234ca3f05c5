"""Where a loaded model lies and how much memory that takes, as text."""

from minillm import memory
from minillm.config import ModelConfig
from minillm.units import gib


def report(config: ModelConfig, dtype_bytes: int, max_model_len: int, device: str) -> str:
    """One line a fact; sizes are exact except the workspace."""
    plan = memory.plan(config, dtype_bytes, max_model_len)
    layers = config.num_hidden_layers
    lines = (
        f"{layers} of {layers} layers resident on {device}: {gib(plan.layers)}",
        f"embedding, head and norm: {gib(plan.weights - plan.layers)}",
        f"KV cache: {gib(plan.kv_per_token)} a token, {gib(plan.kv)} for a context of {max_model_len}",
        f"workspace of the longest prefill: about {gib(plan.workspace)}",
    )
    return "\n".join(lines)
