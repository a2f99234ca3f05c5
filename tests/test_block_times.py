"""What blocks cost: figures that add up to the whole, a link as fast as it was made, nothing left behind."""

import pytest
import torch

from minillm import LLM, ModelConfig, SamplingParams, block_times, link_times
from minillm.accelerators.emulated import Emulated
from minillm.budget import Request, decide
from minillm.errors import RunError
from minillm.predict import Rates, decode
from minillm.schedule import HEAD, Block, place

pytestmark = pytest.mark.alone

WIDE = ModelConfig(
    vocab_size=500,
    hidden_size=512,
    intermediate_size=2048,
    num_hidden_layers=10,
    num_attention_heads=8,
    num_key_value_heads=2,
    head_dim=64,
    tie_word_embeddings=True,
    dtype="float32",
)


@pytest.fixture
def device():
    found = Emulated(link_gb_s=2.0)
    yield found
    found.close()


def test_parts_add_up_to_a_decode_step_of_the_real_engine(device, monkeypatch):
    monkeypatch.setattr("minillm.presets.PRESETS", {"Wide": WIDE})
    with LLM("random:Wide", device="cpu") as llm:
        params = SamplingParams(max_tokens=30, ignore_eos=True)
        ratios = []
        for _ in range(5):  # other work on the machine disturbs either
            times = block_times.measure(WIDE, torch.float32, device)
            whole = 10 * (times.attention_s + times.mlp_s) + times.head_s
            ratios.append(whole * llm.generate([5] * 128, params)[0].metrics.decode_tokens_per_s)
            if 0.7 < ratios[-1] < 1.4:
                break
    assert 0.7 < ratios[-1] < 1.4, ratios


def test_a_larger_part_costs_more(device):
    times = block_times.measure(WIDE, torch.float32, device, patience_s=0.3)
    assert times.mlp_s > 1.5 * times.attention_s > 0  # 4.8 times the weights
    assert times.moe_s == 0
    prefill = block_times.measure(WIDE, torch.float32, device, tokens=200)
    assert prefill.mlp_s > 3 * times.mlp_s


def test_the_link_is_as_fast_as_it_was_made(device):
    assert link_times.link_gb_s(device) == pytest.approx(2.0, rel=0.2)


def test_kinds_of_blocks_are_told_apart(device):
    moe = ModelConfig(
        **{name: getattr(WIDE, name) for name in ("vocab_size", "hidden_size", "num_attention_heads")},
        num_key_value_heads=2,
        head_dim=64,
        intermediate_size=256,
        num_hidden_layers=12,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=512,
        decoder_sparse_step=10,  # layer 9 alone has experts
    )
    times = block_times.measure(moe, torch.float32, device)
    assert times.moe_s > 0
    assert times.mlp_s > 0
    costs = {
        block: times.compute_s(moe, block) for block in (Block(8, "mlp"), Block(9, "mlp"), Block(12, HEAD))
    }
    assert list(costs.values()) == [times.mlp_s, times.moe_s, times.head_s]


def test_nothing_stays_on_the_device(device):
    block_times.measure(WIDE, torch.float32, device)
    assert device.used == 0


def test_no_memory_is_no_prediction_and_no_failure(make_checkpoint, monkeypatch):
    def refuse(*_):
        raise RunError("no memory")

    monkeypatch.setattr("minillm.residency.measure", refuse)
    with LLM(make_checkpoint(num_hidden_layers=4)[0], device="cpu", gpu_layer_budget=2) as llm:
        assert llm.decision.tokens_per_s is None
        assert "predicted for" in llm.report()
        assert "tokens a second" not in llm.report()


def test_a_prediction_before_the_first_token_is_near_what_comes(make_checkpoint):
    """A link so slow that nothing else counts."""
    with LLM(
        make_checkpoint(num_hidden_layers=4)[0], device="cpu", gpu_layer_budget=2, link_gb_s=0.002
    ) as llm:
        predicted = llm.decision.tokens_per_s
        assert f"{predicted:.1f}"[:2] in llm.report().splitlines()[-1]
        found = llm.generate([1], SamplingParams(max_tokens=12, ignore_eos=True))[0].metrics
        assert found.decode_tokens_per_s == pytest.approx(predicted, rel=0.15)


@pytest.mark.parametrize("link_gb_s", [1.0, 8.0, 20.0, 31.5, 60.0, 200.0, 1000.0])
@pytest.mark.parametrize("budget", [1, 2, 3, 6, 9])
def test_slots_are_those_of_the_faster_simulation(link_gb_s, budget):
    rates = Rates(link_gb_s, 30.0)
    request = {"config": WIDE, "dtype_bytes": 4, "tokens": 64, "gpu_layer_budget": budget}
    chosen = decide(Request(**request, rates=lambda: rates))
    speeds = {}
    for slots in range(1, min(2, budget) + 1):
        speeds[slots] = decode(WIDE, 4, "prefetch", place(10, budget, slots), rates).tokens_per_s
        asked = decide(Request(**request, slots=slots, rates=lambda: rates))
        assert asked.tokens_per_s == speeds[slots]
    assert chosen.tokens_per_s >= max(speeds.values()) / 1.02
    assert chosen.placement.slots == 1 or speeds[2] > speeds[1]
    assert decide(Request(**request)).placement == place(10, budget, 1)  # nothing known: one


def test_both_numbers_of_slots_are_chosen_somewhere():
    found = {
        decide(
            Request(
                config=WIDE, dtype_bytes=4, tokens=64, gpu_layer_budget=5, rates=lambda r=rate: Rates(r, 30.0)
            )
        ).placement.slots
        for rate in (1.0, 15.0, 20.0, 25.0, 31.5, 40.0, 60.0)
    }
    assert found == {1, 2}
