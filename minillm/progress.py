"""Progress of long work: a bar on stderr when it is a terminal, a widget in a notebook, else nothing.

TQDM_DISABLE=1 silences both.
"""

import os
import sys
from types import TracebackType


class Progress:
    """`with Progress("loading", 300, "tensor") as p: p.advance()`; silent where nobody is watching."""

    def __init__(self, what: str, total: int, unit: str):
        self.bar = _bar(what, total, unit)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.close()

    def advance(self, count: int = 1) -> None:
        if self.bar is not None:
            self.bar.update(count)


def _bar(what: str, total: int, unit: str):
    # Of tqdm's two kinds of bars only that of a terminal obeys TQDM_DISABLE by itself.
    silent = os.environ.get("TQDM_DISABLE", "0") not in ("", "0")
    if silent or not (sys.stderr.isatty() or _in_notebook()):
        return None
    from tqdm.auto import tqdm  # comes with transformers; a widget in notebooks that have ipywidgets

    # Fast work leaves no trace: the bar appears after half a second and goes when done.
    return tqdm(total=total, desc=what, unit=unit, leave=False, delay=0.5)


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    return bool(shell and shell.get_ipython() and "zmqshell" in type(shell.get_ipython()).__module__)
