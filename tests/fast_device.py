"""Emulated devices that take the fast path: a graph is replayed by asking for everything again."""

from collections import deque

import torch

from minillm.accelerators.emulated import Emulated


class Fast(Emulated):
    """An emulated device that takes the fast path."""

    def eager_because(self, dtype: torch.dtype) -> None:
        return None

    def capture(self, work):
        return work

    def cut(self, work):
        work()


class Lazy(Fast):
    """Copies begin only when computing waits for one of them."""

    def __init__(self):
        super().__init__()
        self.asked = deque()

    def _queue(self, job):
        self.asked.append(job)

    def _wait(self, event):
        assert event.is_set(), "a copy waits for what has not been asked for"

    def compute_after(self, event):
        while not event.is_set():
            self.asked.popleft()()
