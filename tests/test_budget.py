"""Host copies and device memory: each has a limit of its own, unless the device lies in host memory."""

import pytest
import torch

from minillm import memory
from minillm.accelerators.cpu import Cpu
from minillm.accelerators.emulated import Emulated
from minillm.budget import Request, decide
from minillm.errors import RunError
from minillm.predict import Rates
from minillm.presets import PRESETS
from minillm.residency import Residency
from minillm.units import GIB

CONFIG = PRESETS["Qwen3-1.7B"]
LAYER = 2 * (3 * 2048**2 + 3 * 2048 * 6144 + 2 * 2048 + 2 * 128)  # bytes
EVERY = tuple(range(28))


def placed(host_free: int, shared: bool):
    """24 of 28 layers on the device, one of them a slot, so that 5 stream."""
    asked = {"gpu_layer_budget": 24, "slots": 1, "tokens": 1024, "host_free": host_free, "shared": shared}
    return decide(Request(config=CONFIG, dtype_bytes=2, **asked))


def test_host_copies_and_an_emulated_device_have_to_fit_one_memory():
    everything = placed(64 * GIB, shared=True)
    device, streamed = everything.device_bytes, everything.placement.streamed
    assert 24 * LAYER < device < 30 * LAYER + 2 * 151936 * 2048
    assert placed(device + 28 * LAYER, shared=True).host_layers == EVERY
    for free in (device + 28 * LAYER - 1, device + 5 * LAYER):
        assert placed(free, shared=True).host_layers == streamed
        assert placed(free, shared=False).host_layers == EVERY
    with pytest.raises(
        RunError, match=r"beside 3\.\d\d GiB of .* needs 3\.\d\d GiB .* 3\.\d\d GiB"
    ) as caught:
        placed(device + 5 * LAYER - 1, shared=True)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith("lower max_model_len or choose a smaller model or dtype")


def test_host_memory_that_is_too_small_by_itself_leaves_the_remedy_of_a_larger_budget():
    assert len(placed(5 * LAYER, shared=False).host_layers) == 5
    with pytest.raises(RunError, match=r"copy of the streamed layers needs .* larger budget") as caught:
        placed(5 * LAYER - 1, shared=False)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("slots", [None, 1, 2])
def test_nothing_is_measured_for_a_model_that_is_too_large(slots):
    asked = []
    request = {"config": CONFIG, "dtype_bytes": 2, "tokens": 1024, "offload": "prefetch", "slots": slots}
    request |= {"gpu_layer_budget": 4, "rates": lambda: asked.append("rates")}
    with pytest.raises(RunError, match="the host copy of the streamed layers needs"):
        decide(Request(**request, host_free=24 * LAYER))
    assert asked == []
    decide(Request(**request, host_free=64 * GIB))
    assert asked == ["rates"]


def test_a_second_slot_is_taken_only_where_host_memory_holds_what_streams_then():
    """A layer more streams than with one."""
    request = {"config": CONFIG, "dtype_bytes": 2, "tokens": 1024, "offload": "prefetch"}
    request |= {"gpu_layer_budget": 4, "rates": lambda: Rates(25.0, 25.0)}  # computing takes as long
    for copies, slots in ((25, 1), (26, 2)):
        decision = decide(Request(**request, host_free=copies * LAYER))
        assert (decision.placement.slots, len(decision.host_layers)) == (slots, copies)


class Card(Emulated):
    """With memory of its own."""

    device = torch.device("cuda", 0)


@pytest.mark.parametrize("kind", [Card, Cpu])
def test_a_resident_model_that_is_too_large_may_stream_where_there_is_a_device(kind, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: GIB)
    accelerator = Card(capacity=GIB) if kind is Card else Cpu()
    residency = Residency("M", CONFIG, torch.bfloat16, accelerator, tokens=64)
    with pytest.raises(RunError, match=r"needs 3\.20 GiB of memory, 1\.00 GiB are available") as caught:
        residency.load(lambda _: None, offload="none")
    assert ("leave offload out" in str(caught.value)) == (kind is Card)
    assert str(caught.value).endswith("choose a smaller model or dtype")
    accelerator.close()
