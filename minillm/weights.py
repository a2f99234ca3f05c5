"""From a configuration to a model with weights: memory first, then a source that fills it.

A source is a checkpoint (`loader.py`) or a seed (`random_weights.py`); both fill parameters in place, so
that no second copy of the model ever exists.
"""

from collections.abc import Callable, Iterable, Iterator

import torch
from torch.nn import Module, Parameter

from minillm import flat
from minillm.accelerators import Accelerator
from minillm.arena import HostArena
from minillm.budget import Decision
from minillm.config import ModelConfig
from minillm.fast_path import fuse
from minillm.geometry import ALIGNMENT
from minillm.model import Qwen3
from minillm.offload import make_store
from minillm.quant.weight import PackedWeight
from minillm.rope import Rope

Fill = Callable[[Iterable[tuple[str, torch.Tensor]]], None]
Take = Callable[[int], torch.Tensor]  # bytes → uint8 memory, aligned


def build(
    config: ModelConfig,
    dtype: torch.dtype,
    device: torch.device | str,
    fill: Fill,
    accelerator: Accelerator | None = None,
) -> Qwen3:
    """A model on `device` whose parameters `fill(named_parameters)` has written.

    It computes eagerly, or as its `accelerator` does best.
    """
    model = blank(config, dtype, accelerator)
    materialise(model, dtype, device, accelerator and accelerator.empty)
    with torch.inference_mode():
        fill(named_weights(model, torch.device(device)))
    return model.eval()


def build_offloaded(
    config: ModelConfig, dtype: torch.dtype, decision: Decision, accelerator: Accelerator, fill: Fill
) -> tuple[Qwen3, HostArena]:
    """A model whose layers lie in one host arena, locked if the device wants it, behind an offloading store.

    Norm and head lie on the device, the embedding too where it serves as the head; else it is looked up in
    host memory. Layers that the decision denies a host copy are filled on the device. If anything fails the
    arena is unlocked again.
    """
    model = blank(config, dtype, accelerator)
    sizes = [flat.layout_of(layer, dtype).num_bytes for layer in model.model.layers]
    tied = config.tie_word_embeddings
    table = 0 if tied else config.vocab_size * config.hidden_size * dtype.itemsize
    arena = HostArena(sum(sizes[index] for index in decision.host_layers) + table + ALIGNMENT)
    settled = set(range(len(sizes))) - set(decision.host_layers)
    places = iter(accelerator.empty if index in settled else arena.take for index in range(len(sizes)))
    try:
        if accelerator.pins:  # first, so that a system that refuses does so before anything is read
            arena.touch()
            arena.pin()
        allocate(
            model,
            dtype,
            layers=lambda num_bytes: next(places)(num_bytes),
            embed=accelerator.empty if tied else arena.take,
            rest=accelerator.empty,
        )
        model.rope = Rope(config.rope, config.head_dim, accelerator.device)
        with torch.inference_mode():
            fill(named_weights(model, accelerator.device))
            model.model.layers = make_store(model.model.layers, decision, accelerator, dtype, settled)
    except BaseException:
        arena.close()
        raise
    shorten_lookups(model)
    return model.eval(), arena


def blank(config: ModelConfig, dtype: torch.dtype, accelerator: Accelerator | None = None) -> Qwen3:
    """A model without memory; eager, or computing as its accelerator does best."""
    with torch.device("meta"):
        model = Qwen3(config)
    if accelerator is not None:
        fuse(model, accelerator, dtype)
    return model


def named_weights(
    model: Module, device: torch.device, prefix: str = ""
) -> Iterator[tuple[str, torch.Tensor | PackedWeight]]:
    """All that has to be filled, by Hugging Face's names; what is to be quantised is so on `device`.

    `prefix`: of the names, where `model` is a part of one.
    """
    for path, module in model.named_modules(prefix=prefix.removesuffix(".")):
        for name, parameter in module._parameters.items():
            if parameter is not None:
                yield f"{path}.{name}", parameter
        if isinstance(packed := module.__dict__.get("weight"), PackedWeight):
            packed.made_on, packed.name = device, f"{path}.weight"
            yield packed.name, packed


def materialise(
    model: Qwen3, dtype: torch.dtype, device: torch.device | str, take: Take | None = None
) -> None:
    """Give every parameter uninitialised memory: a flat buffer a layer, all in one piece, the rest one each.

    PyTorch's allocator rounds each piece of device memory up to 2 MiB.
    """

    take = take or (lambda num_bytes: flat.aligned_buffer(num_bytes, device))
    sizes = [flat.layout_of(layer, dtype).num_bytes for layer in model.model.layers]
    layers = iter(take(sum(sizes)).split(sizes))
    allocate(model, dtype, layers=lambda num_bytes: next(layers), embed=take, rest=take)
    shorten_lookups(model)
    model.rope = Rope(model.config.rope, model.config.head_dim, device)


def allocate(model: Qwen3, dtype: torch.dtype, layers: Take, embed: Take, rest: Take) -> None:
    """Memory for every parameter from the source that its kind is given."""
    for layer in model.model.layers:
        layout = flat.layout_of(layer, dtype)
        flat.bind(layer, layout, layers(layout.num_bytes), dtype)
    _allocate(model.model.embed_tokens, dtype, embed)
    _allocate(model.model.norm, dtype, rest)
    if model.lm_head is not None:
        _allocate(model.lm_head, dtype, rest)


def shorten_lookups(model: Module) -> None:
    """Put parameters and submodules where Python looks first: PyTorch finds them only after a miss there.

    Hundreds of misses a token. Assigning an attribute still works; `model.to()` afterwards does not.
    """
    for module in model.modules():
        module.__dict__.update(module._parameters | module._modules)


def _allocate(module: Module, dtype: torch.dtype, take: Take) -> None:
    shape = module.weight.shape
    buffer = take(shape.numel() * dtype.itemsize)
    module.weight = Parameter(buffer.view(dtype).view(shape), requires_grad=False)
