"""Dummy weights for vLLM 0.24.0 without the wait, in one process; nothing changes once they are there.

vLLM fills each parameter once for every level of modules it is nested in, about six times, and offloaded
ones on one CPU thread. Here the GPU's generator fills each once, over the same range.
"""

import torch

LOW, HIGH, SEED = -1e-3, 1e-3, 1234  # vLLM's own


def install() -> None:
    """Put the quick filling in the place of vLLM's."""
    from vllm.model_executor.model_loader import dummy_loader

    dummy_loader.initialize_dummy_weights = fill


@torch.no_grad()
def fill(
    model: torch.nn.Module, model_config: object, low: float = LOW, high: float = HIGH, seed: int = SEED
) -> None:
    """Fill what `model` itself owns; vLLM calls this for each module inside it, too."""
    kept = {
        name: each for name, each in model._buffers.items() if name not in model._non_persistent_buffers_set
    }
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for tensor in (*model._parameters.values(), *kept.values()):
        if tensor is None or tensor.is_meta or not torch.is_floating_point(tensor):
            continue
        there = tensor.device.type == device.type  # a copy of the largest would count as memory in use
        fresh = tensor.data if there else torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
        fresh.uniform_(low, high, generator=torch.Generator(device).manual_seed(seed))
        if not there:
            tensor.data.copy_(fresh)
