"""`LLM` with offloading on the emulated device: resident logits, memory inside the cap, one-line errors."""

import gc
import signal
import threading
from itertools import product

import pytest
import torch

from minillm import LLM, SamplingParams
from minillm.accelerators.emulated import Emulated
from minillm.errors import InputError, RunError
from minillm.units import GIB

PROMPTS = [[1, 2, 3], [5], list(range(60)), [7] * 17]
PARAMS = SamplingParams(max_tokens=6)
LAYERS = 5


@pytest.fixture
def folder(make_checkpoint, request):
    return make_checkpoint(num_hidden_layers=LAYERS, **getattr(request, "param", {}))[0]


def answers(llm: LLM) -> list[list[int]]:
    return [out.token_ids for out in llm.generate(PROMPTS, PARAMS)]


@pytest.mark.parametrize("folder", [{}, {"tie_word_embeddings": True}, {"num_experts": 6}], indirect=True)
def test_every_mode_budget_and_slot_count_gives_the_resident_logits(folder):
    with LLM(folder, device="cpu") as llm:
        expected, logits = answers(llm), llm.logits(PROMPTS[2])
    choices = [("naive", n, None) for n in (1, 3, LAYERS)]
    choices += [("prefetch", n, s) for n, s in product((1, 2, 4, LAYERS), (1, 2, None)) if n >= (s or 1)]
    for offload, budget, slots in choices:
        with LLM(folder, device="cpu", offload=offload, gpu_layer_budget=budget, slots=slots) as llm:
            assert answers(llm) == expected, (offload, budget, slots)
            assert torch.equal(llm.logits(PROMPTS[2]), logits), (offload, budget, slots)


def test_a_budget_in_gib_is_never_exceeded_and_filled_with_layers(folder):
    with LLM(folder, device="cpu", max_model_len=64, gpu_layer_budget=2) as llm:
        two = llm.decision.device_bytes
        layer = llm.decision.device_bytes - decided(folder, gpu_layer_budget=1).device_bytes
    for spare, layers in ((0, 2), (layer - 1, 2), (layer, 3)):
        gib = (two + spare) / GIB
        with LLM(folder, device="cpu", max_model_len=64, gpu_memory_gib=gib) as llm:
            assert llm.decision.placement.on_device == layers
            out = llm.generate([3] * 40, SamplingParams(max_tokens=24))[0]
            assert out.metrics.peak_memory_bytes <= two + spare


def test_a_cap_holds_with_all_layers_on_the_device(folder):
    everything = decided(folder, gpu_layer_budget=LAYERS).device_bytes
    with LLM(folder, device="cpu", max_model_len=64, gpu_memory_gib=everything / GIB) as llm:
        assert llm.decision.mode == "none"
        weights = sum(each.nbytes for each in llm.model.parameters())
        outputs = llm.generate([[3] * 40] * 32, SamplingParams(max_tokens=24))
        assert weights < max(out.metrics.peak_memory_bytes for out in outputs) <= everything


def test_a_plan_leaves_what_goes_beside_it(folder, monkeypatch):
    gib = decided(folder, gpu_layer_budget=3).device_bytes / GIB
    for beside, layers in ((0, 3), (1, 2)):
        monkeypatch.setattr(Emulated, "unplanned", beside)
        assert decided(folder, gpu_memory_gib=gib).placement.on_device == layers


def decided(folder, **options):
    with LLM(folder, device="cpu", max_model_len=64, **options) as llm:
        return llm.decision


def test_auto_streams_only_when_asked_to(folder):
    assert decided(folder).mode == "none"
    assert decided(folder, gpu_layer_budget=2).mode == "prefetch"
    assert decided(folder, gpu_layer_budget=LAYERS).mode == "none"
    assert decided(folder, offload="naive", gpu_layer_budget=2).mode == "naive"


@pytest.mark.parametrize(
    "options",
    [{"gpu_layer_budget": LAYERS + 1}, {"offload": "prefetch"}, {"offload": "naive", "gpu_layer_budget": 99}],
)
def test_a_setting_that_cannot_help_is_noted(folder, options, capsys):
    LLM(folder, device="cpu", **options).close()
    said = capsys.readouterr().err
    assert said.count("note:") == 1
    assert "all 5 layers fit" in said


def test_no_note_without_need(folder, capsys):
    LLM(folder, device="cpu", gpu_layer_budget=2).close()
    LLM(folder, device="cpu").close()
    assert "note:" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gpu_layer_budget": 0}, "gpu_layer_budget is 0.*at least 1"),
        ({"gpu_layer_budget": 2.5}, "gpu_layer_budget is 2.5"),
        ({"gpu_layer_budget": 2, "gpu_memory_gib": 1.0}, "give one of them"),
        ({"gpu_layer_budget": 2, "offload": "none"}, "gpu_layer_budget 2 of 5 layers, but offload is none"),
        ({"gpu_memory_gib": 0}, "gpu_memory_gib is 0.*above 0"),
        ({"gpu_memory_gib": float("nan")}, "gpu_memory_gib is nan"),
        ({"slots": 3, "gpu_layer_budget": 4}, "slots is 3.*at most 2"),
        ({"slots": 2, "gpu_layer_budget": 1}, "slots is 2 in a gpu_layer_budget of 1"),
        ({"slots": 1, "offload": "naive", "gpu_layer_budget": 2}, "slots is 1, but offload naive"),
        ({"gpu_memory_gib": 1.0, "offload": "none"}, "gpu_memory_gib is 1, but offload is none: drop one"),
        ({"link_gb_s": 0}, "link_gb_s is 0"),
        ({"link_gb_s": 1e-300, "gpu_layer_budget": 2}, "link_gb_s is 1e-300.*at least 1e-06"),
        ({"link_gb_s": 5.0}, "link_gb_s is 5.0, but nothing is offloaded"),
        ({"offload": "magic"}, "offload is 'magic'"),
    ],
)
def test_bad_options_are_one_line(folder, options, words):
    with pytest.raises(InputError, match=words) as caught:
        LLM(folder, device="cpu", **options)
    assert "\n" not in str(caught.value)


def test_a_budget_too_small_says_what_would_fit(folder):
    with pytest.raises(RunError, match=r"not one layer fits .* max_model_len to \d+ or less") as caught:
        LLM(folder, device="cpu", gpu_memory_gib=decided(folder, gpu_layer_budget=1).device_bytes * 2 / GIB)
    assert "\n" not in str(caught.value)
    tokens = int(str(caught.value).split("max_model_len to ")[1].split()[0])
    gib = decided(folder, gpu_layer_budget=1).device_bytes * 2 / GIB
    LLM(folder, device="cpu", gpu_memory_gib=gib, max_model_len=tokens).close()
    with pytest.raises(RunError, match="not one layer fits"):
        LLM(folder, device="cpu", gpu_memory_gib=gib, max_model_len=tokens + 1)


def test_memory_taken_by_somebody_else_is_one_line_and_the_next_run_works(folder):
    gib = decided(folder, gpu_layer_budget=2).device_bytes / GIB
    with LLM(folder, device="cpu", gpu_memory_gib=gib, max_model_len=64) as llm:
        expected, device = answers(llm), llm._accelerator
        with device.holding(device.free_bytes()), pytest.raises(RunError, match="KV cache of") as caught:
            answers(llm)
        assert "\n" not in str(caught.value)
        assert answers(llm) == expected


def test_closing_ends_the_copying_thread_and_frees_the_memory(folder):
    def links() -> int:
        return sum(thread.name == "emulated link" for thread in threading.enumerate())

    before = links()
    llm = LLM(folder, device="cpu", gpu_layer_budget=2)
    llm.generate(PROMPTS, PARAMS)
    assert links() == before + 1
    llm.close()
    llm.close()
    gc.collect()
    assert links() == before


def test_a_failed_load_leaves_no_thread(folder):
    before = threading.active_count()
    (folder / "model.safetensors").write_bytes(b"\0" * 100)
    with pytest.raises(InputError):
        LLM(folder, device="cpu", gpu_layer_budget=2)
    assert threading.active_count() == before


def test_report_names_what_lies_where(folder):
    with LLM(folder, device="cpu", gpu_layer_budget=3, slots=2) as llm:
        text = llm.report()
    assert "1 of 5 layers resident" in text
    assert "4 layers streamed (prefetch)" in text
    assert "2 slots of a layer" in text


@pytest.mark.parametrize("offload", ["naive", "prefetch"])
def test_ctrl_c_during_a_copy_keeps_what_there_is_and_the_next_run_works(folder, offload):
    options = {"offload": offload, "gpu_layer_budget": 2, "link_gb_s": 0.01}  # some 10 ms a layer
    with LLM(folder, device="cpu", **options) as llm:
        expected = answers(llm)
        used = llm._accelerator.used
        for after in (0.05, 0.12, 0.2):
            timer = threading.Timer(after, signal.raise_signal, [signal.SIGINT])
            timer.start()
            with pytest.raises(KeyboardInterrupt) as stop:
                llm.generate(PROMPTS[2], SamplingParams(max_tokens=400, ignore_eos=True))
            (output,) = stop.value.outputs
            assert output.finish_reason == "abort"
            assert llm._accelerator.used == used
            assert answers(llm) == expected


def test_memory_that_goes_in_the_middle_of_a_pass_is_one_line_and_the_next_run_works(folder):
    gib = decided(folder, gpu_layer_budget=2).device_bytes / GIB
    with LLM(folder, device="cpu", offload="naive", gpu_memory_gib=gib, max_model_len=64) as llm:
        expected, device = answers(llm), llm._accelerator
        stream = llm.stream(PROMPTS[0], PARAMS)
        next(stream)
        with (
            device.holding(device.free_bytes()),
            pytest.raises(RunError, match="not enough memory") as caught,
        ):
            list(stream)
        assert "\n" not in str(caught.value)
        assert answers(llm) == expected


@pytest.mark.parametrize("count", [2, 16, 32])
def test_a_group_is_as_large_as_memory_allows_beside_a_layer_that_passes(count):
    """Naive takes that layer's memory in each pass: it is not there for caches."""
    params = SamplingParams(max_tokens=40, ignore_eos=True)
    with LLM("tiny", device="cpu", offload="naive", gpu_memory_gib=0.0045, max_model_len=64) as llm:
        found = llm.generate([[1, 2, 3 + i] for i in range(count)], params)
        assert [len(output.token_ids) for output in found] == [40] * count
