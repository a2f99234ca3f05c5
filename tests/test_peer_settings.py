"""Peers as installed and without cuDNN's attention: what each is told, and what the figures compare."""

import json
import sys

import pytest
import stand_in_peer
import torch
from test_offloaded import SHAPE

from experiments import machine, offload_compare, peer_settings, peers
from minillm import ModelConfig, presets
from tests.peers import accelerate_offload, hf_generate

COMMAND = ["--device", "cpu", "--models", "random:Small", "--model", "random:Small", "--machine", "box"]
COMMAND += ["--prompts", "2", "--new-tokens", "4", "--lengths", "8", "--kv-tokens", "2048", "--budget", "2"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "Small", ModelConfig(**SHAPE))
    monkeypatch.setattr(machine, "describe", lambda: {"date": "now", "commit": "abc", "command": "x"})


@pytest.fixture
def cudnn_as_before():
    before = torch.backends.cuda.cudnn_sdp_enabled()
    yield
    torch.backends.cuda.enable_cudnn_sdp(before)


def stored(folder):
    return json.loads((folder / "peer_settings__box.json").read_text())


def test_each_peer_is_told_both_settings(tmp_path, monkeypatch):
    told = []
    words = [sys.executable, stand_in_peer.__file__, "whole"]
    rows = peers.rows
    monkeypatch.setattr(peers, "rows", lambda _, asked: told.append(asked) or rows(words, asked))

    def accelerate(options, **more):
        told.append(more)
        speed = 2.0 if more["cudnn_attention"] else 3.0
        return {"mode": "accelerate", "question_id": 1, "ttft_s": 1.0, "tokens_per_s": speed}

    monkeypatch.setattr(offload_compare, "accelerate", accelerate)
    assert peer_settings.main([*COMMAND, "--out", str(tmp_path)]) == 0
    assert [each["cudnn_attention"] for each in told] == [True, False, True, False]
    found = {row["key"]: row for row in stored(tmp_path)["rows"]}
    for setting in ("as installed", "without cuDNN"):
        key = setting.replace(" ", "-")
        assert found[f"Small/transformers/resident-{key}/0"]["path"] == setting
        assert found[f"Small/accelerate/{key}/0"]["mode"] == "offloaded"
    values = {check["name"]: check["value"] for check in stored(tmp_path)["checks"]}
    assert values["Small resident: decode tok/s, transformers without cuDNN over as installed"] == 1.0
    assert values["Small resident: decode tok/s, ours over transformers without cuDNN"] > 0
    assert values["accelerate: decode tok/s, without cuDNN over as installed"] == 1.5


def test_a_failing_peer_is_a_row_and_the_next_has_its_turn(tmp_path, monkeypatch):
    monkeypatch.setitem(peers.WORDS, "transformers", [sys.executable, stand_in_peer.__file__, "fails"])

    def fails(options, **more):
        raise RuntimeError("accelerate failed: no memory")

    monkeypatch.setattr(offload_compare, "accelerate", fails)
    assert peer_settings.main([*COMMAND, "--out", str(tmp_path)]) == 1
    failed = [row["key"] for row in stored(tmp_path)["rows"] if "failed" in row]
    assert failed == [
        *("Small/transformers/resident-as-installed", "Small/transformers/resident-without-cuDNN"),
        *("Small/accelerate/as-installed", "Small/accelerate/without-cuDNN"),
    ]
    monkeypatch.undo()
    values = {check["name"]: check["value"] for check in stored(tmp_path)["checks"]}
    assert values["accelerate: decode tok/s, without cuDNN over as installed"] is None


@pytest.mark.parametrize("cudnn", [None, True, False])
@pytest.mark.usefixtures("cudnn_as_before")
def test_runners_do_as_they_are_told(cudnn):
    more = {} if cudnn is None else {"cudnn_attention": cudnn}
    torch.backends.cuda.enable_cudnn_sdp(cudnn is False)  # whatever was set before
    asked = {"model": "random:Small", "dtype": "float32", "device": "cpu", "requests": []}
    (loaded,) = hf_generate.main(asked | more)
    assert loaded["flags"]["cudnn_attention"] is (cudnn is not False)
    pytest.importorskip("accelerate")
    torch.backends.cuda.enable_cudnn_sdp(cudnn is False)
    asked = {"model": "random:Small", "resident": [1], "prompt": [5, 6], "new_tokens": 2, "cap_gib": None}
    assert accelerate_offload.main({**asked, "device": "cpu", **more})["cudnn_attention"] is (
        cudnn is not False
    )
