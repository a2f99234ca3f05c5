"""What a command writes and how it ends: text to stdout at once, one line a problem to stderr, a status."""

import contextlib
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator

from minillm.errors import MiniLLMError

INTERRUPTED = 130


def open_streams() -> None:
    """Make the three streams UTF-8 whatever the locale, and usable where the shell closed them.

    Bytes on stdin that are not UTF-8 come through as half surrogates, which the tokenizer refuses by name.
    """
    for name, mode, errors in (
        ("stdin", "r", "surrogateescape"),
        ("stdout", "w", "backslashreplace"),
        ("stderr", "w", "backslashreplace"),
    ):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for the rest of the process
        getattr(sys, name).reconfigure(encoding="utf-8", errors=errors)


def write(text: str) -> None:
    """Text to stdout, visible at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def complain(kind: str, text: object) -> None:
    """One line on stderr, whatever line breaks the text holds; silent where nobody listens."""
    line = " ".join(str(text).split())
    with contextlib.suppress(OSError):  # the exit status still tells
        print(f"minillm: {kind}: {line}", file=sys.stderr, flush=True)


def guarded(work: Callable[[], int], debug: bool) -> int:
    """Exit status of `work`, with errors, warnings, Ctrl-C and a closed pipe turned into one."""
    try:
        with one_line_warnings():
            status = _status_of(work)
            sys.stdout.flush()
        return status
    except BrokenPipeError:
        _forget_stdout()
        return 0
    except KeyboardInterrupt as stop:
        complain("interrupted", str(stop) or "the work was cut short")
        return INTERRUPTED
    except Exception as error:
        if debug:
            traceback.print_exc()
        if isinstance(error, OSError):
            _forget_stdout()  # what could not be written cannot be written at the end either
        complain("error", _describe(error))
        return getattr(error, "exit_status", 1)


def _status_of(work: Callable[[], int]) -> int:
    try:
        return work()
    except SystemExit as stop:  # argparse ends --help and --version this way
        return stop.code or 0


def _describe(error: Exception) -> str:
    if isinstance(error, MiniLLMError):
        return str(error)
    if isinstance(error, MemoryError):
        return "out of memory: lower --max-model-len or choose a smaller model"
    if isinstance(error, OSError):
        return f"the system refused: {error}"
    if isinstance(error, ModuleNotFoundError):
        return f"the package {error.name} is not installed here: pip install {error.name}"
    return f"unexpected {type(error).__name__}: {error}: this is a bug, --debug shows where"


@contextlib.contextmanager
def one_line_warnings() -> Iterator[None]:
    """Show warnings as `minillm: warning: …` while this lasts."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: complain("warning", message)
        yield


def _forget_stdout() -> None:
    """Keep the interpreter from failing again when it flushes at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
