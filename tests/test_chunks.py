"""A prompt that goes through each block in chunks: the reference's logits, the layers used once a pass."""

import pytest
import torch

from minillm import LLM, SamplingParams
from minillm import model as models
from minillm.cache import KVCache

PROMPT = [(7 * i) % 100 for i in range(21)]
SIZES = [1, 2, 5, 7, 20, 21, 22]


@pytest.fixture(params=[{}, {"num_experts": 6}], ids=["dense", "experts"])
def pair(make_checkpoint, request):
    folder, reference = make_checkpoint(**request.param)
    with LLM(folder, device="cpu") as llm:
        yield llm, reference


@pytest.mark.parametrize("size", SIZES)
def test_logits_are_the_references(pair, size, monkeypatch):
    llm, reference = pair
    monkeypatch.setattr(models, "CHUNK", size)
    expected = reference(torch.tensor([PROMPT])).logits[0]
    torch.testing.assert_close(llm.logits(PROMPT), expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("size", SIZES)
def test_answers_of_unequal_prompts_do_not_depend_on_the_size(pair, size, monkeypatch):
    llm, _ = pair
    prompts, params = [PROMPT, [5], PROMPT[:7]], SamplingParams(max_tokens=8)
    expected = [out.token_ids for out in llm.generate(prompts, params)]
    monkeypatch.setattr(models, "CHUNK", size)
    assert [out.token_ids for out in llm.generate(prompts, params)] == expected


@torch.inference_mode()
def test_several_tokens_after_prompts_of_unequal_length(pair, monkeypatch):
    """A pass over 6 more tokens of each of three sequences, whole and in chunks of 4."""
    llm, reference = pair
    longer = [[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8], [9, 7, 9, 3, 2, 3]]
    starts = [len(PROMPT), 1, 7]
    for size in (100, 4):
        monkeypatch.setattr(models, "CHUNK", size)
        cache = KVCache.allocate(llm.config, 3, 40, torch.float32, "cpu")
        for row, length in enumerate(starts):
            llm.model(torch.tensor([PROMPT[:length]]), cache.rows(row, row + 1), [0])
        logits = llm.model.head(llm.model(torch.tensor(longer), cache, starts))
        assert cache.lengths.tolist() == [length + 6 for length in starts]
        for row, length in enumerate(starts):
            expected = reference(torch.tensor([PROMPT[:length] + longer[row]])).logits[0, -6:]
            torch.testing.assert_close(logits[row], expected, atol=2e-5, rtol=0)


def test_layers_are_used_once_a_pass_and_offloaded_logits_are_the_resident_ones(make_checkpoint, monkeypatch):
    folder, _ = make_checkpoint(num_hidden_layers=4)
    monkeypatch.setattr(models, "CHUNK", 6)
    with LLM(folder, device="cpu") as llm:
        expected = llm.logits(PROMPT)
    with LLM(folder, device="cpu", gpu_layer_budget=2) as llm:
        store = llm.model.model.layers
        assert torch.equal(llm.logits(PROMPT), expected)
        a_pass = sum(store.layouts[index].num_bytes for index in store.placement.streamed)
        ahead = store.layouts[store.placement.streamed[0]].num_bytes
        assert store.bytes_copied == a_pass + ahead
