"""One LLM from several threads: one line instead of wrong tokens, and nothing else is refused."""

import threading
import time

import pytest
import torch

from minillm import LLM, SamplingParams
from minillm.errors import RunError

PARAMS = SamplingParams(max_tokens=6, ignore_eos=True)
PROMPT = [1, 2, 3]
USES = {
    "generate": lambda llm: llm.generate(PROMPT, PARAMS),
    "stream": lambda llm: list(llm.stream(PROMPT, PARAMS)),
    "logits": lambda llm: llm.logits(PROMPT),
    "place": lambda llm: llm.place(gpu_layer_budget=1),
    "recording": lambda llm: llm.recording().__enter__(),
}
PLACES = [{}, {"gpu_layer_budget": 2, "slots": 1}]


@pytest.fixture(params=PLACES, ids=str)
def llm(make_checkpoint, request):
    with LLM(make_checkpoint()[0], device="cpu", **request.param) as made:
        yield made


class Inside:
    """Another thread that stays inside a use of `llm` while the context is open."""

    def __init__(self, llm, use: str):
        self.llm, self.use, self.outcome = llm, use, []
        self.inside, self.go = threading.Event(), threading.Event()

    def __enter__(self):
        self.hook = self.llm.model.register_forward_pre_hook(self._hold)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        assert self.inside.wait(30)
        self.hook.remove()
        return self

    def _hold(self, *_):
        self.inside.set()
        assert self.go.wait(30)

    def _run(self):
        self.outcome.append(USES[self.use](self.llm))

    def __exit__(self, *_):
        self.go.set()
        self.thread.join(30)


@pytest.mark.parametrize("first", ["generate", "stream", "logits"])
@pytest.mark.parametrize("second", USES)
def test_a_second_thread_gets_one_line_and_the_first_its_answer(llm, first, second):
    if second == "place" and llm.decision.mode == "none":
        pytest.skip("nothing can move here")
    expected = USES[first](llm)
    with Inside(llm, first) as other, pytest.raises(RunError, match="already running in another") as caught:
        USES[second](llm)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"this LLM ({llm.name}) is ")
    (found,) = other.outcome
    assert tokens(found) == tokens(expected)
    USES[second](llm)


def tokens(answer):
    if isinstance(answer, torch.Tensor):
        return answer.tolist()
    return [each.token_ids for each in answer]


def test_a_stream_begun_before_another_threads_step_is_refused_and_tidied_up(llm):
    expected = tokens(USES["generate"](llm))
    used = getattr(llm._accelerator, "used", 0)
    stream = llm.stream(PROMPT, PARAMS)
    next(stream)
    with Inside(llm, "generate") as other:
        threading.Timer(0.2, other.go.set).start()  # tidying up waits for the other's step
        with pytest.raises(RunError, match="already running"):
            next(stream)
    assert tokens(other.outcome[0]) == expected
    assert getattr(llm._accelerator, "used", 0) == used


def test_streams_of_one_thread_take_turns(llm):
    prompts = [[1, 2, 3], [5], [7] * 9]
    expected = [llm.generate(prompt, PARAMS)[0].token_ids for prompt in prompts]
    streams = [llm.stream(prompt, PARAMS) for prompt in prompts]
    rounds = list(zip(*streams, strict=True))
    assert [
        [token for (token,) in each] for each in zip(*([c.token_ids for c in r] for r in rounds), strict=True)
    ] == expected


def test_threads_one_after_the_other_are_served(llm):
    expected = llm.generate(PROMPT, PARAMS)[0].token_ids
    found = []
    stream = llm.stream(PROMPT, PARAMS)
    next(stream)  # held here while others generate
    for _ in range(3):
        thread = threading.Thread(target=lambda: found.append(llm.generate(PROMPT, PARAMS)[0].token_ids))
        thread.start()
        thread.join(30)
    assert found == [expected] * 3
    assert list(stream)[-1].output.token_ids == expected


@pytest.mark.parametrize("offload", ["naive", "prefetch"])
def test_closing_ends_a_step_in_another_thread_with_one_line(make_checkpoint, offload):
    llm = LLM(make_checkpoint()[0], device="cpu", offload=offload, gpu_layer_budget=1, link_gb_s=5.0)
    llm._accelerator.link_gb_s = 1e-4  # a step takes seconds
    chunks, errors = [], []

    def run():
        try:
            chunks.extend(llm.stream(PROMPT, PARAMS))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.3)
    llm.close()
    thread.join(30)
    (error,) = errors
    assert isinstance(error, RunError)
    assert "closed" in str(error)
    assert chunks == []


@pytest.mark.parametrize("use", USES)
def test_closing_just_before_a_turn_is_one_line(llm, use):
    """Between the first look at whether it is open and the turn, another thread may close it."""
    if use == "place" and llm.decision.mode == "none":
        pytest.skip("nothing can move here")
    llm._turns.take = _closed_before(llm, llm._turns.take)
    with pytest.raises(RunError, match="is closed"):
        USES[use](llm)


def _closed_before(llm, take):
    def taken(*asked, **keywords):
        if llm.model is not None and not keywords.get("wait"):
            thread = threading.Thread(target=llm.close)
            thread.start()
            thread.join(30)
        return take(*asked, **keywords)

    return taken


def test_a_refused_call_leaves_the_peak_of_the_running_one_alone(llm, monkeypatch):
    resets = []
    monkeypatch.setattr(llm._accelerator, "reset_peak", lambda: resets.append("reset"))
    with Inside(llm, "generate"), pytest.raises(RunError, match="already running"):
        llm.generate(PROMPT, PARAMS)
    assert resets == ["reset"]
    llm.generate(PROMPT, PARAMS)
    assert resets == ["reset"] * 2
