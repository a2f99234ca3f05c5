"""A lock that threads get in the order in which they asked for it."""

import threading


class FairLock:
    """A context; a thread may open it inside its own.

    A lock of `threading` goes to whoever is quickest, and that is the thread that has just released it: with
    turns of milliseconds in a loop, another thread could wait until the loop has ended.
    """

    def __init__(self):
        self._next, self._held = threading.Lock(), threading.Lock()
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        if self._owner != threading.get_ident():
            with self._next:  # who has released it must come after the thread that waits here
                self._held.acquire()
            self._owner = threading.get_ident()
        self._depth += 1

    def __exit__(self, *exc_info: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
            self._held.release()
