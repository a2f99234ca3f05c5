"""Sampling: every filter against Hugging Face's, seeds, bounds."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minillm import LLM, SamplingParams
from minillm import sampler as sampler_module
from minillm.errors import InputError
from minillm.sampler import Sampler, candidates, penalise


def hugging_face(logits, params, seen):
    from transformers.generation import logits_process as hf

    chain = [hf.RepetitionPenaltyLogitsProcessor(params.repetition_penalty)]
    chain.append(hf.TemperatureLogitsWarper(float(params.temperature)))
    if params.top_k:
        chain.append(hf.TopKLogitsWarper(params.top_k))
    if params.top_p < 1:
        chain.append(hf.TopPLogitsWarper(params.top_p))
    if params.min_p:
        chain.append(hf.MinPLogitsWarper(params.min_p))
    scores = logits[None].clone()
    for step in chain:
        scores = step(torch.tensor([seen]), scores)
    return scores[0]


@settings(max_examples=60, deadline=None)
@given(
    temperature=st.floats(0.05, 3),
    top_k=st.integers(0, 60),
    top_p=st.floats(0.01, 1),
    min_p=st.floats(0, 0.9),
    penalty=st.floats(0.5, 2),
    seed=st.integers(0, 1000),
)
def test_filters_are_hugging_faces(temperature, top_k, top_p, min_p, penalty, seed):
    generator = torch.Generator().manual_seed(seed)
    logits, seen = torch.randn(50, generator=generator) * 3, [1, 4, 4, 9]
    params = SamplingParams(
        temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, repetition_penalty=penalty
    )
    theirs = hugging_face(logits, params, seen)
    for few in (8, 1024):  # below 50 the whole vocabulary may have to be sorted
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sampler_module, "FEW", few)
            kept, ids = candidates(penalise(logits, seen, penalty) / temperature, params)
        ids = torch.arange(50) if ids is None else ids
        assert sorted(ids.tolist()) == theirs.isfinite().nonzero().flatten().tolist()
        torch.testing.assert_close(kept, theirs[ids])


def test_draws_follow_the_probabilities():
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0])
    sampler = Sampler(SamplingParams(temperature=0.7), seed=1)
    counts = torch.bincount(torch.tensor([sampler.choose(logits, []) for _ in range(4000)]), minlength=4)
    expected = torch.softmax(logits / 0.7, -1) * 4000
    assert ((counts - expected).abs() < 4 * expected.sqrt() + 1).all()


def test_a_draw_never_takes_what_has_no_probability():
    sampler = Sampler(SamplingParams(temperature=1.0), seed=0)
    logits = torch.full((6,), float("-inf"))
    logits[2], logits[4] = 0.0, 1.0
    assert {sampler.choose(logits, []) for _ in range(300)} == {2, 4}


def test_greedy_with_a_penalty_avoids_what_was_said():
    logits = torch.tensor([1.0, 0.9, -1.0])
    assert Sampler(SamplingParams(), 0).choose(logits, [0]) == 0
    assert Sampler(SamplingParams(repetition_penalty=1.5), 0).choose(logits, [0]) == 1


@pytest.fixture
def llm(make_checkpoint):
    with LLM(make_checkpoint()[0], device="cpu", seed=11) as llm:
        yield llm


def test_a_seed_gives_the_same_tokens_alone_and_in_company(llm):
    params = SamplingParams(max_tokens=12, temperature=1.0, seed=5)
    alone = llm.generate([1, 2, 3], params)[0].token_ids
    company = llm.generate([[9] * 20, [1, 2, 3], [4]], params)[1].token_ids
    other = llm.generate([1, 2, 3], SamplingParams(max_tokens=12, temperature=1.0, seed=6))[0].token_ids
    assert alone == company
    assert alone != other


def test_without_a_seed_requests_differ_and_a_new_engine_repeats_them(llm, make_checkpoint):
    params = SamplingParams(max_tokens=12, temperature=1.0)
    first = [out.token_ids for out in llm.generate([[1, 2]] * 3, params)]
    assert len({tuple(ids) for ids in first}) == 3
    with LLM(make_checkpoint("again")[0], device="cpu", seed=11) as again:
        assert [out.token_ids for out in again.generate([[1, 2]] * 3, params)] == first


@pytest.mark.parametrize(
    "bad",
    [
        {"max_tokens": 0}, {"max_tokens": 1.5}, {"max_tokens": True}, {"temperature": -0.1},
        {"temperature": float("nan")}, {"temperature": float("inf")}, {"top_k": -1}, {"top_p": 0},
        {"top_p": 1.1}, {"min_p": -0.1}, {"min_p": 1.5}, {"repetition_penalty": 0}, {"seed": -1},
        {"stop": ("",)}, {"stop": (3,)}, {"stop_token_ids": (-1,)}, {"ignore_eos": 1},
    ],
)  # fmt: skip
def test_values_out_of_range_are_named(bad):
    (name,) = bad
    with pytest.raises(InputError, match=name):
        SamplingParams(**bad)


def test_an_unknown_keyword_is_an_error():
    with pytest.raises(TypeError, match="max_new_tokens"):
        SamplingParams(max_new_tokens=5)


def test_one_string_or_id_will_do():
    assert SamplingParams(stop="x").stop == ("x",)
    assert SamplingParams(stop_token_ids=5).stop_token_ids == (5,)
