"""One thread at a time: whoever comes while another is inside gets an error, instead of wrong tokens."""

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TypeVar
from weakref import WeakSet

from minillm.errors import RunError

T = TypeVar("T")
PATIENCE_S = 1.0  # with a thread that tidies up


def _nothing() -> None:
    """A check that finds nothing wrong."""


class Turns:
    """Turns at the model called `name`; one thread may take a turn inside its own."""

    def __init__(self, name: str, inside: Callable[[], AbstractContextManager] = nullcontext):
        """`inside()` is open during each turn."""
        self.name, self.inside = name, inside
        self._lock = threading.RLock()
        self._taken = 0  # turns that are under way, one inside the other
        self._begun: WeakSet[Generator] = WeakSet()  # each keeps the model, and so the owner of this
        self._left: list[Generator] = []  # unfinished, and nobody wants more of them

    @contextmanager
    def take(self, check: Callable[[], None] = _nothing, wait: bool = False) -> Iterator[None]:
        """A turn while the context is open; RunError where another thread has it, or `wait` for it.

        `check()` raises where no turn can be had any more.
        """
        if not self._lock.acquire(timeout=-1 if wait else 0 if self._taken else PATIENCE_S):
            check()
            raise RunError(
                f"this LLM ({self.name}) is already running in another thread: "
                "wait for it, or make another LLM"
            )
        self._taken += 1
        try:
            with self.inside():
                check()
                yield
        finally:
            self._taken -= 1
            self._lock.release()
            self._tidy()

    def each(self, steps: Generator[T, None, None], check: Callable[[], None] = _nothing) -> Iterator[T]:
        """What `steps` yields, each item in a turn of its own: between two, others may have theirs."""
        try:
            while True:
                with self.take(check):
                    self._begun.add(steps)
                    item = next(steps, None)
                if item is None:
                    return
                yield item
        finally:
            if steps.gi_frame is not None:
                self._left.append(steps)
                self._tidy()

    def end_all(self) -> None:
        """Close all that `each` has begun, for whoever has a turn; not what that turn is inside of."""
        self._left += [steps for steps in list(self._begun) if not steps.gi_running]
        self._close_left()

    def _tidy(self) -> None:
        """Close what is left, unless somebody has a turn and works where it was begun: then after that."""
        while self._left and self._lock.acquire(blocking=False):
            try:
                if self._taken:  # by this thread
                    return
                with self.inside():
                    self._close_left()
            finally:
                self._lock.release()

    def _close_left(self) -> None:
        with ExitStack() as closing:  # all of them, also where closing one raises
            while self._left:
                closing.callback(self._left.pop().close)
