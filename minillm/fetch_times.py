"""What naive offloading adds to a layer that it fetches, beside the copying.

The host waits for the copy and asks for the next operation, or graph, only then: nothing overlaps that, and
none of it shows in a bandwidth.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from minillm import flat
from minillm.accelerators import Accelerator
from minillm.arena import HostArena
from minillm.layer import DecoderLayer
from minillm.model import Qwen3
from minillm.offload import NaiveOffload
from minillm.schedule import Placement
from minillm.units import GB


def fetch_s(
    model: Qwen3,
    layers: list[DecoderLayer],
    dtype: torch.dtype,
    accelerator: Accelerator,
    longer_s: Callable[[], float],
    link_gb_s: float,
) -> float:
    """Seconds a layer, of a model that lies on the device.

    `longer_s()`: seconds that a pass now takes longer than it did. Every other layer is fetched meanwhile,
    all from the same host memory, as much as the largest takes; RunError where there is not so much.
    """
    fetched = range((len(layers) - 1) % 2, len(layers), 2)
    layouts = {index: flat.layout_of(layers[index], dtype) for index in fetched}
    with _fetching(model, layers, layouts, dtype, accelerator):
        seconds = longer_s()
    copying_s = sum(layout.num_bytes for layout in layouts.values()) / (link_gb_s * GB)
    return max(0.0, seconds - copying_s) / len(fetched)


@contextmanager
def _fetching(
    model: Qwen3,
    layers: list[DecoderLayer],
    layouts: dict[int, flat.FlatLayout],
    dtype: torch.dtype,
    accelerator: Accelerator,
) -> Iterator[None]:
    """The model with naive offloading, for which layers with `layouts` move to host memory."""
    arena = HostArena(max(layout.num_bytes for layout in layouts.values()))
    try:
        arena.touch()
        if accelerator.pins:
            arena.pin()
        for index, layout in layouts.items():
            flat.bind(layers[index], layout, arena.memory[: layout.num_bytes], dtype)
        resident = tuple(index for index in range(len(layers)) if index not in layouts)
        placement = Placement(resident, tuple(layouts), 1)
        model.model.layers = store = NaiveOffload(layers, placement, accelerator, dtype, resident)
        try:
            yield
        finally:
            store.release()
    finally:
        arena.close()
