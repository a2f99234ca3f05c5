"""Times a schedule: when each copy and each compute of a run of passes begins and ends. No torch.

The link carries one copy at a time, in order; the device computes one block at a time, in order; a step
starts when its queue is free and its needs are finished. Nothing else is modelled: no launch overhead, no
contention for memory.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from minillm.schedule import Block, Copy, Schedule, Step


@dataclass(frozen=True)
class Event:
    """A step of pass `number`, from `begin` to `end` in seconds."""

    step: Step
    number: int
    begin: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """All events of some passes."""

    events: tuple[Event, ...]
    passes: int

    def pass_end(self, number: int) -> float:
        """When the last compute of a pass ends: its token is known. Seconds from the start."""
        return max(e.end for e in self.events if e.number == number and not isinstance(e.step, Copy))

    @property
    def seconds_a_pass(self) -> float:
        """Of the last pass, when the first ones have filled the pipeline."""
        return self.pass_end(self.passes - 1) - self.pass_end(self.passes - 2)


def simulate(
    schedule: Schedule,
    copy_s: Callable[[Block], float],
    compute_s: Callable[[Block, int], float],
    passes: int = 4,
) -> Timeline:
    """`copy_s(block)` and `compute_s(block, pass)` in seconds; pass 0 may be a prefill, the others decode.

    Raises RuntimeError when steps wait for each other.
    """
    ends: dict[tuple[Step, int], float] = {}
    events: list[Event] = []
    queues = [_Queue(steps, passes) for steps in (schedule.copies, schedule.computes)]
    while any(queue.waiting for queue in queues):
        before = len(events)
        for queue in queues:
            while queue.waiting and (begin := queue.begin(schedule, ends)) is not None:
                step, number = queue.waiting.popleft()
                seconds = copy_s(step.block) if isinstance(step, Copy) else compute_s(step.block, number)
                queue.free = ends[step, number] = begin + seconds
                events.append(Event(step, number, begin, queue.free))
        if len(events) == before:
            raise RuntimeError("steps of the schedule wait for each other")
    return Timeline(tuple(events), passes)


class _Queue:
    """Steps that one resource takes in order, the link or the device."""

    def __init__(self, steps: tuple[Step, ...], passes: int):
        self.waiting = deque((step, number) for number in range(passes) for step in steps)
        self.free = 0.0

    def begin(self, schedule: Schedule, ends: dict[tuple[Step, int], float]) -> float | None:
        """When the first step can begin; None while a need of it is not finished."""
        step, number = self.waiting[0]
        needed = [(need.step, number - need.passes_ago) for need in schedule.needs.get(step, ())]
        earlier = [key for key in needed if key[1] >= 0]  # before the first pass everything was finished
        if any(key not in ends for key in earlier):
            return None
        return max([self.free, *(ends[key] for key in earlier)])
