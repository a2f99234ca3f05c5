"""Another placement of a loaded model: the same logits, no memory left behind, no way to lose the model."""

import gc
import weakref
from contextlib import suppress
from itertools import count

import numpy as np
import pytest
import torch

import minillm.llm
from minillm import LLM, SamplingParams, memory
from minillm.accelerators.emulated import Emulated
from minillm.errors import InputError, RunError
from minillm.geometry import ALIGNMENT
from minillm.offload import OffloadedLayers
from minillm.units import GIB

LAYERS, PROMPT = 5, list(range(40))
PLACES = [
    {"gpu_layer_budget": 3, "slots": 2},
    {"gpu_layer_budget": 1, "offload": "naive"},
    {"gpu_layer_budget": LAYERS},
    {"gpu_layer_budget": 4, "slots": 1},
    {"gpu_layer_budget": 2, "offload": "naive"},
]


@pytest.fixture
def folder(make_checkpoint, request):
    return make_checkpoint(num_hidden_layers=LAYERS, **getattr(request, "param", {}))[0]


def bytes_of(llm) -> int:
    return llm.model.model.layers.layouts[0].num_bytes


@pytest.mark.parametrize("folder", [{}, {"tie_word_embeddings": True}], indirect=True)
def test_every_placement_gives_the_same_logits_in_the_memory_of_a_fresh_one(folder):
    with LLM(folder, device="cpu") as resident:
        expected = resident.logits(PROMPT)
    with LLM(folder, device="cpu", gpu_layer_budget=2) as llm:
        base = llm._accelerator.used - 2 * bytes_of(llm)
        for options in [*PLACES, *PLACES[::-1]]:
            llm.place(**options)
            assert torch.equal(llm.logits(PROMPT), expected), options
            on_device = llm.decision.placement.on_device
            slot = bytes_of(llm) if options.get("offload") == "naive" else 0  # given back after each layer
            assert llm._accelerator.used - base == on_device * bytes_of(llm) - slot


def test_a_placement_in_gib_counts_what_the_model_holds_already(folder):
    with LLM(folder, device="cpu", gpu_layer_budget=3, max_model_len=64) as llm:
        needed = llm.decision.device_bytes
    with LLM(folder, device="cpu", gpu_memory_gib=needed / GIB, max_model_len=64) as llm:
        for budget in (1, 3):
            llm.place(gpu_layer_budget=budget)
            llm.place(gpu_memory_gib=needed / GIB)
            assert llm.decision.placement.on_device == 3


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"gpu_layer_budget": 0}, InputError, "gpu_layer_budget is 0"),
        ({"gpu_layer_budget": 2, "gpu_memory_gib": 1.0}, InputError, "give one of them"),
        ({"gpu_layer_budget": 2, "offload": "none"}, InputError, "offload is none"),
        ({"gpu_memory_gib": 1e-9}, RunError, "not one layer fits"),
        ({"gpu_memory_gib": 5.0}, InputError, "gpu_memory_gib is 5, but the device has"),
        ({"offload": "magic"}, InputError, "offload is 'magic'"),
        ({"offload": ""}, InputError, "offload is ''"),
        ({"offload": 0}, InputError, "offload is 0"),
        ({"gpu_memory_gib": 1e-3, "offload": "none"}, InputError, "offload is none: drop one"),
        ({"gpu_memory_gib": 1e300}, InputError, "gpu_memory_gib is 1e[+]300.*at most"),
    ],
)
def test_a_bad_placement_is_one_line_and_changes_nothing(folder, options, error, words):
    with LLM(folder, device="cpu", gpu_layer_budget=3, max_model_len=64) as llm:
        gib = llm.decision.device_bytes / GIB
    with LLM(folder, device="cpu", gpu_memory_gib=gib, max_model_len=64) as llm:
        llm.place(gpu_layer_budget=2)
        expected, before = llm.logits(PROMPT), llm.decision
        with pytest.raises(error, match=words) as caught:
            llm.place(**options)
        assert "\n" not in str(caught.value)
        assert llm.decision == before
        assert torch.equal(llm.logits(PROMPT), expected)


def test_memory_that_is_gone_when_layers_move_leaves_the_placement_before(folder):
    with LLM(folder, device="cpu", gpu_layer_budget=2) as llm:
        expected, before, device = llm.logits(PROMPT), llm.decision, llm._accelerator
        used = device.used
        take = device._take

        def refuse(num_bytes: int) -> None:
            if device.used + num_bytes > used:
                raise RunError("no memory: somebody else took it")
            take(num_bytes)

        device._take = refuse
        with pytest.raises(RunError, match="somebody else"):
            llm.place(gpu_layer_budget=4)
        device._take = take
        assert device.used == used
        assert llm.decision == before
        assert torch.equal(llm.logits(PROMPT), expected)


class Counted(Emulated):
    """Memory is free when the last who looks into it is gone, as PyTorch has it on CUDA."""

    def empty(self, num_bytes: int) -> torch.Tensor:
        self._take(num_bytes)
        room = np.full(num_bytes + ALIGNMENT, 0xFF, np.uint8)
        weakref.finalize(room, self._freed, num_bytes)
        begin = -room.ctypes.data % ALIGNMENT
        return torch.from_numpy(room[begin : begin + num_bytes])

    def give_back(self, buffer: torch.Tensor) -> None:
        pass

    def _freed(self, num_bytes: int) -> None:
        self.used -= num_bytes


def cut_short(patch, owner: object, method: str, moment: int) -> list:
    """Ctrl-C at the end of so many calls of a method; something is in the list once it has come."""
    whole, left, cut = getattr(owner, method), iter(range(moment)), []

    def short(*arguments):
        result = whole(*arguments)
        if next(left, None) == moment - 1:
            cut.append(moment)
            raise KeyboardInterrupt
        return result

    patch.setattr(owner, method, short)
    return cut


@pytest.mark.parametrize("offload", ["naive", "prefetch"])
@pytest.mark.parametrize("method", ["synchronize", "bind", "hold"])
def test_a_move_that_is_cut_short_can_go_back_on_a_nearly_full_device(folder, offload, method, monkeypatch):
    """There is memory for four layers, not for a failed placement beside the one before."""
    monkeypatch.setattr(minillm.llm, "pick_accelerator", lambda *_, **__: Counted())
    with LLM(folder, device="cpu", gpu_layer_budget=3, offload=offload, max_model_len=64) as llm:
        expected, before, device = llm.logits(PROMPT), llm.decision, llm._accelerator
        used, owner = device.used, device if method == "synchronize" else OffloadedLayers
        for moment in count(1):
            device.capacity = used + bytes_of(llm) * (2 if offload == "naive" else 1)
            with monkeypatch.context() as patch:
                cut = cut_short(patch, owner, method, moment)
                with suppress(KeyboardInterrupt):
                    llm.place(gpu_layer_budget=4)
            device.capacity = None
            assert torch.equal(llm.logits(PROMPT), expected), moment
            if not cut:
                break
            assert (llm.decision, device.used) == (before, used), moment
        assert llm.decision.placement.on_device == 4
        assert moment > 1


@pytest.mark.parametrize("options", [{}, {"gpu_layer_budget": LAYERS}])
def test_without_host_copies_nothing_can_move(folder, options):
    says = f"keeps no host copy: make it with a gpu_layer_budget below {LAYERS}"
    with LLM(folder, device="cpu", **options) as llm, pytest.raises(RunError, match=says):
        llm.place(gpu_layer_budget=2)
    with LLM(folder, device="cpu", gpu_layer_budget=LAYERS - 1) as llm:
        llm.place(gpu_layer_budget=2)


def test_a_move_is_refused_where_main_memory_is_too_small_for_the_emulated_device(folder, monkeypatch):
    with LLM(folder, device="cpu", gpu_layer_budget=2, max_model_len=64) as llm:
        expected, free = llm.logits(PROMPT), [2 * bytes_of(llm)]
        monkeypatch.setattr(memory, "available_bytes", lambda: free[0])
        llm.place(gpu_layer_budget=4)
        llm.place(gpu_layer_budget=2)
        free = [2 * bytes_of(llm) - 1]
        with pytest.raises(RunError, match=r"^4 of 5 layers take .* may be used: at most 3 fit") as caught:
            llm.place(gpu_layer_budget=4)
        assert "\n" not in str(caught.value)
        monkeypatch.undo()
        assert torch.equal(llm.logits(PROMPT), expected)


class TestSmallHostMemory:
    """Where not all layers fit beside the emulated device, only those that stream have a host copy."""

    @pytest.fixture
    def needed(self, folder):
        with LLM(folder, device="cpu", gpu_layer_budget=3, max_model_len=64) as llm:
            return llm.residency.arena.size, llm.decision.device_bytes

    @pytest.mark.parametrize("folder", [{}, {"tie_word_embeddings": True}, {"num_experts": 6}], indirect=True)
    @pytest.mark.parametrize("offload", ["naive", "prefetch"])
    def test_logits_and_memory(self, folder, needed, offload, monkeypatch, capsys):
        with LLM(folder, device="cpu") as resident:
            expected = resident.logits(PROMPT)
        everything, device = needed
        # The first question is the loader's, of host memory; later ones are about caches.
        monkeypatch.setattr(memory, "available_bytes", self.answers(everything + device - 1024))
        options = {"gpu_layer_budget": 3, "offload": offload, "max_model_len": 64}
        with LLM(folder, device="cpu", **options) as llm:
            assert "streamed layers only" in capsys.readouterr().err
            assert "of the streamed layers" in llm.report()
            resident = llm.decision.placement.resident
            assert llm.residency.arena.size == everything - sum(
                llm.model.model.layers.layouts[index].num_bytes for index in resident
            )
            for _ in range(2):
                assert torch.equal(llm.logits(PROMPT), expected)
            with pytest.raises(RunError, match=f"keeps a host copy of {LAYERS - len(resident)} of 5 layers"):
                llm.place(gpu_layer_budget=2)
            assert torch.equal(llm.logits(PROMPT), expected)

    def test_too_small_for_what_streams_is_one_line(self, folder, needed, monkeypatch):
        options = {"gpu_layer_budget": 3, "slots": 1, "max_model_len": 64}
        with LLM(folder, device="cpu", **options) as llm:
            free = sum(needed) - ALIGNMENT - 2 * bytes_of(llm)
        monkeypatch.setattr(memory, "available_bytes", lambda: free)
        LLM(folder, device="cpu", **options).close()
        monkeypatch.setattr(memory, "available_bytes", lambda: free - 1)
        with pytest.raises(RunError, match=r"streamed layers beside .* emulated device needs") as caught:
            LLM(folder, device="cpu", **options)
        assert "\n" not in str(caught.value)

    @staticmethod
    def answers(first: int):
        left = [first]
        return lambda: left.pop() if left else None


def test_moving_leaves_nothing_behind(folder):
    with LLM(folder, device="cpu", gpu_layer_budget=2) as llm:
        llm.generate(PROMPT, SamplingParams(max_tokens=2))
        used = llm._accelerator.used
        for budget in (4, 1, 3, 2):
            llm.place(gpu_layer_budget=budget)
            llm.generate(PROMPT, SamplingParams(max_tokens=2))
        gc.collect()
        assert llm._accelerator.used == used


def test_a_store_goes_without_waiting_for_the_garbage_collector(folder):
    """Device memory in a circle of objects would stay taken until Python happens to look for circles."""
    gc.collect()
    gc.disable()
    try:
        llm = LLM(folder, device="cpu", gpu_layer_budget=2)
        stores = []
        for options in ({"gpu_layer_budget": 3}, {"gpu_layer_budget": 2, "offload": "naive"}, {}):
            stores.append(weakref.ref(llm.model.model.layers))
            llm.generate(PROMPT, SamplingParams(max_tokens=3))
            if options:
                llm.place(**options)
        assert [store() is None for store in stores] == [True, True, False]
        llm.close()
        assert stores[-1]() is None
    finally:
        gc.enable()


def test_the_mode_stays_unless_another_is_asked_for(folder):
    with LLM(folder, device="cpu", offload="naive", gpu_layer_budget=2) as llm:
        llm.place(gpu_layer_budget=3)
        assert llm.decision.mode == "naive"
        llm.place(gpu_layer_budget=3, offload="prefetch")
        llm.place(gpu_layer_budget=2)
        assert llm.decision.mode == "prefetch"


def test_naive_stays_asked_for_where_for_a_time_nothing_streams(folder):
    with LLM(folder, device="cpu", offload="naive", gpu_layer_budget=2) as llm:
        llm.place(gpu_layer_budget=LAYERS)
        assert llm.decision.mode == "none"
        with pytest.raises(InputError):
            llm.place(gpu_layer_budget=0, offload="prefetch")
        llm.place(gpu_layer_budget=2)
        assert llm.decision.mode == "naive"
        for asked in ({"slots": 1}, {}):
            llm.place(gpu_layer_budget=2, **asked)
            assert llm.decision.mode == "prefetch"


@pytest.mark.parametrize("folder", [{}, {"tie_word_embeddings": True}], indirect=True)
def test_predicted_weights_with_everything_resident_are_what_is_taken(folder):
    with LLM(folder, device="cpu", gpu_layer_budget=2, max_model_len=64) as llm:
        for budget in (2, LAYERS):
            llm.place(gpu_layer_budget=budget)
            plan = memory.plan(llm.config, 4, 64)
            assert llm.decision.device_bytes - plan.kv - plan.workspace == llm._accelerator.used
