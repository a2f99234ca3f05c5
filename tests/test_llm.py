"""The engine as programs use it: batches, ends, limits, streams, closing."""

import gc
import weakref

import pytest
import torch

from minillm import LLM, SamplingParams, engine
from minillm.errors import InputError, RunError

PROMPTS = [[1, 2, 3], [5], list(range(60)), [7] * 17, [1, 2, 3]]


@pytest.fixture
def pair(make_checkpoint):
    folder, reference = make_checkpoint()
    with LLM(folder, device="cpu") as llm:
        yield llm, reference


def greedy(reference, prompt, count):
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        out = reference.generate(
            ids, max_new_tokens=count, do_sample=False, attention_mask=torch.ones_like(ids)
        )
    return out[0, len(prompt) :].tolist()


def test_unequal_prompts_together_are_what_each_is_alone(pair):
    llm, reference = pair
    params = SamplingParams(max_tokens=30)
    together = [out.token_ids for out in llm.generate(PROMPTS, params)]
    assert together == [llm.generate(prompt, params)[0].token_ids for prompt in PROMPTS]
    assert together == [greedy(reference, prompt, 30) for prompt in PROMPTS]


def test_requests_that_end_early_leave_the_others_alone(pair):
    llm, reference = pair
    params = [SamplingParams(max_tokens=n) for n in (1, 20, 3, 9, 2)]
    outs = llm.generate(PROMPTS, params)
    for out, prompt, request in zip(outs, PROMPTS, params, strict=True):
        assert out.prompt_token_ids == prompt
        assert out.token_ids == greedy(reference, prompt, request.max_tokens)


def test_more_requests_than_a_group(pair, monkeypatch):
    llm, reference = pair
    monkeypatch.setattr(engine, "MAX_GROUP", 2)
    outs = llm.generate(PROMPTS, SamplingParams(max_tokens=5))
    assert [out.token_ids for out in outs] == [greedy(reference, prompt, 5) for prompt in PROMPTS]


def test_one_token_is_fed_a_step(pair):
    llm, _ = pair
    llm.generate(PROMPTS, SamplingParams(max_tokens=10))
    assert llm.tokens_fed == sum(map(len, PROMPTS)) + len(PROMPTS) * 9


@pytest.mark.parametrize("kind", ["eos", "stop id"])
def test_an_end_token_ends_and_is_kept(make_checkpoint, kind):
    folder, reference = make_checkpoint()
    tokens = greedy(reference, [1, 2, 3], 30)
    at = next(i for i in range(3, 30) if tokens[i] not in tokens[:i])
    end = tokens[at]
    (folder / "generation_config.json").write_text(
        f'{{"eos_token_id": [99, {end}]}}' if kind == "eos" else "{}"
    )
    with LLM(folder, device="cpu") as llm:
        params = {} if kind == "eos" else {"stop_token_ids": (end,)}
        out = llm.generate([1, 2, 3], SamplingParams(max_tokens=30, **params))[0]
        assert (out.token_ids, out.finish_reason) == (tokens[: at + 1], "stop")
        going_on = llm.generate([1, 2, 3], SamplingParams(max_tokens=30, ignore_eos=True))[0]
        assert (going_on.token_ids, going_on.finish_reason) == (tokens, "length")


def test_without_end_tokens_only_the_limit_ends(pair):
    llm, _ = pair
    out = llm.generate([1], SamplingParams(max_tokens=25))[0]
    assert (len(out.token_ids), out.finish_reason) == (25, "length")


@pytest.mark.parametrize(("prompt_len", "expected"), [(1, 8), (5, 4), (8, 1)])
def test_the_context_is_a_limit_too(make_checkpoint, prompt_len, expected):
    """The last token is never fed back, so a full context still gives one."""
    with LLM(make_checkpoint()[0], device="cpu", max_model_len=8) as llm:
        out = llm.generate([3] * prompt_len, SamplingParams(max_tokens=100))[0]
        assert (len(out.token_ids), out.finish_reason) == (expected, "length")
        with pytest.raises(InputError, match="9 tokens, more than the context of 8"):
            llm.generate([3] * 9)


def test_metrics_are_what_they_say(pair):
    llm, _ = pair
    many, one = llm.generate([[1, 2], [3]], [SamplingParams(max_tokens=9), SamplingParams(max_tokens=1)])
    assert (many.metrics.num_generated, one.metrics.num_generated) == (9, 1)
    assert 0 < many.metrics.ttft_s == many.metrics.prefill_latency_s < many.metrics.total_s
    expected = 8 / (many.metrics.total_s - many.metrics.ttft_s)
    assert many.metrics.decode_tokens_per_s == pytest.approx(expected)
    assert one.metrics.decode_tokens_per_s is None
    assert many.metrics.peak_memory_bytes is None
    assert many.metrics.as_dict()["decode_tokens_per_s"] == many.metrics.decode_tokens_per_s


def test_a_stream_gives_the_same_tokens_one_at_a_time(pair):
    llm, _ = pair
    params = SamplingParams(max_tokens=6)
    chunks = list(llm.stream([1, 2, 3], params))
    whole = llm.generate([1, 2, 3], params)[0]
    assert [chunk.token_ids for chunk in chunks] == [[token] for token in whole.token_ids]
    assert [chunk.output is None for chunk in chunks] == [True] * 5 + [False]
    assert chunks[-1].output.token_ids == whole.token_ids


def test_a_stream_that_is_dropped_leaves_the_engine_usable(pair):
    llm, _ = pair
    stream = llm.stream([1, 2, 3], SamplingParams(max_tokens=50))
    next(stream)
    stream.close()
    assert len(llm.generate([1, 2, 3], SamplingParams(max_tokens=4))[0].token_ids) == 4


def test_ctrl_c_carries_what_was_there(pair, monkeypatch):
    llm, _ = pair
    steps = []

    def interrupted(self, active, cache):
        steps.append(1)
        if len(steps) == 4:
            raise KeyboardInterrupt
        return real(self, active, cache)

    real = engine.Engine._decode
    monkeypatch.setattr(engine.Engine, "_decode", interrupted)
    params = [SamplingParams(max_tokens=2), SamplingParams(max_tokens=20)]
    with pytest.raises(KeyboardInterrupt) as caught:
        llm.generate([[1], [2]], params)
    done, cut = caught.value.outputs
    assert (len(done.token_ids), done.finish_reason) == (2, "length")
    assert (len(cut.token_ids), cut.finish_reason) == (4, "abort")


def test_logits_are_the_references(pair):
    llm, reference = pair
    for length in (1, 2, 33):
        ids = list(range(length))
        with torch.inference_mode():
            expected = reference(torch.tensor([ids])).logits[0]
        ours = llm.logits(ids)
        assert (ours.dtype, ours.shape) == (torch.float32, (length, 101))
        torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)


def test_nan_logits_warn_once(make_checkpoint):
    with LLM(make_checkpoint()[0], device="cpu") as llm:
        with torch.inference_mode():
            llm.model.model.norm.weight[0] = float("nan")
        with pytest.warns(RuntimeWarning, match="logits are NaN") as caught:
            llm.generate([1, 2], SamplingParams(max_tokens=5))
        assert len(caught) == 1


def test_a_healthy_model_does_not_warn(pair, recwarn):
    pair[0].generate([1, 2], SamplingParams(max_tokens=5))
    assert not [w for w in recwarn if issubclass(w.category, RuntimeWarning)]


BAD_PROMPTS = {
    "no prompt": ([], "no prompt"),
    "an empty one": ([[1], []], "prompt 1 is empty"),
    "text without tokenizer": ("hello", "has no tokenizer"),
    "an id too large": ([101], "token id 101: this model's ids go from 0 to 100"),
    "a negative id": ([[1], [-1]], "prompt 1 has token id -1"),
    "not ids": ([[1, 2.5]], "neither text nor a list of token ids"),
    "not a list": (5, "prompts are a int"),
}


@pytest.mark.parametrize("case", BAD_PROMPTS)
def test_bad_prompts_are_named_and_nothing_runs(pair, case):
    llm, _ = pair
    prompts, message = BAD_PROMPTS[case]
    with pytest.raises(InputError, match=message):
        llm.generate(prompts)
    assert llm.tokens_fed == 0
    assert len(llm.generate([100], SamplingParams(max_tokens=2))[0].token_ids) == 2


def test_a_closed_engine_says_so(make_checkpoint):
    llm = LLM(make_checkpoint()[0], device="cpu")
    llm.close()
    llm.close()
    with pytest.raises(RunError, match="is closed"):
        llm.generate([1])


def test_two_engines_do_not_share_anything(make_checkpoint):
    (one, _), (two, _) = make_checkpoint("one", seed=1), make_checkpoint("two", seed=2)
    params = SamplingParams(max_tokens=8)
    with LLM(one, device="cpu") as first, LLM(two, device="cpu") as second:
        a = first.generate([1, 2, 3], params)[0].token_ids
        b = second.generate([1, 2, 3], params)[0].token_ids
        assert a != b
        assert first.generate([1, 2, 3], params)[0].token_ids == a
        assert (first.tokens_fed, second.tokens_fed) == (20, 10)


def test_groups_shrink_to_what_memory_holds_and_one_that_does_not_fit_is_refused(pair, monkeypatch):
    llm, reference = pair
    sizes = []
    real = engine.Engine._run_group
    monkeypatch.setattr(engine.Engine, "_run_group", lambda self, g: sizes.append(len(g)) or real(self, g))
    one = (
        2 * 3 * 2 * 16 * 4 * 64
    )  # keys and values × layers × KV heads × head_dim × bytes × (60 + 5 − 1) tokens
    params = SamplingParams(max_tokens=5)
    for free, expected in ((100 * one, [5]), (3 * one, [2, 2, 1]), (one, [1, 1, 1, 2])):
        sizes.clear()
        monkeypatch.setattr(llm._engine.accelerator, "free_bytes", lambda free=free: free)
        outs = llm.generate(PROMPTS, params)
        assert [out.token_ids for out in outs] == [greedy(reference, prompt, 5) for prompt in PROMPTS]
        assert sizes == expected
    monkeypatch.setattr(llm._engine.accelerator, "free_bytes", lambda: one - 1)
    with pytest.raises(RunError, match=r"KV cache of 64 tokens on cpu needs .* lower max_tokens"):
        llm.generate(PROMPTS, params)


def test_closing_frees_the_weights_at_once(make_checkpoint):
    llm = LLM(make_checkpoint()[0], device="cpu")
    llm.generate([1, 2], SamplingParams(max_tokens=3))
    gone = [weakref.ref(parameter) for parameter in llm.model.parameters()]
    gc.collect()
    gc.disable()
    try:
        llm.close()
        assert all(ref() is None for ref in gone)
    finally:
        gc.enable()


def test_a_stream_of_a_closed_engine_says_so(make_checkpoint):
    llm = LLM(make_checkpoint()[0], device="cpu")
    fresh, begun = (llm.stream([1, 2], SamplingParams(max_tokens=50)) for _ in range(2))
    next(begun)
    llm.close()
    for stream in (fresh, begun):
        with pytest.raises(RunError, match="is closed"):
            next(stream)
    with pytest.raises(RunError, match="is closed"):
        llm.tokens_fed  # noqa: B018


def test_logits_belong_to_the_caller(pair):
    llm, _ = pair
    once, again = llm.logits([1, 2, 3]), llm.logits([1, 2, 3])
    once.mul_(0)
    assert not once.any()
    assert torch.equal(llm.logits([1, 2, 3]), again)
