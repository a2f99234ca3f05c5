"""Notebook 12: plans from geometry, the line of all sizes, what to buy."""

from collections.abc import Callable
from itertools import combinations

from checks.exercise import Exercise

# ---- the line through two points ----

POINTS = (
    ((20_000_000, 0.05), (900_000_000, 1.81)),
    ((5_000_000_000, 0.1), (60_000_000_000, 1.09)),
    ((1_000_000, 0.004), (3_000_000, 0.007)),
)


def _line(small, large):
    slope = (large[1] - small[1]) / (large[0] - small[0])
    return small[1] - small[0] * slope, 1 / slope / 1e9


fixed_and_link = Exercise(
    "fixed time and link",
    _line,
    POINTS,
    {
        "That is the link of one measurement, fixed time included. Two differences leave the fixed time out: "
        "of the seconds, and of the bytes.": (
            lambda small, large: (small[1] - small[0] * large[1] / large[0], large[0] / large[1] / 1e9)
        ),
        "The fixed time is not zero: it is what is left of a measurement without the time of its bytes.": (
            lambda small, large: (0.0, _line(small, large)[1])
        ),
        "The fixed time is not zero, and the link of one measurement has it in. Two differences leave it "
        "out: of the seconds, and of the bytes.": (lambda small, large: (0.0, large[0] / large[1] / 1e9)),
        "The link is right. For the fixed time you divide bytes by GB/s: that is 10^9 times too much.": (
            lambda small, large: (small[1] - small[0] / _line(small, large)[1], _line(small, large)[1])
        ),
        "The link is right. The small model's time is not all fixed: its bytes take time, too.": (
            lambda small, large: (small[1], _line(small, large)[1])
        ),
        "The pair is the other way round: first the fixed seconds, then the link.": (
            lambda small, large: _line(small, large)[::-1]
        ),
        "The fixed time is right. The second number is in bytes a second; GB/s are asked for.": (
            lambda small, large: (_line(small, large)[0], 1e9 * _line(small, large)[1])
        ),
        "The fixed time is right. GB are 10^9 bytes; 2^30 is a GiB.": (
            lambda small, large: (_line(small, large)[0], _line(small, large)[1] * 1e9 / 2**30)
        ),
        "The fixed time is right. The second number is seconds a GB: the link is its inverse.": (
            lambda small, large: (_line(small, large)[0], 1 / _line(small, large)[1])
        ),
        "Two models do not stream one after the other: their difference tells, not their sum.": (
            lambda small, large: (
                small[1] - small[0] * (small[1] + large[1]) / (small[0] + large[0]),
                (small[0] + large[0]) / (small[1] + large[1]) / 1e9,
            )
        ),
    },
)

# ---- the longest context ----


def _context(free, other, kv_per_token, layer, budget, slots=0, rounded=lambda x: x // 1, least=0):
    tokens = rounded((free - other - (budget + slots) * layer) / kv_per_token)
    return max(least, int(tokens))


longest_context = Exercise(
    "longest context",
    _context,
    (
        (1000, 100, 7, 200, 2),
        (7_730_000_000, 1_860_000_000, 262_144, 975_200_000, 3),
        (1000, 100, 7, 200, 4),
        (1000, 100, 7, 200, 5),
    ),
    {
        "The slot is one of the `budget` layers; you count it once more.": (
            lambda *case: _context(*case, slots=1)
        ),
        "The slot takes room on the card, too: all `budget` layers count.": (
            lambda *case: _context(*case, slots=-1)
        ),
        "A token that fits only in part does not fit: round down.": (
            lambda *case: _context(*case, rounded=lambda x: -(-x // 1))
        ),
        "`int` rounds; a whole number of tokens is what fits, so round down.": (
            lambda *case: _context(*case, rounded=round)
        ),
        "A context of less than no token: where the layers alone are too much, return 0.": (
            lambda *case: _context(*case, least=-(10**18))
        ),
        "You take one layer off. The card has to hold `budget` of them.": (
            lambda free, other, kv_per_token, layer, budget: _context(free, other, kv_per_token, layer, 1)
        ),
        "What about head and workspace?": lambda free, other, *rest: _context(free, 0, *rest),
        "That is a number with a fraction. Tokens are whole: `//` divides and rounds down.": (
            lambda free, other, kv_per_token, layer, budget: max(
                0.0, (free - other - budget * layer) / kv_per_token
            )
        ),
        "Those are bytes. How many tokens are that?": (
            lambda free, other, kv_per_token, layer, budget: max(0, free - other - budget * layer)
        ),
    },
)

# ---- link or memory ----


def _buy(streamed, more, link, host, capped=True, old_capped=True, left=lambda x: max(0, x)):
    with_link = streamed / (min(2 * link, host) if capped else 2 * link)
    with_memory = left(streamed - more) / (min(link, host) if old_capped else link)
    return _verdict(with_link, with_memory)


def _verdict(with_link, with_memory):
    if with_link == with_memory:
        return "equal"
    return "link" if with_link < with_memory else "memory"


def _never_equal(instead, **settings):
    def answer(*case):
        return instead if _buy(*case, **settings) == "equal" else _buy(*case, **settings)

    return answer


better_buy = Exercise(
    "link or memory",
    _buy,
    (
        (8, 7, 32, 100),
        (22, 8, 32, 100),
        (22, 8, 32, 40),
        (16, 8, 32, 64),
        (16, 9, 32, 64),
        (16, 4, 32, 40),
        (4, 9, 32, 100),
        (20, 11, 50, 40),
        (20, 0, 50, 40),
    ),
    {
        "The new link cannot be faster than the main memory that it reads.": (
            lambda *case: _buy(*case, capped=False)
        ),
        "The old link is no faster than main memory, either; both of your times need that limit.": (
            lambda *case: _buy(*case, old_capped=False)
        ),
        "No link is faster than main memory: `host` does not count in your answer.": (
            lambda *case: _buy(*case, capped=False, old_capped=False)
        ),
        "That is the rule for a link that really doubles. Here main memory may hold it back, and both may "
        "give the same time.": (
            lambda streamed, more, link, host: "memory" if 2 * more > streamed else "link"
        ),
        "It is the other way round. Compare times: the shorter one wins.": (
            lambda *case: {"link": "memory", "memory": "link", "equal": "equal"}[_buy(*case)]
        ),
        "Both may give the same time: then it is 'equal', not 'link'.": _never_equal("link"),
        "Both may give the same time: then it is 'equal', not 'memory'.": _never_equal("memory"),
        "Two things: no link is faster than main memory, and times that are the same are 'equal', not "
        "'memory'.": _never_equal("memory", capped=False, old_capped=False),
        "Half of the stream is enough for memory to win against twice the link, not all of it.": (
            lambda streamed, more, link, host: _verdict(more, streamed)
        ),
        "More bytes are no better by themselves: what streams is what counts, before and after.": (
            lambda streamed, more, link, host: _verdict(streamed / link, more / link)
        ),
    },
)

# ---- a plan with faults ----

PLAN_FAULTS = {
    "gib": "The card is given in GiB and everything else in GB; one GiB is 1.074 GB.",
    "kv": "Keys and values lie on the card, too.",
    "slot": "One place on the card is the slot: nothing stays there.",
}


def _plan(layers, layer_gb, head_gb, kv_gb, card_gib, link_gb_s, faults=(), slot=1, rounded=int):
    card = card_gib if "gib" in faults else card_gib * 2**30 / 1e9
    room = card - head_gb - (0 if "kv" in faults else kv_gb)
    resident = rounded(room / layer_gb) - (0 if "slot" in faults else slot)
    return link_gb_s / ((layers - resident) * layer_gb)


def _left(faults: tuple[str, ...]) -> Callable:
    return lambda *case: _plan(*case, faults=faults)


repaired_plan = Exercise(
    "repaired plan",
    _plan,
    (
        (64, 0.9752, 1.5559, 1.0737, 7.2, 31.5),
        (40, 0.6606, 1.5559, 0.6711, 7.2, 31.5),
        (36, 0.3859, 1.2446, 2.4159, 9.9, 15.8),
        (10, 1.0, 1.0, 2.05, 5.0, 10.0),
        (10, 1.0, 1.0, 0.5, 6.0, 10.0),
    ),
    {
        " ".join(PLAN_FAULTS[fault] for fault in left): _left(left)
        for count in (1, 2, 3)
        for left in combinations(PLAN_FAULTS, count)
    }
    | {
        "One place is the slot, not two.": lambda *case: _plan(*case, slot=2),
        "The slot takes a place from the layers that stay. In your plan one layer more stays.": (
            lambda *case: _plan(*case, slot=-1)
        ),
        "`round` may round up, to a layer that does not fit.": lambda *case: _plan(*case, rounded=round),
        "A layer stays whole or not at all: round down.": (
            lambda layers, layer_gb, head_gb, kv_gb, card_gib, link_gb_s: (
                link_gb_s / (layers * layer_gb - (card_gib * 2**30 / 1e9 - head_gb - kv_gb - layer_gb))
            )
        ),
        "A GiB is more than a GB: multiply.": (
            lambda layers, layer_gb, head_gb, kv_gb, card_gib, link_gb_s: _plan(
                layers, layer_gb, head_gb, kv_gb, card_gib * 1e9 / 2**30 * 1e9 / 2**30, link_gb_s
            )
        ),
        "That is seconds a token; tokens a second are asked for.": lambda *case: 1 / _plan(*case),
    },
)
