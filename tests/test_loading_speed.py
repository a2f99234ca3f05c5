"""Loading into the arena: a fresh process says what its steps took; which repetition is judged."""

import json

import pytest
from test_offloaded import SHAPE

from experiments import load_probe, loading, loading_speed, machine, offload_load_probe
from minillm import ModelConfig, presets
from minillm.arena import HostArena

pytestmark = pytest.mark.skipif(not load_probe.STATUS.is_file(), reason="reads /proc/self/status, not there")
ARENA = 5 * (2 * (64 + 2 * 64 * 64 + 2 * 32 * 64 + 64 + 3 * 96 * 64) + 4 * 256 - 2 * 128) + 2 * 300 * 64


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A model of five layers in bf16; bandwidths take seconds and are tested elsewhere."""
    monkeypatch.setitem(presets.PRESETS, "Small", ModelConfig(**SHAPE))
    monkeypatch.setattr(machine, "describe", lambda: {"date": "now", "commit": "abc", "command": "x"})


def test_probe_times_the_steps_of_one_load_and_puts_everything_back(tmp_path):
    loading.write_checkpoint("Small", tmp_path)
    before = HostArena.touch, HostArena.pin
    found = offload_load_probe.main("cpu", str(tmp_path))
    assert (HostArena.touch, HostArena.pin) == before
    assert abs(found["arena_bytes"] - ARENA) <= 256
    assert found["locked_bytes"] is None
    assert found["touch_s"] > 0
    assert found["pin_s"] == 0  # nothing is locked without a GPU
    assert 0 < found["fill_s"] < found["seconds"]
    assert found["memcpy_gb_s"] > 0


def test_command_stores_every_repetition_and_leaves_no_checkpoint(tmp_path):
    (tmp_path / "made").mkdir()
    command = ["--device", "cpu", "--model", "Small", "--repeats", "1", "--machine", "box"]
    command += ["--out", str(tmp_path), "--folder", str(tmp_path / "made")]
    assert loading_speed.main(command) == 0
    stored = json.loads((tmp_path / "loading__box.json").read_text())
    assert [row["key"] for row in stored["rows"]] == ["Small/offloaded/0"]
    assert stored["rows"][0]["peak_bytes"] > 0
    assert list((tmp_path / "made").iterdir()) == []


def row(**changes):
    usual = {"weight_bytes": 10**9, "peak_bytes": 10**9, "touch_s": 0.1, "pin_s": 0.1, "seconds": 3.0}
    return usual | {"fill_s": 0.1, "memcpy_gb_s": 10.0} | changes


def test_checks_take_the_worst_peak_and_the_middle_speed():
    rows = [row(), row(peak_bytes=1.2 * 10**9), row(fill_s=0.2)]
    checks = {c["name"]: (c["value"], c["met"]) for c in loading_speed.model_checks("m", rows)}
    assert checks["m: peak memory over weights"] == (1.2, False)
    assert checks["m: filling locked memory over a memcpy"] == (pytest.approx(1.0), True)
    assert checks["m: touching, locking and filling over a memcpy"] == (pytest.approx(1 / 3), None)
    slow = {c["name"]: c["met"] for c in loading_speed.model_checks("m", [row(fill_s=0.2)])}
    assert slow["m: filling locked memory over a memcpy"] is False


def test_failed_load_is_an_error_with_its_last_words(tmp_path):
    with pytest.raises(RuntimeError, match=r"config\.json"):
        loading_speed.probe("cpu", tmp_path)
