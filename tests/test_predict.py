"""Predicted speeds, compared with divisions done by hand."""

import re

import pytest

from minillm.budget import Request, decide
from minillm.errors import RunError
from minillm.predict import Rates, decode
from minillm.presets import PRESETS
from minillm.schedule import Placement, place

QWEN3_8B = PRESETS["Qwen3-8B"]
# On paper: q and o 4096², k and v 4096 × 1024, three 4096 × 12288; norms 2 × 4096 + 2 × 128; two bytes each.
LAYER = 2 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 12288 + 2 * 4096 + 2 * 128)
HEAD = 2 * (151936 + 1) * 4096
RATES = Rates(link_gb_s=25.0, device_gb_s=400.0)
ALL = Placement(tuple(range(36)), (), 0)


def test_resident_is_bytes_over_the_devices_bandwidth():
    made = decode(QWEN3_8B, 2, "none", ALL, RATES)
    assert (made.read_bytes, made.copied_bytes) == (36 * LAYER + HEAD, 0)
    assert made.seconds == pytest.approx((36 * LAYER + HEAD) / 400e9)


@pytest.mark.parametrize(("budget", "slots", "streamed"), [(1, 1, 36), (13, 1, 24), (13, 2, 25), (35, 1, 2)])
def test_prefetch_is_bytes_over_the_link_where_that_is_slower(budget, slots, streamed):
    made = decode(QWEN3_8B, 2, "prefetch", place(36, budget, slots), RATES)
    assert made.copied_bytes == streamed * LAYER
    if streamed > 2:
        assert made.seconds == pytest.approx(streamed * LAYER / 25e9, rel=1e-6)
    else:  # each copy has the time of 17 layers to hide in, which is more than it takes
        assert made.seconds == pytest.approx((36 * LAYER + HEAD) / 400e9, rel=0.03)


def test_naive_is_the_sum():
    made = decode(QWEN3_8B, 2, "naive", place(36, 13, 1), RATES)
    assert made.seconds == pytest.approx(24 * LAYER / 25e9 + (36 * LAYER + HEAD) / 400e9)


def test_experts_are_copied_all_and_read_as_far_as_they_are_used():
    config = PRESETS["Qwen3-30B-A3B"]
    made = decode(config, 2, "prefetch", place(48, 1, 1), RATES)
    experts = 48 * 128 * 3 * 768 * 2048 * 2
    assert made.copied_bytes > experts
    assert made.read_bytes == pytest.approx(
        made.copied_bytes - experts * 15 / 16 + 2 * 151936 * 2048, rel=1e-3
    )


def test_what_an_8_gb_card_does_with_8b():
    """12 resident layers: what fits 7.2 GiB beside head, slot, KV cache and workspace of 1,024 tokens."""
    request = Request(config=QWEN3_8B, dtype_bytes=2, tokens=1024, offload="prefetch", free=int(7.2 * 2**30))
    decision = decide(request)
    assert decision.placement.on_device == pytest.approx(16, abs=1)
    made = decode(QWEN3_8B, 2, decision.mode, decision.placement, Rates(31.5, 448.0))
    assert made.tokens_per_s == pytest.approx(31.5e9 / (len(decision.placement.streamed) * LAYER), rel=1e-3)


def test_fetching_adds_to_naive_once_a_streamed_layer_and_to_prefetching_nothing():
    placement = place(36, 10, 1)
    for mode, layers in (("naive", 27), ("prefetch", 0)):
        plain, slower = (
            decode(QWEN3_8B, 2, mode, placement, Rates(31.5, 448.0, fetch_s)).seconds
            for fetch_s in (0.0, 0.002)
        )
        assert slower - plain == pytest.approx(0.002 * layers, abs=1e-9)


@pytest.mark.parametrize(("name", "gib"), [("Qwen3-32B", 7.2), ("Qwen3-8B", 2.0), ("Qwen3-30B-A3B", 4.0)])
def test_the_context_that_an_error_suggests_is_the_longest_that_fits(name, gib):
    asked = {"config": PRESETS[name], "dtype_bytes": 2, "gpu_memory_gib": gib}
    with pytest.raises(RunError, match="max_model_len to") as caught:
        decide(Request(**asked, tokens=32768, offload="prefetch"))
    tokens = int(str(caught.value).split("max_model_len to ")[1].split()[0])
    assert decide(Request(**asked, tokens=tokens, offload="prefetch")).placement.on_device == 1
    with pytest.raises(RunError, match="not one layer fits"):
        decide(Request(**asked, tokens=tokens + 1, offload="prefetch"))


@pytest.mark.parametrize("free", [2.0, 4.3, 7.2])
@pytest.mark.parametrize(("budget", "tokens", "slots"), [(30, 4096, None), (36, 1024, None), (20, 8, 2)])
def test_a_budget_whose_weights_do_not_fit_is_told_what_would(budget, tokens, slots, free):
    asked = {"config": QWEN3_8B, "dtype_bytes": 2, "tokens": tokens, "slots": slots}
    asked |= {"free": int(free * 2**30), "total": 8 * 2**30}

    def placed(n):
        return decide(Request(**asked, gpu_layer_budget=n))

    said = f"^{budget} of 36 layers take .* {free:.2f} GiB may be used"
    with pytest.raises(RunError, match=said) as caught:
        placed(budget)
    most, planned, _ = (int(word) for word in re.findall(r"\d+", str(caught.value).split("at most ")[1]))
    assert placed(most).placement.on_device == most
    with pytest.raises(RunError, match=f"at most {most} fit"):
        placed(most + 1)
    assert planned == 0 or placed(planned).device_bytes <= asked["free"]
    assert planned == most or placed(planned + 1 if planned else slots or 1).device_bytes > asked["free"]
