"""Layer stores for weights that do not fit: every layer lies in host memory, some also stay on the device.

`NaiveOffload` copies a layer when it is reached and waits. `PrefetchOffload` follows a schedule: while one
block is computed, the next one is already on its way.
"""

from collections.abc import Container, Iterable

import torch

from minillm.accelerators import Accelerator
from minillm.budget import Decision
from minillm.layer import DecoderLayer
from minillm.offload.base import OffloadedLayers
from minillm.offload.naive import NaiveOffload
from minillm.offload.prefetch import PrefetchOffload
from minillm.schedule import prefetch as prefetch_schedule

__all__ = ["NaiveOffload", "OffloadedLayers", "PrefetchOffload", "make_store"]


def make_store(
    layers: Iterable[DecoderLayer],
    decision: Decision,
    accelerator: Accelerator,
    dtype: torch.dtype,
    settled: Container[int] = (),
) -> OffloadedLayers:
    """The store that `decision` asks for, over `layers` in host memory, or `settled` on the device."""
    if decision.mode == "naive":
        return NaiveOffload(layers, decision.placement, accelerator, dtype, settled)
    return PrefetchOffload(layers, prefetch_schedule(decision.placement), accelerator, dtype, settled)
