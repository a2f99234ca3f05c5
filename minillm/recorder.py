"""What really happened: begin and end of each step of a run, as the timeline that a simulation gives."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from minillm.accelerators import Accelerator, Moment
from minillm.schedule import HEAD, Copy, Step
from minillm.simulate import Event, Timeline


class Recorder:
    """Asks both queues of an accelerator for the time before and after each step.

    The k-th time that a step is seen is that of pass k, so a recording has to start where a pass does.
    """

    def __init__(self, accelerator: Accelerator):
        self.accelerator = accelerator
        self.rows: list[tuple[Step, int, Moment, Moment]] = []
        self._seen: Counter[Step] = Counter()

    @contextmanager
    def step(self, step: Step) -> Iterator[None]:
        """Record what is asked of the step's queue while the context is open."""
        copying = isinstance(step, Copy)
        begin = self.accelerator.moment(copying)
        yield
        self.rows.append((step, self._seen[step], begin, self.accelerator.moment(copying)))
        self._seen[step] += 1

    @property
    def timeline(self) -> Timeline:
        """Events in seconds from the first one; waits until all of them have happened."""
        self.accelerator.synchronize()
        if not self.rows:
            return Timeline((), 0)
        seconds = self.accelerator.seconds
        origin = self.rows[0][2]
        first = min(seconds(origin, begin) for _, _, begin, _ in self.rows)
        events = (
            Event(step, number, seconds(origin, begin) - first, seconds(origin, end) - first)
            for step, number, begin, end in self.rows
        )
        heads = sum(seen for step, seen in self._seen.items() if step.block.part == HEAD)
        return Timeline(tuple(sorted(events, key=lambda event: event.begin)), heads)
