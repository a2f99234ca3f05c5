"""The experiment on fewer bytes, on the emulated device: rows hold together, and a second part continues."""

import json

import pytest

from experiments import machine, quant
from experiments.results import check

pytestmark = pytest.mark.alone


@pytest.fixture
def run(tmp_path, monkeypatch):
    """`run(*words)` → rows by key."""
    monkeypatch.setattr(machine, "describe", lambda: {"date": "now", "commit": "abc", "command": "x"})

    def run(*words: str) -> dict[str, dict]:
        more = ("--device", "cpu", "--machine", "box", "--out", str(tmp_path), "--new-tokens", "4")
        assert quant.main([*words, *more, "--link-gb-s", "0.05"]) == 0
        rows = json.loads((tmp_path / "quant__box.json").read_text())["rows"]
        return {row["key"]: row for row in rows}

    return run


def test_fewer_bytes_take_less_time(run):
    rows = run("--parts", "streamed", "--formats", "int8", "int4")
    dense, int8, int4 = (rows[f"tiny/{name}/2"] for name in ("dense", "int8", "int4"))
    assert 3.5 < dense["streamed_bytes"] / int8["streamed_bytes"] < 4  # float32 on the emulated device
    assert 7 < dense["streamed_bytes"] / int4["streamed_bytes"] < 8
    for row in (dense, int8, int4):
        assert row["copied_bytes_a_pass"] == row["streamed_bytes"]
        assert row["dense_limit_tokens_per_s"] == dense["limit_tokens_per_s"]
        # The first of three tokens finds copies under way that began before it.
        assert row["tokens_per_s"] < 1.3 * row["limit_tokens_per_s"]
    assert int8["tokens_per_s"] > 1.5 * dense["tokens_per_s"]


def test_a_second_part_continues_the_file(run, tmp_path):
    first = run("--parts", "resident", "--formats", "int4")
    second = run("--parts", "bigger", "--bigger", "tiny-draft", "--resume", str(tmp_path))
    assert all(second[key] == row for key, row in first.items())
    assert second["tiny-draft/int4/cap"]["quantize"] == "int4"


def test_goals_are_those_of_the_formats(tmp_path):
    class Stored:
        def rows(self):
            one = {"mode": "prefetch", "tokens_per_s": 8.0, "dense_limit_tokens_per_s": 4.0, "cap_gib": 7.2}
            one |= {"limit_tokens_per_s": 8.0, "predicted_peak_bytes": 1, "peak_bytes": 1, "held_bytes": 1}
            one |= {"locked_bytes": 1, "asked_bytes": 1}
            kept = {"mode": "resident", "quantize": None, "tokens_per_s": 2.0, "key": "8B/dense/resident"}
            return [
                one | {"key": "8B/int8/2", "quantize": "int8"},
                one | {"key": "8B/int4/2", "quantize": "int4"},
                one | {"key": "32B/int4/cap", "quantize": "int4"},
                kept,
                kept | {"quantize": "int4", "tokens_per_s": 3.0, "key": "8B/int4/resident"},
            ]

    checks = {each["name"]: each for each in quant.speed_checks(Stored())}
    name = "tok/s over the limit of dense weights"
    assert checks[f"8B/int8/2: {name}"] == check(f"8B/int8/2: {name}", 2.0, 1.9)
    assert checks[f"8B/int4/2: {name}"]["met"] is False
    assert checks["32B/int4/cap: tok/s over its limit"] == check(
        "32B/int4/cap: tok/s over its limit", 1.0, 0.97
    )
    assert checks["8B/int4/resident: tok/s over dense"]["met"] is False
