"""The measuring commands of offloading on CUDA, on a small model: they run, and what must hold holds."""

import json

import pytest
import torch

from experiments import (
    bigger_models,
    budget_sweep,
    ceilings,
    loading_speed,
    machine,
    offload_compare,
    packed_products,
    peer_settings,
)

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA GPU; torch finds none here"
)
MODEL = "random:Qwen3-0.6B"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """`run(command, experiment, *words)` → rows by key; the memory cap is lifted afterwards."""
    monkeypatch.setattr(machine, "describe", lambda: {"date": "now", "commit": "abc", "command": "x"})

    def run(command, experiment: str, *words: str) -> dict[str, dict]:
        command.main([*words, "--no-goals", "--machine", "box", "--out", str(tmp_path)])
        rows = json.loads((tmp_path / f"{experiment}__box.json").read_text())["rows"]
        return {row["key"]: row for row in rows}

    run.folder = tmp_path
    yield run
    torch.cuda.set_per_process_memory_fraction(1.0)


def test_sweep(run):
    words = ("--model", MODEL, "--new-tokens", "6", "--budgets", "1", "3", "--lifted", "28", "--cap-gib", "4")
    rows = run(budget_sweep, "budget_sweep", *words)
    assert len({rows[key]["answer"] for key in rows if "answer" in rows[key]}) == 1
    assert (
        rows["loaded"]["asked_bytes"]
        <= rows["loaded"]["locked_bytes"]
        <= 1.02 * rows["loaded"]["asked_bytes"]
    )
    for key in ("prefetch/1", "naive/3"):
        assert 0.9 < rows[key]["predicted_peak_bytes"] / rows[key]["peak_bytes"] < 1.1
        assert rows[key]["held_bytes"] <= 4 * 2**30


def test_comparison_with_accelerate(run):
    words = (
        "--model",
        MODEL,
        "--prompts",
        "1",
        "--new-tokens",
        "6",
        "--lengths",
        "64",
        "1100",
        "--budget",
        "5",
    )
    rows = run(offload_compare, "offload_compare", *words)
    assert rows["naive/0"]["answer"] == rows["prefetch/0"]["answer"]
    assert rows["ttft/1100"]["ttft_s"] > 0
    peer = rows["accelerate/0"]
    if "skipped" not in peer:
        assert (peer["resident"], peer["new_tokens"]) == (4, 8)
        assert 0 < peer["tokens_per_s"] < rows["prefetch/0"]["tokens_per_s"]


def test_peers_with_and_without_cudnn(run):
    words = ("--models", MODEL, "--model", MODEL, "--prompts", "1", "--new-tokens", "6", "--budget", "5")
    rows = run(peer_settings, "peer_settings", *words)
    for setting, cudnn in (("as-installed", True), ("without-cuDNN", False)):
        start = f"Qwen3-0.6B/transformers/resident-{setting}"
        assert rows[f"{start}/loaded"]["flags"]["cudnn_attention"] is cudnn
        assert rows[f"{start}/10"]["tokens_per_s"] > 0
        offloaded = rows[f"Qwen3-0.6B/accelerate/{setting}/0"]
        assert "skipped" in offloaded or offloaded["cudnn_attention"] is cudnn
    assert rows["Qwen3-0.6B/minillm/resident/10"]["path"] == "fast"


def test_bigger_models_and_ceilings(run):
    rows = run(bigger_models, "bigger_models", "--models", MODEL, "--cap-gib", "1", "--new-tokens", "4")
    assert rows["Qwen3-0.6B/prefetch"]["held_bytes"] <= 2**30
    assert rows["Qwen3-0.6B/prefetch"]["streamed"] > 0
    rows = run(ceilings, "ceilings", "--models", MODEL)
    assert rows["Qwen3-0.6B/1024"]["mlp_s"] > 0


def test_loading(run):
    rows = run(loading_speed, "loading", "--model", "Qwen3-0.6B", "--repeats", "1")
    row = rows["Qwen3-0.6B/offloaded/0"]
    assert row["locked_bytes"] == row["arena_bytes"]
    assert min(row["touch_s"], row["pin_s"], row["fill_s"]) > 0


def test_packed_products(run, monkeypatch):
    monkeypatch.setattr(packed_products, "PRODUCTS", {"down": (64, 256, (False, False, True), 2)})
    monkeypatch.setattr(packed_products, "BEYOND_CACHES", 1 << 20)
    packed_products.main(["--machine", "box", "--out", str(run.folder)])
    rows = json.loads((run.folder / "packed_products__box.json").read_text())["rows"]
    assert [row["key"] for row in rows] == ["down/dense", "down/int8", "down/fp8", "down/int4"]
    assert rows[0]["bytes"] > rows[1]["bytes"] > rows[3]["bytes"] > 0
    assert all(row["us"] > 0 for row in rows)
