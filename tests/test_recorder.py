"""Recorded runs on the emulated device: every step once a pass, in an order that respects what it needs."""

from collections import Counter

import pytest

from minillm import LLM, SamplingParams
from minillm.errors import RunError
from minillm.schedule import HEAD, Copy, naive, prefetch

NEW, LAYERS = 4, 5
LINK_GB_S = 0.02


@pytest.fixture
def folder(make_checkpoint):
    return make_checkpoint(num_hidden_layers=LAYERS)[0]


def recorded(folder, offload: str, budget: int, slots=None):
    options = {"offload": offload, "gpu_layer_budget": budget, "slots": slots, "link_gb_s": LINK_GB_S}
    with LLM(folder, device="cpu", **options) as llm:
        llm.generate([1, 2, 3], SamplingParams(max_tokens=2, ignore_eos=True))  # leaves copies under way
        with llm.recording() as recorder:
            llm.generate([4, 5], SamplingParams(max_tokens=NEW, ignore_eos=True))
        placement, store = llm.decision.placement, llm.model.model.layers
        sizes = {part: end - begin for part, (begin, end) in store.layouts[0].ranges.items()}
        return recorder.timeline, (naive if offload == "naive" else prefetch)(placement), sizes


@pytest.mark.parametrize(
    ("offload", "budget", "slots"),
    [("naive", 1, None), ("naive", 3, None), ("prefetch", 1, 1), ("prefetch", 3, 1), ("prefetch", 3, 2)],
)
def test_steps_and_their_order_are_those_of_the_schedule(folder, offload, budget, slots):
    timeline, schedule, _ = recorded(folder, offload, budget, slots)
    assert timeline.passes == NEW
    seen = Counter(event.step for event in timeline.events)
    assert all(seen[compute] == NEW for compute in schedule.computes)
    ahead = seen.total() - NEW * (len(schedule.computes) + len(schedule.copies))
    assert ahead == (0 if offload == "naive" else 2 * schedule.placement.slots)  # for a pass that never came
    at = {(event.step, event.number): event for event in timeline.events}
    for step, needs in schedule.needs.items():
        for number in range(NEW):
            for need in needs:
                earlier = at.get((need.step, number - need.passes_ago))
                assert earlier is None or earlier.end <= at[step, number].begin + 1e-4
    assert all(event.begin <= event.end for event in timeline.events)


def test_a_copy_takes_what_the_link_needs_and_passes_end_with_the_head(folder):
    timeline, _, sizes = recorded(folder, "prefetch", 2)
    for event in timeline.events:
        if isinstance(event.step, Copy):
            assert event.end - event.begin >= sizes[event.step.block.part] / (LINK_GB_S * 1e9)
    last = max(timeline.events, key=lambda event: (not isinstance(event.step, Copy), event.end))
    assert last.step.block.part == HEAD
    assert timeline.pass_end(NEW - 1) == last.end


def test_recording_ends_with_its_context_also_by_an_exception(folder):
    with LLM(folder, device="cpu", gpu_layer_budget=2) as llm:
        with pytest.raises(ZeroDivisionError), llm.recording():
            raise ZeroDivisionError
        with llm.recording() as recorder:
            pass
        llm.generate([1], SamplingParams(max_tokens=2))
        assert recorder.timeline.events == ()


def test_a_recording_inside_a_recording_is_refused_and_the_outer_one_goes_on(folder):
    with LLM(folder, device="cpu", gpu_layer_budget=2) as llm:
        with llm.recording() as outer:
            with pytest.raises(RunError, match="being recorded already"), llm.recording():
                pass
            llm.generate([1], SamplingParams(max_tokens=2))
        assert outer.timeline.passes == 2
        with llm.recording():
            pass
