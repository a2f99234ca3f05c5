"""One thread at a time: whoever comes while another is inside gets an error, instead of wrong tokens."""

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

from minillm.errors import RunError

T = TypeVar("T")
PATIENCE_S = 1.0  # with a thread that may be inside only to tidy up


def _nothing() -> None:
    """A check that finds nothing wrong."""


class Turns:
    """Turns at the model called `name`; one thread may take a turn inside its own."""

    def __init__(self, name: str, inside: Callable[[], AbstractContextManager] = nullcontext):
        """`inside()` is open during each turn."""
        self.name, self.inside = name, inside
        self._lock = threading.RLock()
        self._left: list[Generator] = []  # unfinished, and nobody wants more of them

    @contextmanager
    def take(self, check: Callable[[], None] = _nothing, wait: bool = False) -> Iterator[None]:
        """A turn while the context is open; RunError where another thread has it, or `wait` for it.

        `check()` raises where no turn can be had any more.
        """
        if not self._lock.acquire(timeout=-1 if wait else PATIENCE_S if self._left else 0):
            check()
            raise RunError(
                f"this LLM ({self.name}) is already running in another thread: "
                "wait for it, or make another LLM"
            )
        try:
            with self.inside():
                try:
                    check()
                    yield
                finally:
                    self._tidy(list(self._left))
        finally:
            self._lock.release()

    def each(self, steps: Generator[T, None, None], check: Callable[[], None] = _nothing) -> Iterator[T]:
        """What `steps` yields, each item in a turn of its own: between two, others may have theirs."""
        try:
            while True:
                with self.take(check):
                    item = next(steps, None)
                if item is None:
                    return
                yield item
        finally:
            if steps.gi_frame is not None:
                self._leave(steps)

    def _leave(self, steps: Generator) -> None:
        """Close it in a turn, too: what it began may be where another thread works, which then does this."""
        self._left.append(steps)
        if self._lock.acquire(blocking=False):
            try:
                with self.inside():
                    self._tidy([steps])
            finally:
                self._lock.release()

    def _tidy(self, left: list[Generator]) -> None:
        for steps in left:
            try:
                steps.close()
            finally:
                if steps in self._left:
                    self._left.remove(steps)
