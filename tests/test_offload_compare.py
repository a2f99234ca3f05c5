"""The comparison: parts can come in several calls, ratios are of the same prompt, the peer is a process."""

import json

import pytest
from test_offloaded import SHAPE

from experiments import machine, offload_compare, offload_options, offload_ttft
from experiments.offloaded import Offloaded
from experiments.results import Results
from minillm import ModelConfig, presets

COMMAND = ["--device", "cpu", "--model", "random:Small", "--link-gb-s", "5", "--machine", "box"]
COMMAND += ["--prompts", "2", "--new-tokens", "4", "--lengths", "8", "40"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A model of five layers; bandwidths take seconds and are tested elsewhere."""
    monkeypatch.setitem(presets.PRESETS, "Small", ModelConfig(**SHAPE))
    monkeypatch.setattr(offload_options, "PATIENCE_S", 0.0)
    monkeypatch.setattr(machine, "describe", lambda: {"date": "now", "commit": "abc", "command": "x"})


def stored(folder):
    return json.loads((folder / "offload_compare__box.json").read_text())


def keys(folder):
    return [row["key"] for row in stored(folder)["rows"]]


def test_each_call_adds_its_part_to_the_file(tmp_path, monkeypatch):
    folder = ["--out", str(tmp_path), "--resume", str(tmp_path)]
    assert offload_compare.main([*COMMAND, *folder, "--modes", "naive"]) == 0
    assert keys(tmp_path) == ["blocks", "loaded", "naive/0", "naive/1"]
    names = {c["name"] for c in stored(tmp_path)["checks"]}
    assert not any("prefetch over" in name for name in names)
    assert offload_compare.main([*COMMAND, *folder, "--modes", "prefetch", "ttft", "accelerate"]) == 0
    assert keys(tmp_path)[4:] == [
        *("blocks/1", "slots/8", "slots/40", "prefetch/0", "prefetch/1"),
        *("streamed_prefill/8", "streamed_prefill/40"),
        *("resident_prefill/8", "ttft/8", "resident_prefill/40", "ttft/40", "accelerate/0"),
    ]
    rows = {row["key"]: row for row in stored(tmp_path)["rows"]}
    assert rows["prefetch/1"]["question_id"] == rows["naive/1"]["question_id"] == 2
    assert rows["prefetch/1"]["answer"] == rows["naive/1"]["answer"]
    assert (rows["prefetch/0"]["prompt_tokens"], rows["prefetch/0"]["resident"]) == (8, 1)
    assert rows["ttft/40"]["slots"] == rows["slots/40"]["slots"] == rows["streamed_prefill/40"]["slots"]
    assert rows["accelerate/0"]["skipped"]
    before = keys(tmp_path)
    monkeypatch.setattr(Offloaded, "__init__", lambda *_, **__: pytest.fail("everything is measured"))
    assert offload_compare.main([*COMMAND, *folder]) == 0
    assert keys(tmp_path) == before


def results_of(tmp_path, *rows):
    results = Results("x", "box", tmp_path)
    for row in rows:
        results.row(row["key"], lambda row=row: row)
    return results


def row(key, speed):
    sizes = {"predicted_peak_bytes": 99, "peak_bytes": 100, "held_bytes": 100, "cap_gib": None}
    return {
        "key": key,
        "mode": "x",
        "tokens_per_s": speed,
        "ttft_s": 0.2,
        "limit_tokens_per_s": 10.0,
        **sizes,
    }


def figures(checks):
    return {c["name"]: (c["value"], c["met"]) for c in checks}


def test_ratios_are_of_the_same_prompt_and_only_of_pairs(tmp_path):
    rows = [row("naive/0", 4.0), row("naive/1", 2.0), row("prefetch/0", 6.0), row("prefetch/1", 6.0)]
    results = results_of(tmp_path, *rows, row("prefetch/2", 8.0), row("accelerate/0", 0.8))
    checks = figures(offload_compare.timed_checks(results))
    assert checks["prefetch over naive, tok/s, median of prompts"] == (2.25, None)
    assert checks["prefetch over accelerate, tok/s, same prompt and resident layers"] == (
        pytest.approx(7.5),
        False,
    )
    assert checks["prefetch: tok/s, median of 3 prompts"][0] == 6.0
    assert checks["naive: tok/s over the limit of the design, median"][0] == pytest.approx(0.3)


def test_peer_that_was_not_run_leaves_its_goal_unmet(tmp_path):
    results = results_of(
        tmp_path, row("prefetch/0", 6.0), {"key": "accelerate/0", "skipped": "not installed"}
    )
    checks = figures(offload_compare.timed_checks(results))
    assert checks["prefetch over accelerate, tok/s, same prompt and resident layers"] == (None, False)
    assert "prefetch over naive, tok/s, median of prompts" not in checks


@pytest.mark.parametrize(
    ("link", "resident", "ratio", "met"),
    [(0.2, 0.1, 1.05, True), (0.1, 0.2, 1.05, True), (0.1, 0.1, 2.1, False)],
)
def test_first_token_is_judged_by_the_slower_of_link_and_computing(tmp_path, link, resident, ratio, met):
    times = {"prompt_tokens": 128, "ttft_s": 0.21, "link_s": link, "resident_prefill_s": resident}
    (found,) = offload_ttft.checks(results_of(tmp_path, {"key": "ttft/128", **times}))
    assert (found["value"], found["met"]) == (pytest.approx(ratio), met)


def test_link_needs_the_streamed_bytes_once(tmp_path):
    streamed = {"streamed_bytes": 11 * 10**9, "link_gb_s": 55.0, "slots": 2, "ttft_s": 0.3}
    both = {"key": "streamed_prefill/9", **streamed}, {"key": "resident_prefill/9", "ttft_s": 0.1}
    made = offload_ttft.combined(results_of(tmp_path, *both), 9)
    assert made["link_s"] == pytest.approx(0.2)
    assert made["rtx3070_link_s"] == pytest.approx(11 / 31.5)
    assert (made["ttft_s"], made["resident_prefill_s"], made["slots"]) == (0.3, 0.1, 2)


def test_budget_is_13_where_there_are_more_layers():
    for model, budget in (("random:Qwen3-8B", 13), ("tiny", 4)):
        assert offload_compare.read_options(["--device", "cpu", "--model", model]).budget == budget


def test_failed_peer_is_an_error_with_its_last_words():
    asked = {"model": "random:NoSuch", "device": "cpu", "cap_gib": None}
    with pytest.raises(RuntimeError, match="no published geometry 'NoSuch'"):
        offload_compare.run_peer(asked)
