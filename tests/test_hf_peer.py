"""The runner of Hugging Face's `generate`: the same weights as ours, the reference's tokens."""

import pytest
import torch
from test_offloaded import SHAPE

from experiments import random_reference, reference
from experiments.requests import Request
from minillm import LLM, ModelConfig, SamplingParams, presets
from tests.peers import hf_generate

PROMPT = [5, 6, 7]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "Small", ModelConfig(**SHAPE))


def rows(model, *requests):
    asked = {
        "model": model,
        "dtype": "float32",
        "device": "cpu",
        "requests": [vars(each) for each in requests],
    }
    return list(hf_generate.main(asked))


def test_rows_of_a_model_with_random_weights():
    loaded, whole, prefill = rows(
        "random:Small", Request("M/0", PROMPT, 6), Request("M/1", PROMPT, 1, repeats=2)
    )
    assert (loaded["key"], loaded["flags"]["attention"]) == ("loaded", "sdpa")
    assert (whole["prompt_tokens"], whole["new_tokens"]) == (3, 6)
    assert whole["tokens_per_s"] > 0
    assert prefill["tokens_per_s"] is None
    assert prefill["ttft_best_s"] <= prefill["ttft_s"]


def test_tokens_are_those_of_the_reference_and_ours():
    model = hf_generate.loaded("random:Small", torch.float32, "cpu")
    found = hf_generate.answer(model, Request("k", PROMPT, 6), "cpu")
    plain = random_reference.make("random:Small", torch.float32)
    assert found.token_ids == reference.greedy(plain, PROMPT, 6).token_ids
    with LLM("random:Small", device="cpu", dtype="float32") as llm:
        ours = llm.generate(PROMPT, SamplingParams(max_tokens=6, ignore_eos=True))[0]
    assert found.token_ids == ours.token_ids
    assert 0 < found.ttft_s < found.total_s


def test_shipped_models_have_their_own_weights():
    model = hf_generate.loaded("tiny", torch.float32, "cpu")
    assert model.config.num_hidden_layers == 8
    assert not torch.equal(
        model.lm_head.weight, random_reference.make("random:Small", torch.float32).lm_head.weight
    )
