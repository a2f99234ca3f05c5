"""Stores: what stands behind `use(index, part)`, the one place where the model meets placement."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from torch.nn import ModuleList

from minillm.config import ModelConfig
from minillm.geometry import PARTS
from minillm.layer import DecoderLayer


class LayerStore(Protocol):
    """The seam between the forward loop and wherever the weights are.

    `use(index, part)` is a context manager that yields the block, ready on the compute device. The
    caller computes with it inside the context and must not keep it: afterwards its memory may be refilled.
    A pass uses blocks in order, attention before mlp, layer 0 first; the next pass starts over at layer 0.
    """

    streaming: bool  # whether blocks have to be fetched

    def use(self, index: int, part: str) -> AbstractContextManager[Callable]: ...

    def capturing(self) -> AbstractContextManager:
        """A pass inside leaves out what a graph cannot hold: copies for the next pass, waits of the host."""

    def replay(self, graph: Callable[[], None]) -> None:
        """Run a pass that was captured, and what it left out."""


class ResidentLayers(ModuleList):
    """Every layer is on the compute device for good; `use` has nothing to do."""

    streaming = False

    def __init__(self, config: ModelConfig):
        super().__init__(DecoderLayer(config, index) for index in range(config.num_hidden_layers))
        self.prepare()

    def prepare(self) -> None:
        """Look at what computes the layers' blocks; to be called again when that has changed."""
        self.ready = [{part: nullcontext(layer.block(part)) for part in PARTS} for layer in self]

    def use(self, index: int, part: str) -> AbstractContextManager[Callable]:
        return self.ready[index][part]

    def capturing(self) -> AbstractContextManager:
        return nullcontext()

    def replay(self, graph: Callable[[], None]) -> None:
        graph()
