"""Ours beside vLLM: ratios, shares and goals of rows, on paper."""

import pytest
from test_offloaded import SHAPE

from experiments import vllm_checks
from minillm import ModelConfig, presets


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """The model of the rows, whose bandwidth is judged."""
    monkeypatch.setitem(presets.PRESETS, "Small", ModelConfig(**SHAPE))
    monkeypatch.setattr(vllm_checks, "BANDWIDTH_MODEL", "Small")


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


def test_one_copy_rate_is_taken_for_all_rows_the_median_of_the_commands():
    name = "Small resident: weights and KV read a second over the copy bandwidth"
    alone = figures([ours("resident/0", 1000.0)])[name][0]
    others = [theirs("resident/0", 1.0, device_gb_s=2.0), theirs("resident/1", 1.0, device_gb_s=2.0)]
    others += [row("resident-process/0", "vllm", "resident-process", 1.0, device_gb_s=4.0)]
    assert figures([ours("resident/0", 1000.0), *others])[name][0] == pytest.approx(alone / 2)


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
        row("prefetch/10", "vllm", "prefetch", 6.5, ttft=0.08),
        row("prefetch/peak", "vllm", "prefetch", 1.0, peak=90),
    ]
    found = figures([*mine, *other])
    name = "Small, %d layers: %s, ours over vLLM's %s offloader"
    assert found[name % (13, "decode tok/s", "prefetch")] == (pytest.approx(6 / 6.5), False)
    assert found[name % (14, "decode tok/s", "prefetch")] == (pytest.approx(7 / 6.5), True)
    assert found[name % (13, "peak GPU memory", "prefetch")] == (pytest.approx(100 / 90), False)
    assert found[name % (13, "TTFT", "prefetch")] == (pytest.approx(0.1 / 0.08), None)
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
