"""Offloading on CUDA: resident logits bit for bit, memory as predicted, exact locks, nothing left behind."""

import signal
import subprocess
import sys
import threading
from itertools import product
from subprocess import PIPE

import pytest
import torch

from minillm import LLM, SamplingParams
from minillm.arena import HostArena
from minillm.errors import InputError, RunError
from minillm.offload import OffloadedLayers
from minillm.schedule import Copy

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
        assert 0.93 < (out.metrics.peak_memory_bytes - before) / llm.decision.device_bytes <= 1.0


@pytest.mark.parametrize("cap_mib", range(656, 1393, 46))
def test_as_many_layers_as_fit_do_work(cap_mib):
    """However little they leave, for the first graph and prompts of any length; at last all, on an H200."""
    torch._C._cuda_clearCublasWorkspaces()  # as in a process that begins
    torch.cuda.empty_cache()
    total, tokens = torch.cuda.get_device_properties(0).total_memory, 1024
    allowed = torch.cuda.memory_allocated() + (cap_mib << 20)
    torch.cuda.set_per_process_memory_fraction(allowed / total)
    try:
        with LLM("random:Qwen3-0.6B", device="cuda", max_model_len=tokens) as llm:
            for length in (tokens - PARAMS.max_tokens, 60, 60, 60):  # the third time by a graph, if resident
                assert llm.generate([5] * length, PARAMS)[0].metrics.num_generated == PARAMS.max_tokens
            assert llm.decision.device_bytes < cap_mib << 20
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


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


def test_a_lock_that_cuda_itself_refuses_is_not_an_error_of_what_comes_next():
    """PyTorch asks for CUDA's last error after each launch, and would find the refusal if it stayed there."""
    arena, numbers = HostArena(1 << 20), torch.arange(8, device="cuda")
    arena.pin()
    with pytest.raises(RunError, match=r"cannot lock 1\.0 MiB of host memory.*CUDA error 712"):
        arena.pin()  # 712: it is registered already
    assert (numbers + 1).sum().item() == 36
    torch.cuda.synchronize()
    assert arena.memory.is_pinned()
    arena.close()
    arena.pin()  # the lock of the first time was released
    arena.close()


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


def test_a_loaded_model_takes_any_placement():
    before = torch.cuda.memory_allocated()
    with LLM("tiny", device="cuda", max_model_len=512) as llm:
        expected = llm.logits(PROMPT)
    with LLM("tiny", device="cuda", gpu_layer_budget=2, max_model_len=512) as llm:
        size = llm.model.model.layers.layouts[0].num_bytes
        base = torch.cuda.memory_allocated() - 2 * size
        places = [{"gpu_layer_budget": budget} for budget in (5, 8, 1)]
        places += [{"gpu_layer_budget": 4, "slots": 2}, {"gpu_layer_budget": 3, "offload": "naive"}]
        for options in places:
            llm.place(**options)
            assert torch.equal(llm.logits(PROMPT), expected), options
            assert torch.cuda.memory_allocated() - base == pytest.approx(
                options["gpu_layer_budget"] * size, rel=0.01
            )
    assert torch.cuda.memory_allocated() == before


def test_a_recording_compiles_nothing():
    """It is of passes one by one, which a request by graphs has not needed: a compile would be in the way."""
    with LLM("random:Qwen3-0.6B", device="cuda", gpu_layer_budget=4, max_model_len=512) as llm:
        llm.generate(PROMPT, PARAMS)
        before = compiled()
        with llm.recording():
            llm.generate(PROMPT, PARAMS)
        assert before
        assert compiled() == before


def compiled() -> dict[str, int]:
    """Variants of each kernel that were made in this process."""
    from minillm.kernels import attend, expand, fetch, gemv, gemv_packed, place, swiglu

    modules = (attend, expand, fetch, gemv, gemv_packed, place, swiglu)
    kernels = {name: each for module in modules for name, each in vars(module).items()}
    caches = {name: getattr(each, "device_caches", {}) for name, each in kernels.items()}
    return {name: sum(len(found[0]) for found in each.values()) for name, each in caches.items() if each}


def test_a_recording_shows_copies_beside_computing_in_the_order_of_the_schedule():
    options = {"gpu_layer_budget": 4, "slots": 1, "max_model_len": 512}
    with LLM("random:Qwen3-1.7B", device="cuda", **options) as llm:
        llm.generate(PROMPT, PARAMS)
        with llm.recording() as recorder:
            llm.generate(PROMPT, PARAMS)
        schedule, timeline = llm.model.model.layers.schedule, recorder.timeline
    assert timeline.passes == PARAMS.max_tokens
    at = {(event.step, event.number): event for event in timeline.events}
    assert all(event.begin <= event.end for event in timeline.events)
    for step, needs in schedule.needs.items():
        for number, need in product(range(timeline.passes), needs):
            earlier = at.get((need.step, number - need.passes_ago))
            assert earlier is None or earlier.end <= at[step, number].begin + 1e-5
    copies = [e for e in timeline.events if isinstance(e.step, Copy)]
    computes = [e for e in timeline.events if not isinstance(e.step, Copy)]
    together = sum(max(0.0, min(a.end, b.end) - max(a.begin, b.begin)) for a, b in product(copies, computes))
    assert together > 0.5 * min(sum(e.end - e.begin for e in copies), sum(e.end - e.begin for e in computes))


def test_predicted_speed_is_what_comes():
    with LLM("random:Qwen3-1.7B", device="cuda", gpu_layer_budget=3, max_model_len=512) as llm:
        for offload in ("prefetch", "naive"):
            llm.place(gpu_layer_budget=3, offload=offload)
            predicted = llm.decision.tokens_per_s
            llm.generate(PROMPT, PARAMS)
            found = llm.generate(PROMPT, SamplingParams(max_tokens=32, ignore_eos=True))[0].metrics
            assert 0.9 * predicted < found.decode_tokens_per_s < 1.1 * predicted


@pytest.mark.parametrize("offload", ["naive", "prefetch"])
def test_ctrl_c_during_a_copy_keeps_what_there_is_and_the_next_run_works(offload):
    options = {"offload": offload, "gpu_layer_budget": 3, "max_model_len": 2048}
    with LLM("random:Qwen3-0.6B", device="cuda", **options) as llm:
        expected = llm.generate(PROMPT, PARAMS)[0].token_ids
        for after in (0.2, 0.31, 0.43):
            timer = threading.Timer(after, signal.raise_signal, [signal.SIGINT])
            timer.start()
            with pytest.raises(KeyboardInterrupt) as stop:
                llm.generate(PROMPT, SamplingParams(max_tokens=1500, ignore_eos=True))
            assert 0 < len(stop.value.outputs[0].token_ids) < 1500
            assert llm.generate(PROMPT, PARAMS)[0].token_ids == expected


HOG = """
import sys, torch
free, _ = torch.cuda.mem_get_info()
held = torch.empty(free - (1 << 24), dtype=torch.uint8, device="cuda")
print("taken", flush=True)
sys.stdin.read()
"""


def test_memory_taken_by_another_process_is_one_line_and_the_next_run_works():
    with LLM("random:Qwen3-0.6B", device="cuda", gpu_layer_budget=3, max_model_len=4096) as llm:
        expected = llm.generate(PROMPT, PARAMS)[0].token_ids
        torch.cuda.empty_cache()
        other = subprocess.Popen([sys.executable, "-c", HOG], stdin=PIPE, stdout=PIPE, text=True)
        try:
            assert other.stdout.readline() == "taken\n"
            with pytest.raises(RunError, match="memory") as caught:
                llm.generate(PROMPT * 13, PARAMS)  # its cache is there already, its activations are not
            assert "\n" not in str(caught.value)
        finally:
            other.communicate()
        del caught
        assert llm.generate(PROMPT, PARAMS)[0].token_ids == expected


def test_more_memory_than_the_card_has_is_one_line():
    with pytest.raises(InputError, match=r"gpu_memory_gib is 9999, but the device has") as caught:
        LLM("tiny", device="cuda", gpu_memory_gib=9999)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("offload", ["naive", "prefetch"])
def test_layers_are_not_brought_into_memory_that_is_still_in_use(offload, monkeypatch):
    """Operations that were asked for before may still write to memory that the allocator hands out again."""
    with LLM("tiny", device="cuda", max_model_len=512) as llm:
        expected = llm.logits(PROMPT)
    occupy = OffloadedLayers.occupy

    def after_slow_work(store) -> None:
        size = store.layouts[0].num_bytes
        junk = [store.accelerator.empty(size) for _ in store.layouts]
        torch.cuda._sleep(200_000_000)  # cycles: a tenth of a second
        for each in junk:
            each.fill_(0xFF)
        del junk, each
        occupy(store)

    monkeypatch.setattr(OffloadedLayers, "occupy", after_slow_work)
    for budget in (1, 6):
        with LLM("tiny", device="cuda", offload=offload, gpu_layer_budget=budget, max_model_len=512) as llm:
            assert torch.equal(llm.logits(PROMPT), expected)
