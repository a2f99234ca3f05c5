"""Offloaded layers give the resident model's logits bit for bit; a schedule without a dependency does not."""

from functools import partial

import pytest
import torch
from conftest import SMALL, SMALL_MOE
from hypothesis import given, settings
from hypothesis import strategies as st

from minillm import weights
from minillm.accelerators.emulated import Emulated
from minillm.cache import KVCache
from minillm.config import ModelConfig
from minillm.offload import NaiveOffload, PrefetchOffload
from minillm.random_weights import fill_random
from minillm.schedule import Schedule, naive, place, prefetch

PROMPT, STEPS = [5, 17, 3, 88, 41], 3


def build(layers: int, **changes):
    moe = "num_experts" in changes
    base = (SMALL_MOE if moe else SMALL) | {"model_type": "qwen3_moe" if moe else "qwen3"}
    config = ModelConfig.from_dict(base | {"num_hidden_layers": layers} | changes)
    return weights.build(config, torch.float32, "cpu", partial(fill_random, seed=3))


@torch.inference_mode()
def logits(model, prompt=PROMPT, steps=STEPS) -> torch.Tensor:
    """A prefill and some decode steps of always the same tokens, float32 [1 + steps, vocab]."""
    cache = KVCache.allocate(model.config, 1, len(prompt) + steps, torch.float32, "cpu")
    rows = [model.head(model(torch.tensor([prompt]), cache, [0])[:, -1])]
    for step in range(steps):
        rows.append(model.head(model(torch.tensor([[step]]), cache, [len(prompt) + step])[:, -1]))
    return torch.cat(rows)


def offload(model, mode: str, budget: int, slots: int = 1, change=lambda schedule: schedule, **device):
    """Put a store in place of the model's resident layers."""
    placement = place(model.config.num_hidden_layers, budget, slots)
    accelerator = Emulated(**device)
    if mode == "naive":
        store = NaiveOffload(model.model.layers, placement, accelerator, torch.float32)
    else:
        store = PrefetchOffload(model.model.layers, change(prefetch(placement)), accelerator, torch.float32)
    model.model.layers = store
    weights.shorten_lookups(model)
    return store


@pytest.fixture(scope="module")
def resident() -> dict[int, torch.Tensor]:
    return {layers: logits(build(layers)) for layers in range(2, 8)}


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_logits_are_those_of_the_resident_model(resident, data):
    layers = data.draw(st.integers(2, 7))
    budget = data.draw(st.integers(1, layers - 1))
    slots = data.draw(st.integers(1, min(2, budget)))
    mode = data.draw(st.sampled_from(["naive", "prefetch"]))
    model = build(layers)
    store = offload(model, mode, budget, slots)
    assert torch.equal(logits(model), resident[layers])
    assert torch.equal(logits(model), resident[layers])  # and again, from where the first run ended
    store.accelerator.close()


@pytest.mark.parametrize("mode", ["naive", "prefetch"])
@pytest.mark.parametrize("link_gb_s", [None, 0.05])
def test_mixture_of_experts_with_dense_layers_between(mode, link_gb_s):
    changes = {"num_experts": 6, "decoder_sparse_step": 2}
    expected = logits(build(5, **changes))
    model = build(5, **changes)
    store = offload(model, mode, 2, link_gb_s=link_gb_s)
    assert torch.equal(logits(model), expected)
    store.accelerator.close()


@pytest.mark.parametrize(("budget", "slots"), [(1, 1), (3, 1), (3, 2), (4, 2)])
def test_bytes_copied_a_pass_are_those_of_the_schedule(budget, slots):
    model = build(6)
    store = offload(model, "prefetch", budget, slots)
    a_pass = sum(
        end - begin
        for copy in store.schedule.copies
        for begin, end in [store.layouts[copy.block.layer].ranges[copy.block.part]]
    )
    ahead = sum(store.layouts[index].num_bytes for index in store.placement.streamed[: store.placement.slots])
    logits(model)
    assert store.bytes_copied == a_pass * (1 + STEPS) + ahead
    naive_model = build(6)
    naive_store = offload(naive_model, "naive", budget - slots + 1)
    logits(naive_model)
    assert naive_store.bytes_copied == a_pass * (1 + STEPS)


@pytest.mark.parametrize("mode", ["naive", "prefetch"])
def test_device_memory_is_that_of_the_budget(mode):
    model = build(6)
    size = model.model.layers[0].buffer.numel()
    store = offload(model, mode, 3, capacity=3 * size)
    logits(model)
    assert store.accelerator.peak == 3 * size


@pytest.mark.parametrize("changes", [{}, {"num_experts": 6, "decoder_sparse_step": 2}])
@pytest.mark.parametrize(("mode", "budget"), [("naive", 1), ("naive", 4), ("prefetch", 2), ("naive", 5)])
def test_passing_bytes_are_what_a_pass_takes_and_gives_back(mode, budget, changes):
    model = build(5, **changes)
    store = offload(model, mode, budget)
    used = store.accelerator.used
    store.accelerator.reset_peak()
    logits(model)
    assert store.passing_bytes == store.accelerator.peak - used
    assert (store.passing_bytes > 0) == (mode == "naive" and budget < 5)


def test_nothing_passes_through_a_store_whose_layers_take_turns_in_memory_that_stays():
    model = build(5)
    store = offload(model, "naive", 2)
    largest = store.passing_bytes
    with store.capturing():
        assert (store.passing_bytes, store.accelerator.used) == (0, 2 * largest)
    store.release()
    assert (store.passing_bytes, store.accelerator.used) == (largest, 0)


class StopHere(Exception):  # noqa: N818 - no error, a signal
    pass


@torch.inference_mode()
def stop_inside(store, layer: int, part: str) -> None:
    """A pass that ends with an exception inside a block."""
    for index in range(layer + 1):
        for each in ("attention", "mlp"):
            with store.use(index, each):
                if (index, each) == (layer, part):
                    raise StopHere


@pytest.mark.parametrize("mode", ["naive", "prefetch"])
@pytest.mark.parametrize("part", ["attention", "mlp"])
@pytest.mark.parametrize("layer", range(5))
def test_an_exception_inside_a_block_leaves_the_store_able_to_start_anew(resident, mode, layer, part):
    model = build(5)
    store = offload(model, mode, 2, capacity=2 * model.model.layers[0].buffer.numel())
    used = store.accelerator.used
    with pytest.raises(StopHere):
        stop_inside(store, layer, part)
    assert store.accelerator.used == used
    assert torch.equal(logits(model), resident[5])
    store.accelerator.close()


def test_a_generation_that_stops_early_leaves_the_next_one_alone(resident):
    model = build(5)
    offload(model, "prefetch", 2)
    for steps in range(3):
        logits(model, prompt=[1] * (steps + 1), steps=steps)
        assert torch.equal(logits(model), resident[5])


def test_two_engines_in_one_process(resident):
    one, two = build(5), build(6)
    offload(one, "prefetch", 2)
    offload(two, "prefetch", 3, slots=2)
    for _ in range(2):
        assert torch.equal(logits(one), resident[5])
        assert torch.equal(logits(two), resident[6])


def test_a_pass_begins_at_the_beginning():
    store = offload(build(4), "prefetch", 1)
    with pytest.raises(RuntimeError, match="begins with the first streamed block"), store.use(2, "mlp"):
        pass


# ---- what each dependency is good for ----


def dependencies(budget: int, slots: int):
    schedule = prefetch(place(4, budget, slots))
    return [(step, need) for step, needs in schedule.needs.items() for need in needs]


@pytest.mark.parametrize(("budget", "slots"), [(1, 1), (2, 2), (2, 1)])
def test_without_any_one_dependency_the_logits_are_wrong(resident, budget, slots):
    """A fast link shows a refill that comes too early, a slow one a use that does."""
    for step, need in dependencies(budget, slots):
        right = []
        for link_gb_s in (None, 0.004):  # 0.004: some ten milliseconds a block
            model = build(4)
            change = partial(Schedule.without, step=step, need=need)
            store = offload(model, "prefetch", budget, slots, change, link_gb_s=link_gb_s)
            right.append(torch.equal(logits(model, steps=1), resident[4][:2]))
            store.accelerator.close()
        assert not all(right), (step, need)


def test_naive_and_prefetch_stream_the_same_bytes_when_one_slot_is_used():
    placement = place(6, 3, 1)
    assert naive(placement).copies == prefetch(placement).copies
