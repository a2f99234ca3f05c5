"""Ctrl-C that no library can swallow.

Inside an import a KeyboardInterrupt is lost where C code, or an `except` around an optional module, takes it
for a failure; a run then went on. So one that comes meanwhile is put off until the import is over.
"""

import _thread
import signal
import time
from types import FrameType

AGAIN_S = 0.02  # after that a postponed one comes again


class Interrupts:
    """A context in which SIGINT is remembered, but for its open part, where it is a KeyboardInterrupt.

    Where somebody else has taken SIGINT, or outside the main thread, nothing changes.
    """

    def __init__(self):
        self._open = self._pending = self._mine = False

    def __enter__(self) -> "Interrupts":
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            try:
                signal.signal(signal.SIGINT, self._handle)
                self._mine = True
            except ValueError:  # only the main thread may
                pass
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._mine:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def open(self) -> None:
        """Raise KeyboardInterrupt if one came; from here on at once, but never inside an import."""
        self._open = True
        self.check()

    def check(self) -> None:
        """Raise KeyboardInterrupt if one waits: between two imports, which it might not meet by itself."""
        if self._pending:
            self._pending = False
            raise KeyboardInterrupt

    def shut(self) -> None:
        """Remember them again."""
        self._open = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._open and not _importing(frame):
            self._pending = False
            raise KeyboardInterrupt
        if self._open:
            # Not by threading: the main thread may hold its locks right now.
            _thread.start_new_thread(self._again, ())
        self._pending = True

    def _again(self) -> None:
        time.sleep(AGAIN_S)
        if self._pending and self._open:
            _thread.interrupt_main()


def _importing(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None
