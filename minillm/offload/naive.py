"""Naive offloading: one thing at a time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from minillm.geometry import PARTS
from minillm.offload.base import OffloadedLayers
from minillm.schedule import Block, Compute, Copy


class NaiveOffload(OffloadedLayers):
    """Take memory, copy, wait, compute, give the memory back."""

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self._fetched: tuple[int, torch.Tensor] | None = None  # a streamed layer and its device memory
        self.occupy()

    @contextmanager
    def _streamed(self, index: int, part: str) -> Iterator[Callable]:
        if part == PARTS[0]:
            self.fetch(index)
        with self.accelerator.during(Compute(Block(index, part), 0)):
            yield self[index].block(part)
        if part == PARTS[-1]:
            self.restart()

    def fetch(self, index: int) -> None:
        """Bring layer `index` to the device and wait until it is there."""
        self.restart()  # what a pass that was broken off left behind
        buffer = self.accelerator.empty(self.layouts[index].num_bytes)
        self._fetched = index, buffer
        try:
            self.accelerator.copy_after(self.accelerator.computed())
            for part in PARTS:
                self.copy(buffer, Copy(Block(index, part), 0))
            self.bind(index, buffer)
        finally:  # also when cut short: who gets this memory next must not find a copy writing to it
            self.accelerator.synchronize()

    def restart(self) -> None:
        if self._fetched is not None:
            index, buffer = self._fetched
            self.bind(index, self.host[index])  # else the views would keep the memory
            self._fetched = None  # not before: cut short above, this is done again
            self.accelerator.give_back(buffer)
