"""Peers are processes: rows arrive as they are printed, and what fails or hangs takes nothing with it."""

import json
import os
import re
import sys
import time
from pathlib import Path

import pytest

from experiments import peers
from experiments.requests import Request
from experiments.results import Results
from minillm.errors import RunError

STAND_IN = Path(__file__).with_name("stand_in_peer.py")
REQUESTS = [Request(f"M/p/x/{number}", [1] * (number + 1), 5, question_id=number) for number in range(3)]


def words(how):
    return [sys.executable, str(STAND_IN), how]


@pytest.fixture
def results(tmp_path):
    return Results("x", "box", tmp_path, about={"commit": "abc"})


def measure(monkeypatch, results, how):
    monkeypatch.setitem(peers.WORDS, "stand-in", words(how))
    about = {"engine": "p", "resident": 3}
    peers.measure(results, "M/p/x", "stand-in", {"kv_tokens": 64}, REQUESTS, about)
    return [row["key"] for row in results.rows()]


def test_every_request_becomes_a_row(monkeypatch, results):
    assert measure(monkeypatch, results, "whole") == ["M/p/x/loaded", *(each.key for each in REQUESTS)]
    loaded, _, _, last = results.rows()
    assert (loaded["load_s"], loaded["kv_tokens"], loaded["engine"]) == (7.0, 64, "p")
    assert (last["prompt_tokens"], last["resident"], last["question_id"]) == (3, 3, 2)


def test_a_peer_that_fails_keeps_its_rows_and_is_asked_again_for_the_others(monkeypatch, results):
    assert measure(monkeypatch, results, "fails") == ["M/p/x/loaded", "M/p/x/0", "M/p/x"]
    assert results.rows()[-1]["failed"] == "ended with status 3: out of memory"
    stored = json.loads(results.partial.read_text())["rows"]
    assert [row["key"] for row in stored] == ["M/p/x/loaded", "M/p/x/0", "M/p/x"]
    again = measure(monkeypatch, results, "whole")
    assert again == ["M/p/x/loaded", "M/p/x/0", "M/p/x/loaded/1", "M/p/x/1", "M/p/x/2"]
    monkeypatch.setattr(peers, "rows", lambda *_: pytest.fail("everything is measured"))
    assert measure(monkeypatch, results, "whole") == again


def test_a_row_that_was_cut_short_does_not_count(monkeypatch, results):
    assert measure(monkeypatch, results, "half") == ["M/p/x/loaded", "M/p/x/0", "M/p/x"]
    assert results.rows()[-1]["failed"] == "ended with status 1"


def test_a_missing_peer_is_a_reason_and_may_be_there_the_next_time(monkeypatch, results):
    assert measure(monkeypatch, results, "missing") == ["M/p/x"]
    assert results.rows()[0]["skipped"] == "not here"
    assert "M/p/x" not in measure(monkeypatch, results, "whole")


def test_what_is_no_row_is_a_failure(monkeypatch, results):
    assert measure(monkeypatch, results, "junk") == ["M/p/x"]
    assert results.rows()[0]["failed"] == "printed what is no row: Loading weights"


def running(pid):
    """Whether a process is there and not only remembered."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here to look for processes")
def test_a_peer_that_hangs_is_ended_with_all_that_it_started():
    began, seen = time.perf_counter(), []
    asked = {"requests": [vars(request) for request in REQUESTS]}
    with pytest.raises(RunError, match="not done after 3 s: waits with") as error:
        seen.extend(peers.rows(words("hangs"), asked, 3.0))
    assert time.perf_counter() - began < 20
    child = int(re.search(r"waits with (\d+)", str(error.value))[1])
    for _ in range(100):
        if not running(child):
            break
        time.sleep(0.05)
    assert not running(child)
    assert running(os.getpid())


def test_rows_arrive_while_the_process_still_runs():
    asked = {"requests": [vars(request) for request in REQUESTS]}
    found = peers.rows(words("hangs"), asked, 60.0)
    assert next(found)["key"] == "loaded"
    assert next(found)["key"] == "M/p/x/0"
    began = time.perf_counter()
    found.close()  # whoever stops listening ends the process
    assert time.perf_counter() - began < 20


SPEAKS = """
import os
from tests.peers import rows
def main(asked):
    os.system("echo of a program")
    print("of a library")
    yield {"heard": asked["word"]}
rows.speak(main)
"""


@pytest.mark.parametrize("argument", ['{"word": "hello"}', "-"])
def test_only_rows_reach_standard_output(argument):
    asked, words = {"word": "hello"}, [sys.executable, "-c", SPEAKS, argument]
    assert list(peers.rows(words, asked)) == [{"heard": "hello"}]
