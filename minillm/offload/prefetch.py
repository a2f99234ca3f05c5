"""Prefetching offloading: copies run ahead, as far as a schedule allows."""

from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch

from minillm import flat
from minillm.accelerators import Accelerator, Event
from minillm.geometry import PARTS
from minillm.layer import DecoderLayer
from minillm.offload.base import OffloadedLayers
from minillm.schedule import Schedule, Step


class Task:
    """A step as the store carries it out, with all that can be known beforehand.

    Tasks know each other by number only: objects in a circle would keep device memory until Python looks for
    circles.
    """

    def __init__(self, step: Step, number: int, during: AbstractContextManager):
        self.step, self.number, self.during = step, number, during
        self.needs: list[int] = []
        self.block: Callable | None = None  # of a compute
        self.then: list[Task] = []  # copies that can be asked for once a compute has been
        self.ahead = False  # whether a copy is for the next pass
        self.views: tuple[torch.Tensor, torch.Tensor] | None = None  # of a copy: where to, where from


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
        self.schedule = schedule
        self.in_slot: dict[int, flat.FlatLayout] = {}  # layouts of streamed layers in their slots
        self.turns: dict[tuple[int, str], Task] = {}  # the streamed computes in order, numbers 0, 1, …
        self.ahead: list[Task] = []  # copies that a pass finds under way when it starts
        self.finished: list[Event | None] = []  # by number; None: not asked for since the start
        self.border: set[int] = set()  # steps that steps of the next pass, or copies for it, wait for
        self.expected: int | None = None  # the streamed compute that comes next; None: start anew
        self._captured_bytes = 0  # that the pass of a graph copies
        self._capturing = False
        self.occupy()

    def _occupy(self) -> None:
        super()._occupy()
        streamed = self.placement.streamed
        ranges = [[self.layouts[index].ranges[part] for index in streamed] for part in PARTS]
        sizes = [max((end - begin for begin, end in each), default=0) for each in ranges]
        slots = self.hold_all([sum(sizes)] * self.placement.slots)
        # A slot is refilled block by block, so every MLP starts behind the largest attention block.
        self.in_slot = {index: flat.layout_of(self[index], self.dtype, sizes[0]) for index in streamed}
        for index, layout in self.in_slot.items():
            flat.bind(self[index], layout, slots[self.placement.slot_of(index)], self.dtype)
        self._plan(slots)

    def _plan(self, slots: list[torch.Tensor]) -> None:
        """Turn the schedule into tasks, so that a pass looks nothing up: a GPU waits for its host."""
        schedule = self.schedule
        computes = [step for step in schedule.computes if step.slot is not None]
        steps = [*computes, *schedule.copies]
        tasks = {step: Task(step, n, self.accelerator.during(step)) for n, step in enumerate(steps)}
        for step, task in tasks.items():
            task.needs = [tasks[need.step].number for need in schedule.needs.get(step, ())]
        for copy in schedule.copies:
            index, part = copy.block.layer, copy.block.part
            there, here = (slice(*layouts[index].ranges[part]) for layouts in (self.in_slot, self.layouts))
            tasks[copy].views = slots[copy.slot][there], self.host[index][here]
        issued = schedule.issued_after()
        for step in computes:
            tasks[step].block = self[step.block.layer].block(step.block.part)
            tasks[step].then = [tasks[copy] for copy, _ in issued.get(step, ())]
            self.turns[step.block.layer, step.block.part] = tasks[step]
        self.ahead = [tasks[copy] for pairs in issued.values() for copy, ahead in pairs if ahead]
        self.border = {number for task in self.ahead for number in (task.number, *task.needs)}
        for task in self.ahead:
            task.ahead = True
        self.finished = [self._first_event(number) for number in range(len(tasks))]

    def _first_event(self, number: int) -> Event | None:
        """What stands in `finished` until step `number` has been asked for."""
        return self.accelerator.lasting_event() if number in self.border else None

    @contextmanager
    def _streamed(self, index: int, part: str) -> Iterator[Callable]:
        task = self.turns[index, part]
        if task.number != self.expected:
            self._start(task)
        self.expected = None  # until the step is over: whatever stops it makes the next pass start anew
        self._order(task, self.accelerator.compute_after)
        with task.during:
            yield task.block
        self.finished[task.number] = self.accelerator.computed(self.finished[task.number])
        for copy in task.then:
            if not (copy.ahead and self._capturing):
                self._issue(copy)
        self.expected = (task.number + 1) % len(self.turns)

    # ---- a pass as a graph ----

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """Capture a pass without its copies for the next one: a graph ends when all that is in it has ended.

        With those inside, each pass would wait at its end for copies that only the next one needs. `replay`
        asks for them, and only events of the border order the two; all others are the graph's own.
        """
        outside, before, expected = self.finished, self.bytes_copied, self.expected
        self.finished = [event if n in self.border else None for n, event in enumerate(outside)]
        self.expected, self._capturing = 0, True
        try:
            yield
        finally:
            for number in self.border:
                outside[number] = self.finished[number]
            self._captured_bytes, self.bytes_copied = self.bytes_copied - before, before
            self.finished, self.expected, self._capturing = outside, expected, False

    def replay(self, graph: Callable[[], None]) -> None:
        if self.turns and self.expected != 0:
            self._start(next(iter(self.turns.values())))
        self.expected = None  # if it is cut short between pass and copies, the next one starts anew
        graph()
        self.bytes_copied += self._captured_bytes
        for copy in self.ahead:
            self._issue(copy)
        self.expected = 0

    def restart(self) -> None:
        self.expected = None

    def release(self) -> None:
        super().release()
        self.turns, self.ahead = {}, []  # they look into the slots

    def _start(self, task: Task) -> None:
        """Make the slots what the start of a pass expects: the first layers on their way."""
        if task.number:
            raise RuntimeError(f"a pass begins with the first streamed block, not with {task.step.block}")
        self.accelerator.synchronize()
        for number in set(range(len(self.finished))) - self.border:
            self.finished[number] = None
        for copy in self.ahead:
            self._issue(copy)

    def _issue(self, copy: Task) -> None:
        self._order(copy, self.accelerator.copy_after)
        with copy.during:
            self.accelerator.copy(*copy.views)
        self.bytes_copied += len(copy.views[0])
        self.finished[copy.number] = self.accelerator.copied(self.finished[copy.number])

    def _order(self, task: Task, after: Callable[[Event], None]) -> None:
        """Let `task` wait for what it needs; before the first pass there is nothing to wait for."""
        for number in task.needs:
            if self.finished[number] is not None:
                after(self.finished[number])
