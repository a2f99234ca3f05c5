"""The runner of accelerate: the reference's tokens, the layers it was told, a reason where it is missing."""

from importlib.metadata import PackageNotFoundError

import pytest
import torch
from test_offloaded import SHAPE

from experiments import random_reference, reference
from minillm import ModelConfig, presets
from tests.peers import accelerate_offload

ASKED = {"model": "random:Small", "resident": [1, 4], "prompt": [5, 6, 7], "new_tokens": 6}
ASKED |= {"cap_gib": None, "device": "cpu"}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "Small", ModelConfig(**SHAPE))


def test_offloaded_model_writes_the_tokens_of_the_plain_one():
    pytest.importorskip("accelerate")
    found = accelerate_offload.main(ASKED)
    plain = random_reference.make("random:Small", torch.bfloat16)
    assert found["token_ids"] == reference.greedy(plain, ASKED["prompt"], 6).token_ids
    assert (found["resident"], found["prompt_tokens"], found["new_tokens"]) == (2, 3, 6)
    elements = 64 + 2 * 64 * 64 + 2 * 32 * 64 + 64 + 3 * 96 * 64  # of a layer, beside norms of q and k
    assert found["streamed_bytes"] == pytest.approx(3 * 2 * elements, rel=0.03)
    assert found["tokens_per_s"] > 0
    assert found["accelerate"][0].isdigit()


def test_streamed_layers_alone_are_in_host_memory():
    model = random_reference.make("random:Small", torch.bfloat16)
    places = accelerate_offload.device_map(model, [0, 2, 3])
    assert {name for name, place in places.items() if place == "cpu"} == {
        f"model.layers.{i}" for i in (0, 2, 3)
    }
    pytest.importorskip("accelerate").utils.check_device_map(model, places)
    held = [name for name, _ in model.named_parameters()] + [name for name, _ in model.named_buffers()]
    assert all(any(key.startswith(name) for name in places) for key in held)


def test_missing_accelerate_is_a_reason(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(accelerate_offload, "version", missing)
    assert accelerate_offload.main(ASKED) == {"skipped": "accelerate is not installed"}
