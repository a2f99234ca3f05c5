"""Notebook 08: naive offloading: its time, its store, its store after an error, what it locks."""

import math

from checks import toy_stores as stores
from checks.exercise import Exercise
from checks.toy_stores import ToyStore

__all__ = ["ToyStore", "locked", "repaired", "some_stay", "token_ms"]

# ---- milliseconds a token ----


def _streamed(layers, budget):
    return 0 if budget >= layers else layers - (budget - 1)


def _token_ms(layers, budget, layer, head, link, device, streamed=_streamed, computed=None):
    """`computed`: GB that are read from the device's memory."""
    read = layers * layer + head if computed is None else computed
    return 1e3 * (streamed(layers, budget) * layer / link + read / device)


def _larger(layers, budget, layer, head, link, device):
    copying = _streamed(layers, budget) * layer / link
    return 1e3 * max(copying, (layers * layer + head) / device)


token_ms = Exercise(
    "milliseconds a token",
    _token_ms,
    (
        (36, 14, 0.386, 1.24, 31.5, 448.0),
        (8, 1, 0.5, 0.2, 10.0, 40.0),
        (8, 7, 0.5, 0.2, 10.0, 40.0),
        (8, 8, 0.5, 0.2, 10.0, 40.0),
        (8, 10, 0.5, 0.2, 10.0, 40.0),
    ),
    {
        "One place of the budget is where the others take turns, so budget − 1 layers stay. With a budget "
        "larger than the model your number of copies is negative.": (
            lambda *case: _token_ms(*case, streamed=lambda layers, budget: layers - budget)
        ),
        "It is right as long as something is streamed. If the budget holds all layers, nobody needs a place "
        "to take turns in, and your number of copies is one, or even negative.": (
            lambda *case: _token_ms(*case, streamed=lambda layers, budget: layers - budget + 1)
        ),
        "The slot takes a place of the budget, so one layer more is streamed, not one less; and never less "
        "than none.": (lambda *case: _token_ms(*case, streamed=lambda layers, budget: layers - budget - 1)),
        "That streams every layer. As many as the budget has places stay, all but the one whose place is the "
        "slot.": (lambda *case: _token_ms(*case, streamed=lambda layers, budget: layers)),
        "All layers are computed, also those that were just copied: computing reads every layer from "
        "the device's memory, not only as many as the budget holds.": (
            lambda layers, budget, layer, head, link, device: _token_ms(
                layers, budget, layer, head, link, device, computed=budget * layer + head
            )
        ),
        "All layers are computed, so all are read from the device's memory, not only the budget − 1 that "
        "stay.": (
            lambda layers, budget, layer, head, link, device: _token_ms(
                layers, budget, layer, head, link, device, computed=(budget - 1) * layer + head
            )
        ),
        "One place of the budget is where the others take turns: budget − 1 layers stay.": (
            lambda *case: _token_ms(*case, streamed=lambda layers, budget: max(0, layers - budget))
        ),
        "The slot takes a place of the budget, so one layer more is streamed, not one less.": (
            lambda *case: _token_ms(*case, streamed=lambda layers, budget: max(0, layers - budget - 1))
        ),
        "It is right as long as something is streamed. If the budget holds all layers, nobody needs a place "
        "to take turns in.": (
            lambda *case: _token_ms(*case, streamed=lambda layers, budget: max(0, layers - budget + 1))
        ),
        "It is right up to a budget of exactly all layers; a larger one gives a negative number of copies, "
        "or one copy too many.": (
            lambda *case: _token_ms(
                *case,
                streamed=lambda layers, budget: 0 if budget == layers else layers - budget + 1,
            )
        ),
        "That is the larger of the two times. This loop does one thing at a time, so they add up.": _larger,
        "That is copying alone. Computing takes time, too.": lambda *case: _token_ms(*case, computed=0),
        "Computing reads the head, too.": (
            lambda layers, budget, layer, head, link, device: _token_ms(
                layers, budget, layer, head, link, device, computed=layers * layer
            )
        ),
        "Computing reads every layer from the device's memory, also one that has just been copied there.": (
            lambda layers, budget, layer, head, link, device: _token_ms(
                layers,
                budget,
                layer,
                head,
                link,
                device,
                computed=(layers - _streamed(layers, budget)) * layer + head,
            )
        ),
        "A resident layer is not copied, but it is computed: computing reads all layers.": (
            lambda layers, budget, layer, head, link, device: _token_ms(
                layers, budget, layer, head, link, device, computed=_streamed(layers, budget) * layer + head
            )
        ),
        "The head stays on the device; it is read there, and not copied.": (
            lambda layers, budget, layer, head, link, device: (
                _token_ms(layers, budget, layer, head, link, device) + 1e3 * head / link
            )
        ),
        "These are seconds; milliseconds are asked for.": lambda *case: _token_ms(*case) / 1e3,
        "These are tokens a second; milliseconds a token are asked for.": (
            lambda *case: 1e3 / _token_ms(*case)
        ),
        "Copying goes at the speed of the link, computing at that of the device's memory, not the other way "
        "round.": (
            lambda layers, budget, layer, head, link, device: _token_ms(
                layers, budget, layer, head, device, link
            )
        ),
    },
)

# ---- stores ----

NO_CONTEXT_MANAGER = {
    stores.NOT_DECORATED: stores.Undecorated,
    stores.NO_MANAGER: stores.NoManager,
    stores.NO_YIELD: stores.Returns,
    "You yield what the block computes. Yield the block itself, without calling it; its caller calls "
    "it.": stores.Computes,
}

some_stay = Exercise(
    "some layers stay",
    stores.SomeStay,
    ((5, {1, 3}), (4, {0, 3}), (3, set()), (3, {0, 1, 2})),
    {
        "Every layer is brought, also those that are on the device already.": stores.BringsAll,
        "A resident layer leaves after its MLP block: the next pass will not find it.": stores.DismissesAll,
        "The layer is gone when its MLP block is computed: it leaves after the attention block, or "
        "before the MLP block is handed out.": stores.LeavesEarly,
        "The layer is brought again for its MLP block: twice the bytes over the link.": stores.BringsTwice,
        "No layer ever leaves: the device has room for one beside the resident ones.": stores.NeverLeaves,
        "The block is handed out before its layer is there: what stands after the `yield` happens when the "
        "caller has computed already.": stores.BringsLate,
        "Resident and streamed are mixed up: you bring the layers that are there, and not the others.": (
            stores.Reversed
        ),
    }
    | NO_CONTEXT_MANAGER,
    run=stores.two_passes,
)

repaired = Exercise(
    "repaired store",
    stores.Guarded,
    ((4, 1, "attention"), (4, 2, "mlp"), (3, 0, "attention"), (3, 2, "mlp")),
    {
        "When a block raises an error, `yield` raises it, too, and the lines after it never run: the layer "
        "stays on the device for good.": stores.Leaky,
        "`finally` runs after every block, also when nothing went wrong: the layer leaves before its MLP "
        "block.": stores.FinallyAlways,
        "After an error in an MLP block it works. The attention block can fail, too, and then no MLP block "
        "follows that would clear up.": stores.FinallyMlp,
        "The memory is free again, but the error is gone: the caller must learn of it, or a broken-off pass "
        "looks like a finished one.": stores.Swallows,
        "Ctrl-C raises KeyboardInterrupt, and that is no Exception: your store clears up after errors, not "
        "after Ctrl-C.": stores.ExceptionsOnly,
        "The error ends in your store: the caller never learns of it, and the layer is still there.": (
            stores.CatchesOnly
        ),
    }
    | NO_CONTEXT_MANAGER,
    run=stores.broken_off,
)

# ---- what is locked ----


def _powers(sizes, exact=True):
    return sum(1 << (size - 1 if exact else size).bit_length() for size in sizes)


def _arena(sizes, align=256):
    end = 0
    for size in sizes:
        end = -(-end // align) * align + size
    return end


locked = Exercise(
    "locked bytes",
    lambda sizes: (_powers(sizes), _arena(sizes)),
    (
        ([300, 300],),
        ([256, 512, 100],),
        ([1, 257, 4096, 5000],),
        ([385_892_864, 1_244_659_712],),
        ([77],),
        ([2**29, 2**31],),
    ),
    {
        "A size that is a power of two already stays as it is.": (
            lambda sizes: (_powers(sizes, exact=False), _arena(sizes))
        ),
        "`math.log(size, 2)` is rounded: for 2**29 it is a little more than 29, and the next whole number is "
        "30. Count with whole numbers.": lambda sizes: (
            sum(2 ** math.ceil(math.log(size, 2)) for size in sizes),
            _arena(sizes),
        ),
        "Each piece is rounded by itself, not their sum.": (
            lambda sizes: (_powers([sum(sizes)]), _arena(sizes))
        ),
        "The first number is right. In the arena every piece starts at a multiple of 256.": (
            lambda sizes: (_powers(sizes), sum(sizes))
        ),
        "The first number is right. The arena ends where its last piece ends; no further piece needs a start "
        "there.": lambda sizes: (_powers(sizes), sum(-(-size // 256) * 256 for size in sizes)),
        "The first number is right. The pieces are not padded to a power of two in the arena.": (
            lambda sizes: (_powers(sizes), _powers(sizes))
        ),
        "The first number is right. Where an end is a multiple of 256, the next piece starts right there, "
        "and not 256 bytes later.": lambda sizes: (_powers(sizes), _always_on(sizes)),
        "Two numbers, in this order: each piece by itself, then the arena.": (
            lambda sizes: (_arena(sizes), _powers(sizes))
        ),
    },
)


def _always_on(sizes):
    end = 0
    for number, size in enumerate(sizes):
        end = (end // 256 + 1) * 256 * (number > 0) + size
    return end
