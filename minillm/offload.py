"""Layer stores for weights that do not fit: every layer lies in host memory, some also stay on the device.

`NaiveOffload` copies a layer when it is reached and waits. `PrefetchOffload` follows a schedule: while one
block is computed, the next one is already on its way.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch.nn import ModuleList

from minillm import flat
from minillm.accelerators import Accelerator, Event
from minillm.budget import Decision
from minillm.geometry import PARTS
from minillm.layers import ResidentLayers
from minillm.schedule import Compute, Copy, Placement, Schedule, Step, prefetch


def make_store(
    layers: ResidentLayers, decision: Decision, accelerator: Accelerator, dtype: torch.dtype
) -> "OffloadedLayers":
    """The store that `decision` asks for, over `layers` in host memory."""
    if decision.mode == "naive":
        return NaiveOffload(layers, decision.placement, accelerator, dtype)
    return PrefetchOffload(layers, prefetch(decision.placement), accelerator, dtype)


class OffloadedLayers(ModuleList):
    """What both stores share: host copies, resident layers, counters.

    Takes layers whose weights lie in host memory, one flat buffer each, and moves the resident ones.
    """

    def __init__(
        self, layers: ResidentLayers, placement: Placement, accelerator: Accelerator, dtype: torch.dtype
    ):
        super().__init__(layers)
        self.placement, self.accelerator, self.dtype = placement, accelerator, dtype
        self.layouts = [flat.layout_of(layer, dtype) for layer in layers]
        self.host = [layer.buffer for layer in layers]
        self.bytes_copied = 0  # from host to device since the store was made, residents not counted
        for index in placement.resident:
            buffer = accelerator.empty(self.layouts[index].num_bytes)
            accelerator.copy(buffer, self.host[index])
            self.bind(index, buffer)
        accelerator.synchronize()
        self.ready = {
            index: {part: nullcontext(self[index].block(part)) for part in PARTS}
            for index in placement.resident
        }

    def use(self, index: int, part: str) -> AbstractContextManager[Callable]:
        return self.ready[index][part] if index in self.ready else self._streamed(index, part)

    def _streamed(self, index: int, part: str) -> AbstractContextManager[Callable]:
        """`use` of a block that has to be fetched."""
        raise NotImplementedError

    def bind(self, index: int, buffer: torch.Tensor) -> None:
        """Let layer `index` find its weights in `buffer`."""
        flat.bind(self[index], self.layouts[index], buffer, self.dtype)

    def copy(self, buffer: torch.Tensor, index: int, part: str) -> None:
        """Ask the link for one block of layer `index`, from host memory to its place in `buffer`."""
        begin, end = self.layouts[index].ranges[part]
        self.accelerator.copy(buffer[begin:end], self.host[index][begin:end])
        self.bytes_copied += end - begin


class NaiveOffload(OffloadedLayers):
    """One thing at a time: take memory, copy, wait, compute, give the memory back."""

    _fetched: int | None = None  # the streamed layer that is on the device

    @contextmanager
    def _streamed(self, index: int, part: str) -> Iterator[Callable]:
        if part == PARTS[0]:
            self._fetch(index)
        yield self[index].block(part)
        if part == PARTS[-1]:
            self._drop()

    def _fetch(self, index: int) -> None:
        self._drop()  # what a pass that was broken off left behind
        buffer = self.accelerator.empty(self.layouts[index].num_bytes)
        self._fetched = index
        self.accelerator.copy_after(self.accelerator.computed())
        for each in PARTS:
            self.copy(buffer, index, each)
        self.accelerator.synchronize()
        self.bind(index, buffer)

    def _drop(self) -> None:
        if self._fetched is not None:
            self.accelerator.give_back(self[self._fetched].buffer)
            self.bind(self._fetched, self.host[self._fetched])
            self._fetched = None


class PrefetchOffload(OffloadedLayers):
    """Follows a `Schedule`; a pass that was broken off leaves it able to start the next one."""

    def __init__(
        self, layers: ResidentLayers, schedule: Schedule, accelerator: Accelerator, dtype: torch.dtype
    ):
        super().__init__(layers, schedule.placement, accelerator, dtype)
        self.schedule, self.issued_after = schedule, schedule.issued_after()
        size = max((self.layouts[index].num_bytes for index in self.placement.streamed), default=0)
        self.slots = [accelerator.empty(size) for _ in range(self.placement.slots)]
        for index in self.placement.streamed:
            self.bind(index, self.slots[self.placement.slot_of(index)])
        self.steps = {(c.block.layer, c.block.part): c for c in schedule.computes if c.slot is not None}
        order = list(self.steps.values())
        self.following = dict(
            zip(order, order[1:] + order[:1], strict=True)
        )  # the last is followed by the first
        self.first = order[0] if order else None
        self.events: dict[Step, Event] = {}
        self.expected: Compute | None = None  # the streamed block that comes next; None: start anew

    @contextmanager
    def _streamed(self, index: int, part: str) -> Iterator[Callable]:
        step = self.steps[index, part]
        if step is not self.expected:
            self._start(step)
        self.expected = None  # until the step is over: whatever stops it makes the next pass start anew
        self._order(step, self.accelerator.compute_after)
        yield self[index].block(part)
        self.events[step] = self.accelerator.computed()
        for copy, _ in self.issued_after.get(step, ()):
            self._issue(copy)
        self.expected = self.following[step]

    def _start(self, step: Compute) -> None:
        """Make the slots what the start of a pass expects: the first layers on their way."""
        if step is not self.first:
            raise RuntimeError(f"a pass begins with the first streamed block, not with {step.block}")
        self.accelerator.synchronize()
        self.events.clear()
        for copies in self.issued_after.values():
            for copy, ahead in copies:
                if ahead:
                    self._issue(copy)

    def _issue(self, copy: Copy) -> None:
        self._order(copy, self.accelerator.copy_after)
        self.copy(self.slots[copy.slot], copy.block.layer, copy.block.part)
        self.events[copy] = self.accelerator.copied()

    def _order(self, step: Step, after: Callable[[Event], None]) -> None:
        """Let `step` wait for what it needs; before the first pass there is nothing to wait for."""
        for need in self.schedule.needs.get(step, ()):
            if need.step in self.events:
                after(self.events[need.step])
