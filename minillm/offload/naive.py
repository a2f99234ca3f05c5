"""Naive offloading: one thing at a time."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
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
        self._capturing = False
        self._left_out: list[Callable[[], None]] = []  # blocks of layers in a row
        self.occupy()

    def _streamed(self, index: int, part: str) -> AbstractContextManager[Callable]:
        if self._capturing:
            return nullcontext(partial(self._leave_out, index, part))
        return self._now(index, part)

    @contextmanager
    def _now(self, index: int, part: str) -> Iterator[Callable]:
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

    # ---- a pass as a graph: resident layers are in it, the others are computed between its pieces ----

    @contextmanager
    def capturing(self) -> Iterator[None]:
        self._capturing, self._left_out = True, []
        try:
            yield
        finally:
            self._capturing = False

    def replay(self, graph: Callable[[], None]) -> None:
        graph()

    def _leave_out(self, index: int, part: str, hidden: torch.Tensor, *others: object) -> torch.Tensor:
        """A block that each replay computes on the captured `hidden`; nothing is computed now."""
        self._left_out.append(partial(self._over, index, part, hidden, *others))
        if part == PARTS[-1] and index + 1 not in self.placement.streamed:
            self.accelerator.cut(partial(_each, self._left_out))
            self._left_out = []
        return hidden

    def _over(self, index: int, part: str, hidden: torch.Tensor, *others: object) -> None:
        with self._now(index, part) as block:
            hidden.copy_(block(hidden, *others))


def _each(work: list[Callable[[], None]]) -> None:
    for one in work:
        one()
