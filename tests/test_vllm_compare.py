"""The comparison with vLLM: parts in several calls, a peer that breaks off, ratios and goals from rows."""

import json
import sys
from pathlib import Path

import pytest
import stand_in_peer
from test_offloaded import SHAPE

from experiments import machine, peers, side_by_side, vllm_checks, vllm_compare
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
    monkeypatch.setattr(vllm_checks, "BANDWIDTH_MODEL", "Small")


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


def test_a_failure_of_ours_is_a_row_and_what_comes_later_is_measured(tmp_path, monkeypatch):
    stand_in(monkeypatch, "whole")
    place = vllm_compare.Offloaded.place

    def full(self, mode, budget, slots):
        if budget == 3:
            raise RunError("not enough memory")
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


# ---- figures of rows, on paper ----


def row(key, engine, mode, speed=None, ttft=0.1, peak=100, **more):
    index = key.rsplit("/", 1)[1]
    made = {"key": f"Small/{engine}/{key}", "model": "Small", "engine": engine, "mode": mode, "path": None}
    made |= {"question_id": int(index) + 1 if "prefill" not in key and index.isdigit() else None}
    made |= {"tokens_per_s": speed, "ttft_s": ttft, "peak_bytes": peak, "prompt_tokens": 8, "new_tokens": 4}
    return made | {"budget": None, "device_gb_s": 1.0} | more


def figures(rows):
    return {c["name"]: (c["value"], c["met"]) for c in vllm_checks.timed_checks(rows, "Small")}


def ours(key, speed=None, **more):
    return row(key, "minillm", "resident", speed, path="fast", **more)


def theirs(key, speed=None, **more):
    return row(key, "vllm", "resident", speed, **more)


def test_decode_is_the_median_of_ratios_of_the_same_prompt():
    rows = [
        ours("resident/0", 30.0),
        ours("resident/1", 10.0),
        ours("resident/2", 50.0),
        ours("resident/3", 5.0),
    ]
    rows += [theirs("resident/0", 20.0), theirs("resident/1", 20.0), theirs("resident/2", 50.0)]
    assert figures(rows)["Small resident: decode tok/s, ours over vllm"] == (1.0, True)
    rows[2] = ours("resident/2", 49.0)
    assert figures(rows)["Small resident: decode tok/s, ours over vllm"] == (pytest.approx(0.98), False)


def test_prefills_are_compared_at_each_length():
    rows = [
        ours("prefill/128", ttft=0.011, prompt_tokens=128),
        ours("prefill/1024", ttft=0.03, prompt_tokens=1024),
    ]
    rows += [theirs("prefill/128", ttft=0.010, prompt_tokens=128)]
    rows += [theirs("prefill/1024", ttft=0.02, prompt_tokens=1024)]
    found = figures(rows)
    assert found["Small resident: prefill latency of 128 tokens, ours over vllm"] == (
        pytest.approx(1.1),
        True,
    )
    assert found["Small resident: prefill latency of 1024 tokens, ours over vllm"] == (
        pytest.approx(1.5),
        False,
    )


def test_vllm_in_its_own_process_is_compared_for_itself():
    rows = [ours("resident/0", 30.0), ours("prefill/128", ttft=0.012, prompt_tokens=128)]
    rows += [row("resident-process/0", "vllm", "resident-process", 40.0)]
    rows += [row("prefill/128", "vllm", "resident-process", ttft=0.012, prompt_tokens=128)]
    found, name = figures(rows), "Small resident: %s, ours over vllm in its own process"
    assert found[name % "decode tok/s"] == (0.75, False)
    assert found[name % "prefill latency of 128 tokens"] == (1.0, True)
    assert name % "peak GPU memory" not in found
    assert "Small resident: decode tok/s, ours over vllm" not in found


@pytest.mark.parametrize(("mine", "met"), [(100, True), (101, False)])
def test_peaks_are_those_of_the_whole_context(mine, met):
    rows = [ours("resident/0", 1.0, peak=9999), ours("resident/peak", 1.0, peak=mine)]
    rows += [theirs("resident/peak", 1.0, peak=100)]
    name = "Small resident: peak GPU memory%s, ours over vllm"
    assert figures(rows)[name % ""] == (mine / 100, met)
    less = name % " less its counts for many sequences"
    assert less not in figures(rows)
    start = {"key": "Small/vllm/resident/loaded", "model": "Small", "engine": "vllm", "mode": "resident"}
    found = figures([*rows, start | {"counts_bytes": 20, "load_s": 1.0}])
    assert found[less] == (mine / 80, None)
    assert found[name % ""] == (mine / 100, met)


def test_bytes_read_are_all_weights_and_the_cache_so_far():
    layer = 2 * (64 * 64 * 2 + 2 * 64 * 32 + 3 * 64 * 96 + 2 * 64 + 2 * 16)  # q and o, k and v, MLP, norms
    token = 5 * layer + 2 * 300 * 64 + 2 * 64 - 2 * 64  # the head is read, the embedding and one norm hardly
    cache = (8 + 4 / 2) * 5 * 2 * 2 * 16 * 2
    rows = [ours("resident/0", 1000.0, device_gb_s=1.0)]
    value, met = figures(rows)["Small resident: weights and KV read a second over the copy bandwidth"]
    assert value == pytest.approx(1000 * (token + cache) / 1e9, rel=1e-3)
    assert met == (value >= 0.8)


def test_every_decode_step_of_the_fast_path_is_a_replay():
    name = "Small resident: graph replays are tokens - 1"
    rows = [ours("resident/0", 1.0, graph_replays=3), ours("resident/1", 1.0, graph_replays=3)]
    assert figures(rows)[name] == (1, True)
    assert figures([*rows, ours("resident/2", 1.0, graph_replays=2)])[name] == (0, False)
    assert name not in figures([ours("resident/0", 1.0)])


def test_offloaders_are_compared_at_each_budget():
    mine = [
        row(f"prefetch{end}/10", "minillm", "prefetch", 6.0 + n, budget=13 + n)
        for n, end in enumerate(("", "-14"))
    ]
    mine += [
        row(f"prefetch{end}/peak", "minillm", "prefetch", 6.0, budget=13 + n)
        for n, end in enumerate(("", "-14"))
    ]
    other = [
        row("prefetch/10", "vllm", "prefetch", 6.5),
        row("prefetch/peak", "vllm", "prefetch", 1.0, peak=90),
    ]
    found = figures([*mine, *other])
    name = "Small, %d layers: %s, ours over vLLM's %s offloader"
    assert found[name % (13, "decode tok/s", "prefetch")] == (pytest.approx(6 / 6.5), False)
    assert found[name % (14, "decode tok/s", "prefetch")] == (pytest.approx(7 / 6.5), True)
    assert found[name % (13, "peak GPU memory", "prefetch")] == (pytest.approx(100 / 90), False)
    assert not any("uva" in each for each in found)
    skipped = {"key": "Small/vllm/uva", "model": "Small", "engine": "vllm", "mode": "uva", "skipped": "why"}
    assert figures([*mine, skipped])[name % (14, "decode tok/s", "uva")] == (None, False)


def test_locked_memory_and_the_time_to_start_are_only_reported():
    rows = [row("prefetch/10", "minillm", "prefetch", 6.0, budget=13, host_locked_bytes=150)]
    rows += [row("prefetch/10", "vllm", "prefetch", 6.0, host_locked_bytes=100)]
    start = {
        "key": "Small/minillm/prefetch/loaded",
        "model": "Small",
        "engine": "minillm",
        "mode": "prefetch",
    }
    found = figures([*rows, start | {"load_s": 3.0, "warm_s": 2.0}])
    assert found["Small, 13 layers: locked host memory, ours over vLLM's prefetch offloader"] == (1.5, None)
    assert found["Small/minillm/prefetch/loaded: s until ready"] == (5.0, None)


def test_hugging_face_is_only_reported():
    rows = [ours("resident/0", 10.0), row("resident/0", "transformers", "resident", 20.0)]
    found = figures(rows)
    assert found["Small resident: decode tok/s, ours over transformers"] == (0.5, None)
    assert "Small resident: peak GPU memory, ours over transformers" not in found
