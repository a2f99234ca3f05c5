"""How fast this machine's link is."""

import time

import torch

from minillm.accelerators import Accelerator
from minillm.arena import HostArena
from minillm.units import GB

LARGEST, LONG_S = 64 * 2**20, 0.02  # bytes of a copy; copies grow, and then get more, until they take so long


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
