"""Download from a hub: whole, resumed, checked, explained. The hub is a stand-in on 127.0.0.1."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hub_model import MODEL, SHARDS, closed_port, contents, whole
from stand_in_hub import StandInHub

from minillm import hub, transfer
from minillm.errors import RunError
from minillm.units import gib


def test_the_whole_download_equals_and_holds_only_what_the_engine_reads(served):
    folder = hub.download(MODEL)
    assert contents(folder) == whole(served)
    assert sum(request.sent for request in served.log) == sum(map(len, whole(served).values()))


def test_a_cut_connection_is_taken_up_within_the_call(served):
    served.faults.cut_after, served.faults.cuts = 120_000, 1
    assert contents(hub.download(MODEL)) == whole(served)
    first, second = served.requests(SHARDS[0])
    assert (first.first_byte, second.first_byte) == (0, 120_000)
    assert first.sent + second.sent == 300_000


def test_the_next_call_asks_for_the_missing_rest_only(served, monkeypatch):
    monkeypatch.setattr(transfer, "TRIES", 1)
    served.faults.cut_after = 131_072
    with pytest.raises(RunError, match=rf"byte 131072 of 300000 of {SHARDS[0]} .*run the same again"):
        hub.download(MODEL)
    assert hub.cached_folder(MODEL) is None
    served.log.clear()
    served.faults.cut_after = None
    assert contents(hub.download(MODEL)) == whole(served)
    (rest,) = served.requests(SHARDS[0])
    assert (rest.first_byte, rest.sent) == (131_072, 300_000 - 131_072)


def test_a_hub_that_ignores_ranges_still_gives_the_right_bytes(served, monkeypatch):
    served.faults.cut_after, served.faults.cuts, served.faults.ignore_range = 120_000, 1, True
    assert contents(hub.download(MODEL)) == whole(served)
    assert [request.sent for request in served.requests(SHARDS[0])] == [120_000, 300_000]


@pytest.mark.parametrize("name", [SHARDS[1], "config.json"])
def test_a_corrupt_file_is_named_removed_and_fetched_again(served, name):
    served.faults.corrupt = name
    with pytest.raises(RunError, match=rf"{name} is corrupt .*it was removed, run the same again"):
        hub.download(MODEL)
    assert hub.cached_folder(MODEL) is None
    served.faults.corrupt = None
    served.log.clear()
    assert contents(hub.download(MODEL)) == whole(served)
    assert [request.first_byte for request in served.requests(name)] == [0]


def test_recheck_finds_a_byte_that_changed_in_the_cache(served):
    shard = hub.download(MODEL) / SHARDS[0]
    assert hub.download(MODEL, recheck=True) == shard.parent
    damaged = bytearray(shard.read_bytes())
    damaged[1000] ^= 1
    shard.resolve().write_bytes(damaged)
    with pytest.raises(RunError, match=rf"{SHARDS[0]} is corrupt"):
        hub.download(MODEL, recheck=True)
    served.log.clear()
    assert contents(hub.download(MODEL)) == whole(served)
    assert served.requests(SHARDS[1]) == []


def test_a_shard_that_the_hub_lacks_is_named(served):
    del served.files[SHARDS[1]]
    with pytest.raises(RunError, match=rf"{SHARDS[1]} is named in model.safetensors.index.json but missing"):
        hub.download(MODEL)
    assert served.requests(SHARDS[0]) == [], "no weights are fetched of a model that cannot be complete"


def test_a_listed_file_that_answers_404_is_named(served):
    served.faults.absent = SHARDS[0]
    with pytest.raises(RunError, match=rf"{SHARDS[0]} of {MODEL} is listed but missing"):
        hub.download(MODEL)


def test_a_complete_copy_needs_no_network(served, monkeypatch):
    folder = hub.download(MODEL)
    served.log.clear()
    assert hub.download(MODEL) == folder
    assert served.log == []
    monkeypatch.setenv("HF_ENDPOINT", closed_port())
    assert hub.download(MODEL) == folder
    with pytest.warns(UserWarning, match="cannot reach .* used unchecked"):
        assert hub.download(MODEL, recheck=True) == folder
    (folder / SHARDS[0]).unlink()
    with pytest.raises(RunError, match="cannot reach"):
        hub.download(MODEL)


def test_config_alone_can_be_had(served):
    folder = hub.download(MODEL, config_only=True)
    assert sorted(contents(folder)) == ["config.json", "generation_config.json"]
    assert hub.cached_folder(MODEL) is None
    assert contents(hub.download(MODEL)) == whole(served)


def test_no_network_is_one_line_with_the_remedy(hub_cache, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", closed_port())
    with pytest.raises(RunError, match=rf"cannot reach http://127.* for {MODEL} .*HF_ENDPOINT") as caught:
        hub.download(MODEL)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "code", "line"),
    [
        (404, "RepoNotFound", f"no model '{MODEL}' on http"),
        (401, None, rf"refuses {MODEL} \(401\): set HF_TOKEN"),
        (401, "GatedRepo", f"{MODEL} is gated: accept its terms .*HF_TOKEN"),
        (403, None, rf"refuses {MODEL} \(403\): set HF_TOKEN"),
        (503, None, f"answered 503 for {MODEL}: try again later"),
    ],
)
def test_refusals_say_what_to_do(served, status, code, line):
    served.faults.status, served.faults.error_code = status, code
    with pytest.raises(RunError, match=line) as caught:
        hub.download(MODEL)
    assert "\n" not in str(caught.value)
    served.faults.status = None
    assert contents(hub.download(MODEL)) == whole(served)


def test_a_full_disk_is_foreseen(served, monkeypatch):
    usage = hub.shutil.disk_usage(Path.cwd())
    monkeypatch.setattr(hub.shutil, "disk_usage", lambda _: usage._replace(free=400_000))
    with pytest.raises(RunError, match=rf"needs .* on disk, {re.escape(gib(400_000))} are free"):
        hub.download(MODEL)
    assert served.requests(SHARDS[0]) == []


# ---- as a program: progress, and a process that is killed ----

PROGRAM = f"from minillm import hub; print(hub.download({MODEL!r}))"


def environment(stand_in: StandInHub, hub_cache: Path) -> dict[str, str]:
    return {**os.environ, "HF_ENDPOINT": stand_in.endpoint, "HF_HUB_CACHE": str(hub_cache)}


def test_no_progress_on_a_pipe(served, hub_cache):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment(served, hub_cache),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert contents(Path(done.stdout.strip())) == whole(served)


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
def test_progress_on_a_terminal(served, hub_cache):
    import pty
    import termios

    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=environment(served, hub_cache),
        stdout=subprocess.PIPE,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        shown = read_all(ours)
        assert process.wait() == 0
    assert b"100%" in shown
    assert MODEL.encode() in shown


def read_all(terminal: int) -> bytes:
    shown = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # Linux reports the other side's end this way
            piece = b""
        if not piece:
            os.close(terminal)
            return shown
        shown += piece


def test_a_killed_process_leaves_what_came_and_nothing_that_looks_complete(served, hub_cache):
    served.faults.slow_s = 0.2
    with subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment(served, hub_cache)) as process:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not any(r.sent >= 131_072 for r in served.requests(SHARDS[0])):
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert hub.cached_folder(MODEL) is None
    served.faults.slow_s = 0.0
    served.log.clear()
    assert contents(hub.download(MODEL)) == whole(served)
    (rest,) = served.requests(SHARDS[0])
    assert 0 < rest.first_byte < 300_000
    assert rest.sent == 300_000 - rest.first_byte
