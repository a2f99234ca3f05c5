"""The time in which a step's work is asked for, as a context that can be entered again and again."""

from collections.abc import Callable
from typing import Any

from minillm.schedule import Step


class Span:
    """Tells the owner's recorder of the step, or without one a profiler.

    `push(name)` and `pop()`: how the profiler is told; None: there is none.
    """

    def __init__(self, owner: Any, step: Step, push: Callable | None = None, pop: Callable | None = None):
        self.owner, self.step, self.name, self.push, self.pop = owner, step, str(step), push, pop
        self.recording = None

    def __enter__(self) -> None:
        if self.owner.recorder is not None:
            self.recording = self.owner.recorder.step(self.step)
            self.recording.__enter__()
        elif self.push is not None:
            self.push(self.name)

    def __exit__(self, *exc_info: object) -> None:
        if self.recording is not None:
            recording, self.recording = self.recording, None
            recording.__exit__(*exc_info)
        elif self.pop is not None:
            self.pop()
