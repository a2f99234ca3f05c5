"""The comparison with vLLM: parts in several calls, a peer that breaks off, budgets that match."""

import json
import sys
from pathlib import Path

import pytest
import stand_in_peer
from test_offloaded import SHAPE

from experiments import machine, peers, side_by_side, vllm_compare
from minillm import ModelConfig, presets
from minillm.errors import RunError

STAND_IN = Path(stand_in_peer.__file__)
OURS = ["minillm", "offloaded"]
THEIRS = ["vllm", "vllm-process", "vllm-prefetch", "vllm-uva", "transformers"]
COMMAND = ["--device", "cpu", "--model", "random:Small", "--models", "random:Small", "--machine", "box"]
COMMAND += [
    "--link-gb-s",
    "5",
    "--prompts",
    "2",
    "--new-tokens",
    "4",
    "--lengths",
    "8",
    "40",
    "--resident",
    "2",
]
COMMAND += ["--offloaded-tokens", "4"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A model of five layers; bandwidths take seconds and are tested elsewhere."""
    monkeypatch.setitem(presets.PRESETS, "Small", ModelConfig(**SHAPE))
    about = {"date": "now", "commit": "abc", "command": "x", "ceilings": {"host_copy_gb_s": 20.0}}
    monkeypatch.setattr(machine, "describe", lambda: about)


def stand_in(monkeypatch, how):
    for name in peers.WORDS:
        monkeypatch.setitem(peers.WORDS, name, [sys.executable, str(STAND_IN), how])


def stored(folder):
    return json.loads((folder / "vllm__box.json").read_text())


def keys(folder):
    return [row["key"] for row in stored(folder)["rows"]]


def run(folder, *parts):
    return vllm_compare.main([*COMMAND, "--out", str(folder), "--resume", str(folder), "--parts", *parts])


def test_parts_come_one_by_one_and_nothing_is_measured_twice(tmp_path, monkeypatch):
    stand_in(monkeypatch, "whole")
    assert run(tmp_path, *OURS) == 0
    ours = [f"Small/minillm/{end}" for end in ("resident/0", "resident/19", "prefill/8", "prefill/40")]
    ours += [
        f"Small/minillm/{end}" for end in ("resident/peak", "prefetch/10", "prefetch-4/0", "prefetch-4/peak")
    ]
    assert set(ours) < set(keys(tmp_path))
    assert not any("vllm" in c["name"].lower() for c in stored(tmp_path)["checks"])
    run(tmp_path, *THEIRS)
    found = [key for key in keys(tmp_path) if "/vllm/" in key]
    assert found[:3] == ["Small/vllm/resident/loaded", "Small/vllm/resident/0", "Small/vllm/resident/19"]
    assert found[-3:] == ["Small/vllm/uva/loaded", "Small/vllm/uva/10", "Small/vllm/uva/peak"]
    before = keys(tmp_path)
    for place in (peers, side_by_side):
        monkeypatch.setattr(
            place, "LLM" if place is side_by_side else "rows", lambda *_, **__: pytest.fail("again")
        )
    run(tmp_path, *vllm_compare.PARTS)
    assert keys(tmp_path) == before


def test_rows_say_what_ran_and_where_the_layers_lay(tmp_path, monkeypatch):
    stand_in(monkeypatch, "whole")
    run(tmp_path, *OURS, *THEIRS)
    rows = {row["key"].removeprefix("Small/"): row for row in stored(tmp_path)["rows"]}
    assert [rows[f"{name}/0"]["resident"] for name in ("minillm/prefetch", "vllm/prefetch")] == [2, 2]
    assert [rows[f"minillm/{name}/0"]["budget"] for name in ("prefetch", "prefetch-4", "resident")] == [
        3,
        4,
        None,
    ]
    assert (rows["minillm/prefetch-4/0"]["resident"], rows["minillm/prefetch-4/0"]["slots"]) == (3, 1)
    assert (rows["vllm/prefetch/0"]["slots"], rows["vllm/uva/10"]["slots"]) == (2, None)
    assert rows["vllm/uva/10"]["new_tokens"] == 2
    assert rows["minillm/resident/19"]["question_id"] == rows["vllm/resident/19"]["question_id"] == 20
    assert (rows["vllm/resident/0"]["link_gb_s"], rows["vllm/resident/0"]["device_gb_s"]) == (5.0, 20.0)
    # The peak is with a cache of the whole context, an answer's with one of its own prompt and tokens.
    whole, own = (rows[f"minillm/prefetch/{end}"]["peak_bytes"] for end in ("peak", "0"))
    assert whole - own == (2048 - (8 + 4 - 1)) * 5 * 2 * 2 * 16 * 4
    # The larger budget keeps one layer more.
    streamed = [rows[f"minillm/{name}/0"]["streamed_bytes"] for name in ("prefetch", "prefetch-4")]
    peaks = [rows[f"minillm/{name}/peak"]["peak_bytes"] for name in ("prefetch", "prefetch-4")]
    assert peaks[1] - peaks[0] == streamed[0] - streamed[1]
    assert rows["vllm/resident/loaded"]["kv_tokens"] == rows["minillm/resident/loaded"]["kv_tokens"] == 2048
    assert len({rows[f"minillm/{name}/0"]["answer"] for name in ("resident", "prefetch", "prefetch-4")}) == 1


@pytest.mark.parametrize(("how", "word"), [("fails", "failed"), ("missing", "skipped")])
def test_a_peer_that_breaks_off_does_not_stop_the_others(tmp_path, monkeypatch, how, word):
    stand_in(monkeypatch, how)
    assert run(tmp_path, "vllm", "vllm-uva") == (1 if how == "fails" else 0)
    rows = {row["key"]: row for row in stored(tmp_path)["rows"]}
    assert word in rows["Small/vllm/resident"]
    assert word in rows["Small/vllm/uva"]
    assert ("Small/vllm/resident/0" in rows) == (how == "fails")
    stand_in(monkeypatch, "whole")
    run(tmp_path, "vllm")  # the other one still has failed
    assert not {"Small/vllm/resident"} & set(keys(tmp_path))
    assert {"Small/vllm/resident/0", "Small/vllm/resident/peak"} < set(keys(tmp_path))


@pytest.mark.parametrize("kind", [RunError, RuntimeError])
def test_a_failure_of_ours_is_a_row_and_what_comes_later_is_measured(tmp_path, monkeypatch, kind):
    stand_in(monkeypatch, "whole")
    place = vllm_compare.Offloaded.place

    def full(self, mode, budget, slots):
        if budget == 3:
            raise kind("not enough memory")
        place(self, mode, budget, slots)

    monkeypatch.setattr(vllm_compare.Offloaded, "place", full)
    assert run(tmp_path, "offloaded", "vllm-prefetch") == 1
    rows = {row["key"]: row for row in stored(tmp_path)["rows"]}
    assert rows["Small/minillm/prefetch"]["failed"] == "not enough memory"
    assert {"Small/minillm/prefetch-4/0", "Small/vllm/prefetch/0"} < set(rows)
    assert {c["name"]: c["met"] for c in stored(tmp_path)["checks"]}["Small/minillm/prefetch ran"] is False
    monkeypatch.setattr(vllm_compare.Offloaded, "place", place)
    assert run(tmp_path, "offloaded") == 0
    assert "Small/minillm/prefetch" not in keys(tmp_path)
    assert "Small/minillm/prefetch/peak" in keys(tmp_path)


def test_a_model_of_ours_that_does_not_fit_leaves_the_turn_to_the_peer(tmp_path, monkeypatch):
    stand_in(monkeypatch, "whole")

    def full(*_, **__):
        raise RunError("too large")

    monkeypatch.setattr(vllm_compare, "Offloaded", full)
    monkeypatch.setattr(side_by_side, "LLM", full)
    assert run(tmp_path, "minillm", "offloaded", "vllm-uva") == 1
    rows = {row["key"]: row for row in stored(tmp_path)["rows"]}
    assert rows["Small/minillm/resident"]["failed"] == rows["Small/minillm/prefetch"]["failed"] == "too large"
    assert "Small/vllm/uva/10" in rows


def test_the_budgets_are_one_and_two_more_than_what_stays():
    options = vllm_compare.read_options(["--device", "cpu"])
    assert (options.model, options.models, options.resident, options.kv_tokens) == ("tiny", ["tiny"], 2, 2048)
    on_gpu = vllm_compare.DEFAULTS["cuda"]
    assert (on_gpu["resident"], on_gpu["prompts"], on_gpu["new_tokens"]) == (12, 20, 256)
    assert 36 % (36 - on_gpu["resident"]) == 12
