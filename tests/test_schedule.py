"""The schedule is correct for every number of layers, budget and slots, also where nothing divides."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minillm.geometry import PARTS
from minillm.schedule import HEAD, Block, Compute, Copy, Schedule, naive, place, prefetch
from minillm.simulate import simulate

PASSES = 3
SECONDS = st.lists(st.integers(0, 9), min_size=26, max_size=26)  # a block; whole, so that sums are exact

settings.register_profile("no deadline", deadline=None)  # a busy machine is no failure
settings.load_profile("no deadline")


@st.composite
def placements(draw, max_layers: int = 12):
    layers = draw(st.integers(2, max_layers))
    budget = draw(st.integers(1, layers - 1))
    return place(layers, budget, draw(st.integers(1, min(2, budget))))


@st.composite
def schedules(draw):
    made = draw(st.sampled_from([naive, prefetch]))
    return made(draw(placements()))


# ---- placement ----


@given(placements(40))
def test_budget_is_held_and_every_layer_is_somewhere(placement):
    assert sorted(placement.resident + placement.streamed) == list(range(placement.layers))
    assert placement.on_device < placement.layers


@given(st.integers(2, 40), st.integers(1, 39), st.integers(1, 2))
def test_exactly_the_budget_is_used(layers, budget, slots):
    if slots > budget:
        with pytest.raises(ValueError, match=f"{slots} slots in a budget of {budget}"):
            place(layers, budget, slots)
    elif budget >= layers:
        assert place(layers, budget, slots).streamed == ()
    else:
        placement = place(layers, budget, slots)
        assert placement.on_device == budget
        assert placement.slots in (slots, 1)


@given(placements(40))
def test_residents_are_spread_evenly(placement):
    """Of any two stretches of equal length, cyclic, one holds at most one streamed layer more."""
    streams = [layer in placement.streamed for layer in range(placement.layers)] * 2
    for length in range(1, placement.layers):
        counts = {sum(streams[begin : begin + length]) for begin in range(placement.layers)}
        assert max(counts) - min(counts) <= 1


def test_placement_on_paper():
    assert place(4, 2, 1).streamed == (1, 2, 3)
    assert place(8, 5, 1).streamed == (1, 3, 5, 7)
    assert [place(8, 5, 2).slot_of(layer) for layer in range(8)] == [None, 0, None, 1, 0, None, 1, 0]


# ---- order ----


@given(schedules())
def test_every_streamed_block_is_copied_once_and_every_block_computed_once(schedule):
    streamed = [Block(layer, part) for layer in schedule.placement.streamed for part in PARTS]
    assert [copy.block for copy in schedule.copies] == streamed
    blocks = [Block(layer, part) for layer in range(schedule.placement.layers) for part in PARTS]
    assert [c.block for c in schedule.computes] == [*blocks, Block(schedule.placement.layers, HEAD)]


def faults(schedule: Schedule, copy_s, compute_s) -> list[str]:
    """What goes wrong in a run: blocks used before they are there or after they are overwritten."""
    events = simulate(schedule, copy_s, compute_s, PASSES).events
    held: dict[tuple[int, str], list] = {}  # for each half of a slot, what lies there from when on
    for event in sorted((e for e in events if isinstance(e.step, Copy)), key=lambda e: (e.number, e.begin)):
        held.setdefault((event.step.slot, event.step.block.part), []).append(event)
    found = []
    for event in events:
        if isinstance(event.step, Copy) or event.step.slot is None:
            continue
        fills = held[event.step.slot, event.step.block.part]
        own = [f for f in fills if (f.step.block, f.number) == (event.step.block, event.number)]
        later = [f for f in fills if (f.number, f.step.block) > (event.number, event.step.block)]
        if not own or own[0].end > event.begin:
            found.append(f"{event.step} of pass {event.number} begins before its copy is done")
        if any(f.begin < event.end for f in later):
            found.append(f"{event.step} of pass {event.number} is overwritten at work")
    return found


@given(
    schedules(),
    st.lists(st.integers(1, 9), min_size=26, max_size=26),
    st.lists(st.integers(1, 9), min_size=26, max_size=26),
)
def test_no_block_is_used_before_it_is_there_nor_overwritten_at_work(schedule, copies, computes):
    assert faults(schedule, *durations(schedule, copies, computes)) == []


def durations(schedule, copies, computes):
    index = {compute.block: number for number, compute in enumerate(schedule.computes)}
    return (lambda block: copies[index[block]]), (lambda block, _: computes[index[block]])


@given(placements(7))
def test_each_dependency_is_needed(placement):
    """Without it there are durations at which a block is used too early or overwritten at work."""
    schedule = prefetch(placement)
    slow_copy = (lambda _: 100), (lambda *_: 1)
    slow_compute = (lambda _: 1), (lambda *_: 100)
    for step, needs in schedule.needs.items():
        for need in needs:
            broken = schedule.without(step, need)
            fails = any(faults(broken, *pair) for pair in (slow_copy, slow_compute))
            assert fails != still_implied(broken, step, need), (step, need)


def still_implied(schedule: Schedule, step, need) -> bool:
    """Whether queue order and the other needs alone put `need` before `step`, in the last of some passes."""
    before: dict = {}
    for steps in (schedule.copies, schedule.computes):
        queue = [(each, number) for number in range(PASSES) for each in steps]
        for earlier, later in pairwise(queue):
            before.setdefault(later, []).append(earlier)
    for each, needs in schedule.needs.items():
        for number in range(PASSES):
            before.setdefault((each, number), []).extend((n.step, number - n.passes_ago) for n in needs)
    reached, open_ends = set(), [(step, PASSES - 1)]
    while open_ends:
        at = open_ends.pop()
        if at not in reached:
            reached.add(at)
            open_ends += before.get(at, [])
    return (need.step, PASSES - 1 - need.passes_ago) in reached


@given(schedules())
def test_copies_are_issued_in_order_and_never_before_what_they_need(schedule):
    place_of = {compute: number for number, compute in enumerate(schedule.computes)}
    size, order = len(place_of), []
    for number in range(PASSES):
        for compute in schedule.computes:
            for copy, ahead in schedule.issued_after().get(compute, ()):
                now = number * size + place_of[compute]
                for need in schedule.needs[copy]:
                    assert (number + ahead - need.passes_ago) * size + place_of[need.step] <= now
                order.append((number + ahead, copy))
    expected = [(number, copy) for number in range(PASSES) for copy in schedule.copies]
    begin = expected.index(order[0])
    assert order[: len(expected) - begin] == expected[begin:]
    assert all(
        number == 0 for number, _ in expected[:begin]
    )  # those before are for the first pass: the prologue


# ---- time ----


def test_naive_is_a_sum():
    schedule = naive(place(6, 3, 1))
    timeline = simulate(schedule, lambda _: 5, lambda *_: 2)
    assert timeline.seconds_a_pass == 8 * 5 + 13 * 2  # 4 layers streamed, 12 blocks and the head


@pytest.mark.parametrize("slots", [1, 2])
def test_prefetch_is_as_fast_as_the_link_where_copying_is_the_bottleneck(slots):
    placement = place(6, 3, slots)
    timeline = simulate(prefetch(placement), lambda _: 5, lambda *_: 1)
    assert timeline.seconds_a_pass == 5 * 2 * len(placement.streamed)


def test_two_slots_hide_all_copies_where_computing_is_the_bottleneck():
    timeline = simulate(prefetch(place(6, 4, 2)), lambda _: 3, lambda *_: 9)
    assert timeline.seconds_a_pass == 13 * 9


@given(
    placements(),
    st.lists(st.integers(0, 9), min_size=26, max_size=26),
    st.lists(st.integers(0, 9), min_size=26, max_size=26),
)
def test_no_pass_is_faster_than_link_or_device_nor_slower_than_naive(placement, copies, computes):
    schedule = prefetch(placement)
    copy_s, compute_s = durations(schedule, copies, computes)
    link = sum(copy_s(copy.block) for copy in schedule.copies)
    device = sum(compute_s(compute.block, 0) for compute in schedule.computes)
    seconds = simulate(schedule, copy_s, compute_s, passes=8).seconds_a_pass
    assert max(link, device) <= seconds <= link + device
    assert simulate(naive(placement), copy_s, compute_s).seconds_a_pass == link + device


def test_steps_that_wait_for_each_other_are_an_error():
    schedule = prefetch(place(2, 1, 1))
    first = schedule.copies[0]
    turned = Schedule(schedule.placement, schedule.computes[::-1], schedule.copies, schedule.needs)
    with pytest.raises(RuntimeError, match="wait for each other"):
        simulate(turned, lambda _: 1, lambda *_: 1)
    assert Compute(first.block, first.slot) in schedule.needs
