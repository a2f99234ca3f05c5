"""Naive offloading: one thing at a time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch

from minillm.geometry import PARTS
from minillm.offload.base import OffloadedLayers
from minillm.schedule import Block, Compute, Copy


class NaiveOffload(OffloadedLayers):
    """Take memory, copy, wait, compute, give the memory back."""

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self._fetched: tuple[int, torch.Tensor] | None = None  # a streamed layer and its device memory
        self._room: torch.Tensor | None = None  # that a graph expects every layer in
        self._capturing = False
        self.occupy()

    @contextmanager
    def _streamed(self, index: int, part: str) -> Iterator[Callable]:
        try:
            if part == PARTS[0]:
                self.fetch(index)
            with self.accelerator.during(Compute(Block(index, part), 0)):
                yield self[index].block(part)
        except BaseException:
            self.restart()  # nobody knows when the next pass comes, and others want the memory
            raise
        if part == PARTS[-1]:
            self.restart()

    def fetch(self, index: int) -> None:
        """Bring layer `index` to the device and wait until it is there."""
        self.restart()  # what a pass that was broken off left behind
        size = self.layouts[index].num_bytes
        buffer = self.accelerator.empty(size) if self._room is None else self._room[:size]
        self._fetched = index, buffer
        if self._capturing:
            self.accelerator.cut(partial(self._bring, index, buffer))
        else:
            self._bring(index, buffer)
        self.bind(index, buffer)

    def _bring(self, index: int, buffer: torch.Tensor) -> None:
        try:
            self.accelerator.copy_after(self.accelerator.computed())
            for part in PARTS:
                self.copy(buffer, Copy(Block(index, part), 0))
        finally:  # also when cut short: who gets this memory next must not find a copy writing to it
            self.accelerator.synchronize()

    def restart(self) -> None:
        if self._fetched is not None:
            index, buffer = self._fetched
            self.bind(index, self.host[index])  # else the views would keep the memory
            self._fetched = None  # not before: cut short above, this is done again
            if self._room is None:
                self.accelerator.give_back(buffer)

    def release(self) -> None:
        super().release()
        self._room = None

    @property
    def passing_bytes(self) -> int:
        streamed = self.placement.streamed if self._room is None else ()
        return max((self.layouts[index].num_bytes for index in streamed), default=0)

    # ---- a pass as a graph: cut where a layer is fetched ----

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """Capture a pass. Its layers take turns in memory that stays: a graph finds them where they were."""
        self.restart()
        if self._room is None and self.streaming:
            self._room = self.hold(max(self.layouts[index].num_bytes for index in self.placement.streamed))
        self._capturing = True
        try:
            yield
        finally:
            self._capturing = False

    def replay(self, graph: Callable[[], None]) -> None:
        graph()
