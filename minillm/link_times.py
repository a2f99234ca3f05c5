"""What bringing layers over the link costs here: the rate of copies, and what fetching adds to them."""

import time
from dataclasses import replace
from statistics import median

import torch

from minillm import flat
from minillm.accelerators import Accelerator
from minillm.arena import HostArena
from minillm.config import ModelConfig
from minillm.geometry import ALIGNMENT
from minillm.offload import NaiveOffload
from minillm.schedule import place
from minillm.units import GB
from minillm.weights import build

LARGEST, LONG_S = 64 * 2**20, 0.02  # bytes of a copy; copies grow, and then get more, until they take so long
FETCHES = 20


def link_gb_s(accelerator: Accelerator, repeats: int = 3) -> float:
    """The accelerator's copies, one behind the other as an offloading engine has them; the best of some."""
    arena, target = HostArena(LARGEST), accelerator.empty(LARGEST)
    try:
        arena.touch()
        if accelerator.pins:
            arena.pin()
        size, copies = LARGEST // 1024, 1
        while _copies_s(accelerator, target[:size], arena.memory[:size], copies) < LONG_S:
            size, copies = (4 * size, 1) if size < LARGEST else (size, 2 * copies)
        pair = target[:size], arena.memory[:size]
        return size * copies / GB / min(_copies_s(accelerator, *pair, copies) for _ in range(repeats))
    finally:
        accelerator.give_back(target)
        arena.close()


def _copies_s(accelerator: Accelerator, target: torch.Tensor, source: torch.Tensor, copies: int) -> float:
    accelerator.synchronize()
    began = time.perf_counter()
    for _ in range(copies):
        accelerator.copy(target, source)
    accelerator.synchronize()
    return time.perf_counter() - began


def fetch_s(config: ModelConfig, dtype: torch.dtype, accelerator: Accelerator) -> float:
    """Seconds in which naive offloading fetches and drops a layer, beside the copying.

    Of a layer with as many parameters as `config`'s last one, and so few bytes that copying hardly counts.
    """
    narrow = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 1, "num_key_value_heads": 1}
    small = replace(config, head_dim=32, moe_intermediate_size=32, vocab_size=2, quantize=None, **narrow)
    layers = build(small, dtype, "cpu", lambda parameters: None).model.layers
    arena = HostArena(sum(layer.buffer.numel() for layer in layers) + ALIGNMENT)
    try:
        arena.touch()
        if accelerator.pins:
            arena.pin()
        for layer in layers:
            flat.bind(layer, flat.layout_of(layer, dtype), arena.take(layer.buffer.numel()), dtype)
        store = NaiveOffload(layers, place(len(layers), 1, 1), accelerator, dtype)
        times = [_fetched_s(store) for _ in range(FETCHES)]
        store.release()
        return median(times)
    finally:
        arena.close()


def _fetched_s(store: NaiveOffload) -> float:
    began = time.perf_counter()
    store.fetch(len(store) - 1)
    store.restart()
    return time.perf_counter() - began
