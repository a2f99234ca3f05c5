"""From a configuration to a model with weights: memory first, then a source that fills it.

A source is a checkpoint (`loader.py`) or a seed (`random_weights.py`); both fill parameters in place, so
that no second copy of the model ever exists.
"""

from collections.abc import Callable, Iterable

import torch
from torch.nn import Module, Parameter

from minillm import flat
from minillm.config import ModelConfig
from minillm.model import Qwen3
from minillm.rope import Rope

Fill = Callable[[Iterable[tuple[str, torch.Tensor]]], None]


def build(config: ModelConfig, dtype: torch.dtype, device: torch.device | str, fill: Fill) -> Qwen3:
    """A model on `device` whose parameters `fill(named_parameters)` has written."""
    with torch.device("meta"):
        model = Qwen3(config)
    materialise(model, dtype, device)
    with torch.inference_mode():
        fill(model.named_parameters())
    return model.eval()


def materialise(model: Qwen3, dtype: torch.dtype, device: torch.device | str) -> None:
    """Give every parameter uninitialised memory: one flat buffer a layer, the rest one each."""
    for layer in model.model.layers:
        layout = flat.layout_of(layer, dtype)
        flat.bind(layer, layout, flat.aligned_buffer(layout.num_bytes, device), dtype)
    for module in (model.model.embed_tokens, model.model.norm, model.lm_head):
        if module is not None:
            _allocate(module, dtype, device)
    shorten_lookups(model)
    model.rope = Rope(model.config.rope, model.config.head_dim, device)


def shorten_lookups(model: Module) -> None:
    """Put parameters and submodules where Python looks first: PyTorch finds them only after a miss there.

    Hundreds of misses a token. Assigning an attribute still works; `model.to()` afterwards does not.
    """
    for module in model.modules():
        module.__dict__.update(module._parameters | module._modules)


def _allocate(module: Module, dtype: torch.dtype, device: torch.device | str) -> None:
    shape = module.weight.shape
    buffer = flat.aligned_buffer(shape.numel() * dtype.itemsize, device)
    module.weight = Parameter(buffer.view(dtype).view(shape), requires_grad=False)
