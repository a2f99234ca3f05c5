"""Other engines in processes of their own, whose rows are stored as they come.

A process that fails or takes too long is ended with all that it started. The rows that it printed stay, the
reason becomes a row, and the same command asks again for what is missing. A peer that is missing is skipped.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict

from experiments.machine import ROOT
from experiments.offload_options import progress
from experiments.requests import Request
from experiments.results import Results
from minillm.errors import RunError

LIMIT_S = 480.0  # of one process
LAST_WORDS = 3000  # characters of a failed peer's standard error
WORDS = {
    "vllm": [sys.executable, "-m", "tests.peers.vllm_generate", "-"],
    "transformers": [sys.executable, "-m", "tests.peers.hf_generate", "-"],
}


def measure(
    results: Results, start: str, engine: str, asked: dict, requests: list[Request], about: dict
) -> None:
    """Store the missing rows of `requests`, keys `start`/…; a row `start` says why there are none.

    `asked`: what the peer's process wants to know beside the requests. `about`: fields of each row.
    """
    missing = missing_of(results, requests)
    if not missing:
        return
    asked = {**asked, "requests": [asdict(request) for request in missing]}
    with recorded(results, start, about):
        for row in rows(WORDS[engine], asked):
            store(results, start, row, about)


@contextmanager
def recorded(results: Results, start: str, about: dict) -> Iterator[None]:
    """Make a failure a row `start`, so that the next engine gets its turn; an older reason is forgotten."""
    results.forget(start)
    try:
        yield
    except RuntimeError as error:  # a RunError, no memory, or another number of copied bytes than planned
        progress(f"{start}: {error}")
        reason = str(error)
        results.row(start, lambda: {**about, "failed": reason})


def missing_of(results: Results, requests: list[Request]) -> list[Request]:
    """Those that have no row yet."""
    there = {row["key"] for row in results.rows()}
    return [request for request in requests if request.key not in there]


def store(results: Results, start: str, row: dict, about: dict) -> None:
    """One row of a peer: of its start, of a request, or why it was skipped."""
    key = row.pop("key", start)
    if key == "loaded":
        number = len(results.rows(f"{start}/loaded"))
        key = f"{start}/loaded" + (f"/{number}" if number else "")  # a continued run started it again
    results.row(key, lambda: {**about, **row})
    progress(f"{key}: {row.get('skipped') or told(row)}")


def told(row: dict) -> str:
    """A row in a few words."""
    if "load_s" in row:
        return f"loaded in {row['load_s']:.1f} s"
    speed = row["tokens_per_s"]
    return f"TTFT {row['ttft_s'] * 1e3:.1f} ms" + (f", {speed:.3f} tok/s" if speed else "")


# ---- the process ----


def rows(words: list[str], asked: dict, limit_s: float | None = None) -> Iterator[dict]:
    """What a process prints, line by line; RunError with its last words if it fails or takes too long."""
    limit_s = LIMIT_S if limit_s is None else limit_s
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as question, tempfile.TemporaryFile("w+", errors="replace") as said:
        question.write(json.dumps(asked))
        question.seek(0)
        child = subprocess.Popen(
            words,
            cwd=ROOT,
            stdin=question,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            start_new_session=True,
        )
        timer = threading.Timer(limit_s, end, [child])
        timer.start()
        try:
            for line in child.stdout:
                if line.endswith("\n"):  # else it was cut short while it wrote
                    yield row_of(line)
            status = child.wait()
        finally:
            timer.cancel()
            end(child)
            child.stdout.close()
        if time.perf_counter() - began >= limit_s:
            raise RunError(f"not done after {limit_s:.0f} s{last_words(said)}")
        if status:
            raise RunError(f"ended with status {status}{last_words(said)}")


def row_of(line: str) -> dict:
    """A line of a peer; RunError if it is not JSON."""
    try:
        return json.loads(line)
    except ValueError:
        raise RunError(f"printed what is no row: {line.strip()[:200]}") from None


def end(child: subprocess.Popen) -> None:
    """End a process and all that it started, if any of it is left."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def last_words(said) -> str:
    """The end of what a process wrote to standard error."""
    said.seek(0)
    text = said.read().strip()[-LAST_WORDS:]
    return f": {text}" if text else ""
