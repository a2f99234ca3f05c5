"""Bigger models: the largest budget under a cap, one row a model, models added in another call."""

import json
from dataclasses import replace

import pytest
from test_offloaded import SHAPE

from experiments import bigger_models, machine, offload_options
from minillm import ModelConfig, memory, presets

SMALL = ModelConfig(**SHAPE)
COMMAND = ["--device", "cpu", "--link-gb-s", "5", "--machine", "box"]
LAYER = 4 * (64 + 2 * 64 * 64 + 2 * 32 * 64 + 64 + 3 * 96 * 64) + 2 * 256  # bytes in float32


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Two models that differ in depth alone."""
    monkeypatch.setitem(presets.PRESETS, "Small", SMALL)
    monkeypatch.setitem(presets.PRESETS, "Deep", replace(SMALL, num_hidden_layers=9))
    monkeypatch.setattr(offload_options, "PATIENCE_S", 0.0)
    monkeypatch.setattr(machine, "describe", lambda: {"date": "now", "commit": "abc", "command": "x"})


def rows(folder):
    stored = json.loads((folder / "bigger_models__box.json").read_text())
    return {row["key"]: row for row in stored["rows"]}


def test_the_cap_decides_how_many_layers_stay(tmp_path):
    sizes = memory.plan(SMALL, 4, bigger_models.PROMPT_TOKENS + 3)
    three = sizes.head + sizes.norm + 2 * sizes.kv + sizes.workspace + 3 * LAYER
    gib = three / 2**30
    command = [*COMMAND, "--out", str(tmp_path), "--cap-gib", str(gib), "--new-tokens", "3"]
    assert bigger_models.main([*command, "--models", "random:Small"]) == 0
    assert bigger_models.main([*command, "--models", "random:Deep", "--resume", str(tmp_path)]) == 0
    found = rows(tmp_path)
    assert list(found) == ["Small/blocks", "Small/prefetch", "Deep/blocks/1", "Deep/prefetch"]
    for name, layers in (("Small", 5), ("Deep", 9)):
        row = found[f"{name}/prefetch"]
        assert row["budget"] == (3 if layers == 9 else 4)  # the cache of five layers leaves room for one more
        assert row["held_bytes"] <= three < row["predicted_peak_bytes"] + LAYER
        assert (row["resident"] + row["streamed"], row["new_tokens"]) == (layers, 3)
        assert row["asked_bytes"] == layers * LAYER + 300 * 64 * 4
        assert row["host_locked_bytes"] is None
        assert row["rtx3070_tokens_per_s"] > 0


def test_goal_is_about_one_model():
    sizes = {"predicted_peak_bytes": 100, "peak_bytes": 100, "held_bytes": 100, "cap_gib": None}
    row = sizes | {"tokens_per_s": 2.0, "limit_tokens_per_s": 2.1, "asked_bytes": 9, "locked_bytes": 9}
    first = {name: bigger_models.model_checks(row | {"model": name})[0] for name in ("Qwen3-8B", "Qwen3-14B")}
    assert first["Qwen3-14B"]["met"] is False
    assert first["Qwen3-8B"]["met"] is None
