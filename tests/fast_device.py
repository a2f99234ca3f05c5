"""Emulated devices that take the fast path, and small models on them.

A graph is replayed by asking for everything again. `few_programs` and `make_fast` are fixtures; the first
applies to a whole module that imports it.
"""

import warnings
from collections import deque
from functools import partial

import pytest
import torch

import minillm.llm
from minillm import LLM, SamplingParams
from minillm.accelerators.emulated import Emulated
from minillm.residency import Residency

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 53,
}
PROMPTS = [[3, 1, 4], [7], [8] * 5]
PLACES = [(3, None, "auto"), (1, 1, "prefetch"), (2, 1, "prefetch"), (2, 2, "prefetch")]

silence = partial(warnings.catch_warnings, action="ignore")  # logits are NaN where the test wants them to be


class Fast(Emulated):
    """An emulated device that takes the fast path."""

    def eager_because(self, dtype: torch.dtype) -> None:
        return None

    def capture(self, work):
        return work

    def cut(self, work):
        work()


class Lazy(Fast):
    """Copies begin only when computing waits for one of them."""

    def __init__(self):
        super().__init__()
        self.asked = deque()

    def _queue(self, job):
        self.asked.append(job)

    def _wait(self, event):
        assert event.is_set(), "a copy waits for what has not been asked for"

    def compute_after(self, event):
        while not event.is_set():
            self.asked.popleft()()


class Late(Fast):
    """What is replayed happens when the host waits for it: as late as on the slowest GPU."""

    def __init__(self):
        super().__init__()
        self.late = deque()

    def capture(self, work):
        self._happen()

        def replay():
            self.late.append(partial(self._replay, work))
            if not work.__self__.feeds_itself:  # a prompt, whose result is looked at right away
                self._happen()

        return replay

    @torch.inference_mode()
    def _replay(self, work):
        step = work.__self__
        places = step.logits, step.chosen  # a graph's results are always in the same place
        work()
        for place, found in zip(places, (step.logits, step.chosen), strict=True):
            place.copy_(found)
        step.logits, step.chosen = places

    def read(self, tensor):
        found = []
        self.late.append(lambda: found.append(tensor.clone()))

        def wait():
            while not found:
                self.late.popleft()()
            return found[0]

        return wait

    def _happen(self):
        while self.late:
            self.late.popleft()()

    def synchronize(self):
        self._happen()
        super().synchronize()


@pytest.fixture(autouse=True)
def few_programs(monkeypatch):
    """The interpreter runs one after the other; and measuring what blocks cost in it would take a minute."""
    from minillm import fused, prompt_graph  # imports Triton
    from minillm.kernels import gemv, gemv_packed

    monkeypatch.setattr(gemv, "tile", lambda *_: gemv.Tile(64, 64, 4))
    monkeypatch.setattr(gemv_packed, "tile", lambda *_: gemv.Tile(64, 4, 1))
    monkeypatch.setattr(prompt_graph, "filled_up", lambda tokens: -(-tokens // 4) * 4)
    monkeypatch.setattr(fused, "attend", partial(fused.attend, parts=2))
    monkeypatch.setattr(Residency, "_rates", lambda self: None)


@pytest.fixture(name="make_fast")
def fast_maker(monkeypatch):
    """`make_fast(folder, device, **keywords)`: an LLM on such a device; without a budget all is resident."""

    def make(folder, device: type = Fast, **keywords) -> LLM:
        with monkeypatch.context() as patch:
            patch.setattr(minillm.llm, "pick_accelerator", lambda *_, **__: device())
            return LLM(folder, device="cpu", **keywords)

    return make


def params(count: int) -> SamplingParams:
    return SamplingParams(max_tokens=count, ignore_eos=True)


def tokens(outputs: list) -> list[list[int]]:
    return [output.token_ids for output in outputs]
