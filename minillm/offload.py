"""Layer stores for weights that do not fit: every layer lies in host memory, some also stay on the device.

`NaiveOffload` copies a layer when it is reached and waits. `PrefetchOffload` follows a schedule: while one
block is computed, the next one is already on its way.
"""

from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch.nn import ModuleList

from minillm import flat
from minillm.accelerators import Accelerator, Event
from minillm.budget import Decision
from minillm.geometry import PARTS
from minillm.layer import DecoderLayer
from minillm.schedule import Block, Compute, Copy, Placement, Schedule, Step, prefetch


def make_store(
    layers: Iterable[DecoderLayer],
    decision: Decision,
    accelerator: Accelerator,
    dtype: torch.dtype,
    settled: Container[int] = (),
) -> "OffloadedLayers":
    """The store that `decision` asks for, over `layers` in host memory, or `settled` on the device."""
    if decision.mode == "naive":
        return NaiveOffload(layers, decision.placement, accelerator, dtype, settled)
    return PrefetchOffload(layers, prefetch(decision.placement), accelerator, dtype, settled)


class OffloadedLayers(ModuleList):
    """What both stores share: host copies, resident layers, counters.

    Takes layers whose weights lie in host memory, one flat buffer each, and moves the resident ones; those in
    `settled` lie on the device already and have no host copy.
    """

    def __init__(
        self,
        layers: Iterable[DecoderLayer],
        placement: Placement,
        accelerator: Accelerator,
        dtype: torch.dtype,
        settled: Container[int] = (),
    ):
        super().__init__(layers)
        self.placement, self.accelerator, self.dtype = placement, accelerator, dtype
        self.layouts = [flat.layout_of(layer, dtype) for layer in self]
        self.host = [None if index in settled else layer.buffer for index, layer in enumerate(self)]
        self.held: list[torch.Tensor] = []  # device memory for as long as the store is in use
        self.bytes_copied = 0  # from host to device since the store was made, residents not counted
        self.ready: dict[int, dict[str, Ready]] = {}  # the resident blocks

    def occupy(self) -> None:
        """Take the device memory that the placement needs, or none of it."""
        try:
            self._occupy()
        except BaseException:
            self.release()
            raise

    def _occupy(self) -> None:
        for index in self.placement.resident:
            if self.host[index] is not None:
                buffer = self.hold(self.layouts[index].num_bytes)
                self.accelerator.copy(buffer, self.host[index])
                self.bind(index, buffer)
            self.ready[index] = {
                part: Ready(self[index].block(part), Block(index, part), self.accelerator) for part in PARTS
            }
        self.accelerator.synchronize()

    def use(self, index: int, part: str) -> AbstractContextManager[Callable]:
        return self.ready[index][part] if index in self.ready else self._streamed(index, part)

    def _streamed(self, index: int, part: str) -> AbstractContextManager[Callable]:
        """`use` of a block that has to be fetched."""
        raise NotImplementedError

    def restart(self) -> None:
        """Let the next pass start as the first one did."""

    def hold(self, num_bytes: int) -> torch.Tensor:
        """Device memory that `release` gives back."""
        self.held.append(self.accelerator.empty(num_bytes))
        return self.held[-1]

    def release(self) -> None:
        """Give all device memory back: layers lie in host memory again, as before the store was made."""
        self.accelerator.synchronize()  # a copy that is under way still writes there
        self.restart()
        self.ready.clear()
        for index, host in enumerate(self.host):
            if host is not None:
                self.bind(index, host)
        while self.held:
            self.accelerator.give_back(self.held.pop())

    def bind(self, index: int, buffer: torch.Tensor) -> None:
        """Let layer `index` find its weights in `buffer`."""
        flat.bind(self[index], self.layouts[index], buffer, self.dtype)

    def copy(self, buffer: torch.Tensor, copy: Copy) -> None:
        """Ask the link for one block, from host memory to its place in `buffer`."""
        index = copy.block.layer
        begin, end = self.layouts[index].ranges[copy.block.part]
        with self.accelerator.during(copy):
            self.accelerator.copy(buffer[begin:end], self.host[index][begin:end])
        self.bytes_copied += end - begin


class Ready:
    """A resident block, as `use` gives it."""

    def __init__(self, block: Callable, where: Block, accelerator: Accelerator):
        self.block, self.step, self.accelerator = block, Compute(where), accelerator

    def __enter__(self) -> Callable:
        self._during = self.accelerator.during(self.step)
        self._during.__enter__()
        return self.block

    def __exit__(self, *exc_info: object) -> None:
        self._during.__exit__(*exc_info)


class NaiveOffload(OffloadedLayers):
    """One thing at a time: take memory, copy, wait, compute, give the memory back."""

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self._fetched: tuple[int, torch.Tensor] | None = None  # a streamed layer and its device memory
        self.occupy()

    @contextmanager
    def _streamed(self, index: int, part: str) -> Iterator[Callable]:
        if part == PARTS[0]:
            self._fetch(index)
        with self.accelerator.during(Compute(Block(index, part), 0)):
            yield self[index].block(part)
        if part == PARTS[-1]:
            self.restart()

    def _fetch(self, index: int) -> None:
        self.restart()  # what a pass that was broken off left behind
        buffer = self.accelerator.empty(self.layouts[index].num_bytes)
        self._fetched = index, buffer
        try:
            self.accelerator.copy_after(self.accelerator.computed())
            for part in PARTS:
                self.copy(buffer, Copy(Block(index, part), 0))
        finally:  # also when cut short: who gets this memory next must not find a copy writing to it
            self.accelerator.synchronize()
        self.bind(index, buffer)

    def restart(self) -> None:
        if self._fetched is not None:
            index, buffer = self._fetched
            self._fetched = None
            self.bind(index, self.host[index])
            self.accelerator.give_back(buffer)


class PrefetchOffload(OffloadedLayers):
    """Follows a `Schedule`; a pass that was broken off leaves it able to start the next one."""

    def __init__(
        self,
        layers: Iterable[DecoderLayer],
        schedule: Schedule,
        accelerator: Accelerator,
        dtype: torch.dtype,
        settled: Container[int] = (),
    ):
        super().__init__(layers, schedule.placement, accelerator, dtype, settled)
        self.schedule, self.issued_after = schedule, schedule.issued_after()
        self.slots: list[torch.Tensor] = []
        self.steps = {(c.block.layer, c.block.part): c for c in schedule.computes if c.slot is not None}
        order = list(self.steps.values())
        self.following = dict(
            zip(order, order[1:] + order[:1], strict=True)
        )  # the last is followed by the first
        self.first = order[0] if order else None
        self.events: dict[Step, Event] = {}
        self.expected: Compute | None = None  # the streamed block that comes next; None: start anew
        self.occupy()

    def _occupy(self) -> None:
        super()._occupy()
        size = max((self.layouts[index].num_bytes for index in self.placement.streamed), default=0)
        self.slots = [self.hold(size) for _ in range(self.placement.slots)]
        for index in self.placement.streamed:
            self.bind(index, self.slots[self.placement.slot_of(index)])

    @contextmanager
    def _streamed(self, index: int, part: str) -> Iterator[Callable]:
        step = self.steps[index, part]
        if step is not self.expected:
            self._start(step)
        self.expected = None  # until the step is over: whatever stops it makes the next pass start anew
        self._order(step, self.accelerator.compute_after)
        with self.accelerator.during(step):
            yield self[index].block(part)
        self.events[step] = self.accelerator.computed()
        for copy, _ in self.issued_after.get(step, ()):
            self._issue(copy)
        self.expected = self.following[step]

    def restart(self) -> None:
        self.expected = None

    def release(self) -> None:
        super().release()
        self.slots = []

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
        self.copy(self.slots[copy.slot], copy)
        self.events[copy] = self.accelerator.copied()

    def _order(self, step: Step, after: Callable[[Event], None]) -> None:
        """Let `step` wait for what it needs; before the first pass there is nothing to wait for."""
        for need in self.schedule.needs.get(step, ()):
            if need.step in self.events:
                after(self.events[need.step])
