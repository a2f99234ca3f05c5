"""Notebook 11: the knee, the largest budget, a pipeline, sweeps that do not fit their forecast."""

from collections.abc import Callable
from math import ceil, floor

from checks import toy_queues as queues
from checks import toy_sweeps as sweeps
from checks.exercise import Exercise
from checks.toy_sweeps import budgets, forecast, largest, measured
from checks.verdicts import exchanged, judging

__all__ = ["budgets", "forecast", "knee", "largest_budget", "measured", "pipeline", "verdicts"]


def _whole(answer: Callable, *case: float) -> int | str:
    """Budgets are whole numbers: 14.0 is told apart from 14."""
    given = answer(*case)
    wrong = isinstance(given, float)
    return f"It gave {given!r}: a budget is a whole number of type int." if wrong else given


# ---- the knee ----

knee = Exercise(
    "the knee",
    sweeps.knee,
    (
        (36, 1, 386e6, 1245e6, 31.5, 448.0),
        (36, 2, 386e6, 1245e6, 31.5, 448.0),
        (40, 1, 600e6, 2400e6, 55.0, 300.0),
        (64, 2, 900e6, 1500e6, 55.0, 600.0),
        (24, 1, 400e6, 1000e6, 4.0, 900.0),
        (12, 1, 2.0**30, 4 * 2.0**30, 8.0, 64.0),  # at its knee both take the same time
        (10, 2, 1e9, 1e9, 200.0, 100.0),  # at any budget the link is fast enough
    ),
    {
        "A slot is part of the budget, and its layer stays for a moment only: with a budget N and S slots, "
        "N − S layers stay. How many stream?": sweeps.knee_without_slots,
        "The slots hold layers that stream: they do not stay. Fewer layers stay than N, so more stream.": (
            sweeps.knee_slots_stay
        ),
        "The head is read for each token, too: it is part of the computing time.": sweeps.knee_without_head,
        "Layers that stream are computed as well, and read then from the device's own memory: the computing "
        "time is the same at each budget.": sweeps.knee_residents_only,
        "All layers are computed, not only those that stream, and the head after them.": (
            sweeps.knee_streamed_only
        ),
        "Which bytes go over which road? Streamed layers over the link, all that is read over the device's "
        "memory.": sweeps.knee_turned,
        "That is how many layers stream there. Asked for is the budget.": sweeps.knee_as_streamed,
        "That is how many layers stay there. The slots are part of the budget.": sweeps.knee_as_residents,
        '"No longer" means that it may take just as long. In one case both take the same time.': (
            sweeps.knee_shorter
        ),
        "A budget of 1 with two slots? The slots are part of the budget: begin at N = `slots`.": (
            sweeps.knee_from_one
        ),
        "A budget of 0? The slots are part of the budget: begin at N = `slots`.": sweeps.knee_from_zero,
        "Where the link is fast, your answer is less than `slots`. The slots are part of the budget.": (
            sweeps.knee_below
        ),
        "Your answers leave both ends: a budget lies between `slots` and the model's layers.": (
            sweeps.knee_unbounded
        ),
        "One too few: at that budget copying still takes longer than computing.": sweeps.knee_last_before,
        "The nearest whole number can be one too few: there, copying still takes longer.": (
            sweeps.knee_rounded
        ),
        "There are budgets beyond the model's layers among your answers. With all layers on the device "
        "nothing streams at all, so that budget is always enough.": sweeps.knee_beyond,
        "With the slowest link your answer is None. With all layers on the device nothing streams, and no "
        "slot is needed: that budget is always enough.": sweeps.knee_none,
        "A budget is a whole number of layers: the first one at which copying no longer takes longer.": (
            sweeps.knee_between
        ),
    },
    _whole,
)

# ---- the largest budget ----

largest_budget = Exercise(
    "the largest budget",
    largest,
    (
        (7.2, 36, 386e6, 1245e6, 147456, 4096),
        (5.0, 36, 386e6, 1245e6, 147456, 1024),
        (12.0, 36, 386e6, 1245e6, 147456, 32768),
        (24.0, 36, 386e6, 1245e6, 147456, 4096),
        (2.0, 36, 386e6, 1245e6, 147456, 16384),
        (3.0, 8, 300e6, 500e6, 50000, 6000),
    ),
    {
        "GiB are 2³⁰ bytes, not 10⁹: you lose seven percent of the memory.": (
            lambda *case: largest(*case, unit=sweeps.GB)
        ),
        "The KV cache takes memory, too: `kv_bytes` for each of the `tokens`.": (
            lambda *case: largest(*case, kv_share=0.0)
        ),
        "The KV cache counts too often: `kv_bytes` is for one token in all layers.": (
            lambda *case: largest(*case, kv_share=case[1])
        ),
        "The KV cache is there once: `kv_bytes` counts all layers together. You take room for all of it "
        "beside each layer.": (lambda *case: largest(*case, kv_share=0.0, kv_in_layer=1.0)),
        "Of the cache you take a layer's part for each layer on the device. The cache of all layers lies "
        "on the device, that of streamed layers, too.": (
            lambda *case: largest(*case, kv_share=0.0, kv_in_layer=1 / case[1])
        ),
        "The head lies on the device, too.": lambda *case: largest(*case, head_share=0.0),
        "Without the slot? N counts all layers' worth of weights on the device, slots included.": (
            lambda *case: largest(*case, slots=1)
        ),
        "Rounded to the nearest, one layer too many can be in there: it has to fit as a whole.": (
            lambda *case: largest(*case, rounded=round)
        ),
        "Rounded up, the last layer does not fit as a whole.": lambda *case: largest(*case, rounded=ceil),
        "A budget is a whole number of layers, without a fraction.": (
            lambda *case: largest(*case, rounded=float)
        ),
        "`//` between numbers with a point gives a number with a point, as 14.0. A budget is a whole number, "
        "14: `int(…)` makes one.": lambda *case: float(largest(*case)),
        "More layers than the model has: there is nothing to put there.": (
            lambda *case: largest(*case, capped=False)
        ),
        "Where not even one layer fits, the answer is 0; yours is negative.": (
            lambda *case: largest(*case, rounded=floor, least=None)
        ),
        "Where not even one layer fits, the answer is 0. Yours is negative, cut towards zero by `int`.": (
            lambda *case: largest(*case, least=None)
        ),
        "Where not even one layer fits, the answer is 0, not 1: that layer would not fit.": (
            lambda *case: largest(*case, least=1)
        ),
        "At least 0 and at most the model's layers: your answers leave both ends.": (
            lambda *case: largest(*case, rounded=floor, least=None, capped=False)
        ),
        "Your answers leave both ends: more layers than the model has, and fewer than none.": (
            lambda *case: largest(*case, least=None, capped=False)
        ),
    },
    _whole,
)

# ---- a pipeline ----

pipeline = Exercise(
    "pipeline",
    queues.right,
    (
        ([4.0, 4.0, 4.0], [1.0, 1.0, 1.0], 1),
        ([2.0], [3.0], 1),
        ([1.0, 2.0, 3.0, 1.0], [5.0, 1.0, 2.0, 4.0], 2),
        ([3.0, 1.0, 4.0, 1.0, 5.0, 2.0], [2.0, 7.0, 1.0, 8.0, 2.0, 1.0], 3),
        ([1.0, 1.0, 1.0, 1.0, 6.0], [5.0, 5.0, 5.0, 5.0, 5.0], 2),
        ([4.0, 4.0, 4.0, 4.0], [1.0, 1.0, 1.0, 1.0], 2),
        ([1.0, 1.0, 6.0, 1.0], [5.0, 1.0, 1.0, 5.0], 1),
    ),
    {
        "Your copies never wait for a slot. With `slots` = 1, the second block has nowhere to go until the "
        "first has been computed.": queues.no_slots,
        "Your slots are free too early. Block i goes into the slot of block i − slots, and not before that "
        "block has been computed: while it is, its weights are read.": queues.one_slot_more,
        "One slot too few: block i goes into the slot that block i − slots has left.": queues.one_slot_less,
        "The link carries one copy at a time: a copy also waits for the one before.": queues.copies_at_once,
        "The device computes one block at a time: a block also waits for the one before.": (
            queues.computes_at_once
        ),
        "That is the naive sum, whatever `slots` is. Right for one slot, since here it holds one block. With "
        "more of them a block is copied while another one is computed: do you use `slots`?": queues.added,
        "The larger of the two sums is the limit of a long run. Here the first block has to come before "
        "anything can be computed, and slots are few.": queues.larger,
        "Block by block the larger one? Copy and computing of one and the same block never overlap.": (
            queues.larger_of_each
        ),
        "That is lock step: each copy begins with a computing. A copy begins as soon as link and slot are "
        "free.": queues.first_copy_then_larger,
        "The last block has arrived by then. It has to be computed as well.": queues.last_copy,
    },
)

# ---- sweeps that do not fit their forecast ----

verdicts = judging(
    "five sweeps",
    sweeps.FAULTS,
    sweeps.EXPERIMENTS,
    {
        "All the same? One of them fits its forecast, and four miss it for different reasons.": (
            lambda: dict.fromkeys("ABCDE", "none")
        ),
        "B and C are exchanged. A slow link shows where copying sets the speed; slow computing shows where "
        "computing does.": exchanged(sweeps.FAULTS, "B", "C"),
        "A and C are exchanged. Both are slower at small budgets. A slow link loses the same share at each "
        "of them; one more slot loses one layer, which is a growing share. And is the very first "
        "budget slower? It has no room for a second slot.": exchanged(sweeps.FAULTS, "A", "C"),
        "B and E are exchanged. Naive copying is slower at every budget at which anything streams; slow "
        "computing leaves small budgets as they are.": exchanged(sweeps.FAULTS, "B", "E"),
        "C and E are exchanged. In both, the small budgets are slower. Look at the seconds that are lost: a "
        "share of the copying, or the same time at each budget?": exchanged(sweeps.FAULTS, "C", "E"),
        "A and E are exchanged. In both, more streams for longer. Look at the seconds that are lost: one "
        "layer's copy, or all of the computing?": exchanged(sweeps.FAULTS, "A", "E"),
    },
)  # fmt: skip
