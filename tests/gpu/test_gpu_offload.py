"""Offloading on CUDA: resident logits bit for bit, memory as predicted, exact locks, nothing left behind."""

from itertools import product

import pytest
import torch

from minillm import LLM, SamplingParams
from minillm.arena import HostArena
from minillm.errors import RunError

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA GPU; torch finds none here"
)
PROMPT = list(range(100, 400))
PARAMS = SamplingParams(max_tokens=16, ignore_eos=True)
MODELS = ["tiny", "random:Qwen3-0.6B"]


@pytest.fixture(scope="module", params=MODELS)
def resident(request):
    """The model's name, and what it answers with all layers on the device."""
    with LLM(request.param, device="cuda", max_model_len=512) as llm:
        return request.param, llm.generate(PROMPT, PARAMS)[0].token_ids, llm.logits(PROMPT)


@pytest.mark.parametrize(
    ("offload", "budget", "slots"),
    [("naive", 1, None), ("naive", 5, None), *(("prefetch", n, s) for n, s in product((2, 5, 7), (1, 2))),
     ("prefetch", 1, 1)],
)  # fmt: skip
def test_bfloat16_logits_are_the_resident_ones(resident, offload, budget, slots):
    name, token_ids, logits = resident
    options = {"offload": offload, "gpu_layer_budget": budget, "slots": slots, "max_model_len": 512}
    with LLM(name, device="cuda", **options) as llm:
        for _ in range(2):
            assert llm.generate(PROMPT, PARAMS)[0].token_ids == token_ids
            assert torch.equal(llm.logits(PROMPT), logits)


@pytest.mark.parametrize("budget", [1, 9])
def test_peak_memory_is_at_most_the_prediction(budget):
    before = torch.cuda.memory_allocated()
    with LLM("random:Qwen3-0.6B", device="cuda", gpu_layer_budget=budget, max_model_len=1024) as llm:
        out = llm.generate([5] * 900, SamplingParams(max_tokens=124, ignore_eos=True))[0]
        assert 0.95 < (out.metrics.peak_memory_bytes - before) / llm.decision.device_bytes <= 1.0


def test_host_memory_is_locked_at_its_exact_size_and_unlocked_again():
    for _ in range(2):  # a block that stays registered makes the next registration fail
        with LLM("tiny", device="cuda", gpu_layer_budget=2) as llm:
            blocks = sum(layer.buffer.numel() for layer in llm.model.model.layers)
            assert blocks <= llm.residency.arena.pinned_bytes <= 1.02 * blocks
            assert all(host.is_pinned() for host in llm.model.model.layers.host)
        torch.ones(1 << 20).pin_memory()


def test_a_refused_lock_is_one_line_and_leaves_nothing(monkeypatch):
    before = torch.cuda.memory_allocated()
    monkeypatch.setattr("minillm.arena._register", lambda address, size: 2)
    with pytest.raises(RunError, match=r"cannot lock .* MiB of host memory.*CUDA error 2") as caught:
        LLM("tiny", device="cuda", gpu_layer_budget=2)
    assert "\n" not in str(caught.value)
    del caught  # its traceback holds the frames, and they hold tensors
    monkeypatch.undo()
    assert torch.cuda.memory_allocated() == before
    LLM("tiny", device="cuda", gpu_layer_budget=2).close()


def test_closing_frees_the_device():
    before = torch.cuda.memory_allocated()
    LLM("tiny", device="cuda", gpu_layer_budget=4).close()
    assert torch.cuda.memory_allocated() == before


def test_copies_run_beside_computing():
    """The copy of a large block and a long computation take less together than one after the other."""
    from minillm.accelerators.cuda import Cuda

    arena = HostArena(1 << 30)
    arena.memory.fill_(1)
    arena.pin()
    device = Cuda(torch.device("cuda", 0))
    target, matrix = device.empty(1 << 30), torch.ones(8192, 8192, device="cuda", dtype=torch.bfloat16)

    def seconds(copy: bool, compute: bool) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        if copy:
            device.copy_after(device.computed())
            device.copy(target, arena.memory)
        if compute:
            for _ in range(12):
                matrix @ matrix
        if copy:
            device.compute_after(device.copied())
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end)

    seconds(True, True)
    alone = seconds(True, False), seconds(False, True)
    assert seconds(True, True) < 0.8 * sum(alone)
    device.close()
    arena.close()
