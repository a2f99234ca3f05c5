"""A lock that threads get in the order in which they asked for it."""

import threading


class FairLock:
    """A context; a thread may open it inside its own.

    A lock of `threading` goes to whoever is quickest, and that is the thread that has just released it: with
    turns of milliseconds in a loop, another thread could wait until the loop has ended.
    """

    def __init__(self):
        # They know their owner from the moment they are had: a thread that Ctrl-C, or a collection that wants
        # the same lock, hits right then can go on.
        self._next, self._held = threading.RLock(), threading.RLock()

    def __enter__(self) -> None:
        if self._held._is_owned():
            self._held.acquire()
            return
        with self._next:  # who has released it must come after the thread that waits here
            self._held.acquire()

    def __exit__(self, *exc_info: object) -> None:
        self._held.release()
