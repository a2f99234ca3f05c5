"""How a peer's process speaks: what it is asked comes as JSON, each of its rows is a line of JSON at once."""

import json
import os
import sys
from collections.abc import Callable, Iterable

from experiments.requests import Request


def speak(main: Callable[[dict], Iterable[dict]]) -> None:
    """Print the rows of `main(asked)`; `asked` is the argument, or standard input where that is "-".

    A process that is cut short has lost nothing but the row it was at. Whatever else writes to standard
    output goes to standard error.
    """
    asked = json.loads(sys.stdin.read() if sys.argv[1] == "-" else sys.argv[1])
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        for row in main(asked):
            print(json.dumps(row), file=out, flush=True)


def requests_of(asked: dict) -> list[Request]:
    """The requests of what was asked."""
    return [Request(**each) for each in asked["requests"]]
