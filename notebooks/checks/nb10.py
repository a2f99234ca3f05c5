"""Notebook 10: reading a clock, one figure for many requests, what a token costs, unfair comparisons."""

from collections.abc import Callable
from statistics import mean, median

from checks import toy_benchmarks as toy
from checks.exercise import Exercise
from checks.verdicts import judging

reports, table = toy.REPORTS, toy.table

# ---- TTFT and decode speed ----

metrics = Exercise(
    "two numbers from a clock",
    toy.reading,
    (
        (100.0, [102.0, 102.5, 103.0, 104.0]),
        (7.0, [7.5, 8.5]),
        (3.0, [3.4, 3.5, 3.7, 4.1, 4.2]),
        (0.5, [2.0]),
        (0.5, []),
    ),
    {
        "The clock did not start at 0: TTFT is the time since the call.": (
            lambda called, times: toy.reading(called, times, first=lambda called, times: times[0])
        ),
        "Between the first token and the last lie n - 1 steps, not n. The first token was paid for by the "
        "prefill.": lambda called, times: toy.reading(called, times, counted=len),
        "Decoding begins with the first token, not with the call: the prefill has a number of its own.": (
            lambda called, times: toy.reading(called, times, span=lambda called, times: times[-1] - called)
        ),
        "All tokens over all seconds: that mixes both numbers into one. A long prompt would make the same "
        "engine look slow at writing.": lambda called, times: toy.reading(
            called, times, counted=len, span=lambda called, times: times[-1] - called
        ),
        "That is the mean of the rates of single steps. A slow step takes more of the time than it has of "
        "the steps: divide tokens by seconds.": toy.mean_of_gap_rates,
        "That is the speed of one middle step. The user waits for the slow ones, too.": toy.middle_gap,
        "Tokens a second, not seconds a token.": toy.seconds_a_token,
        "Right from two tokens on. With one token there is no step after the first: the speed is None, "
        "not 0.": lambda called, times: _at_one(toy.reading(called, times), times, 0.0),
        "Right from two tokens on. With one token there is no step after the first: the speed is None, not "
        "0. Without any token both numbers are None.": lambda called, times: _at_one(
            toy.reading(called, times) if times else times[0], times, 0.0
        ),
        "TTFT is right. With fewer than two tokens there is no step after the first, so there is no speed: "
        "None, not 0.": lambda called, times: (
            toy.reading(called, times) if len(times) > 1 else (toy.reading(called, times)[0], 0.0)
        ),
        "Without any token there is no TTFT either: None, not 0.": lambda called, times: (
            toy.reading(called, times) if times else (0.0, 0.0)
        ),
        "Seconds are asked for, not milliseconds.": toy.milliseconds,
        "Right from two tokens on. With one token you divide by no time at all: the speed is None.": (
            lambda called, times: toy.reading(called, times, least=1)
        ),
        "Right from two tokens on. With one token there is no speed, but there is a TTFT.": (
            lambda called, times: toy.reading(called, times) if len(times) > 1 else (None, None)
        ),
        "Right, except without any token: then there is no first one, and both numbers are None.": (
            lambda called, times: toy.reading(called, times) if times else times[0]
        ),
        "Right from two tokens on. With one token there is no step after the first, so the speed is None; "
        "without any token both numbers are None.": (
            lambda called, times: toy.reading(called, times, least=1) if times else times[0]
        ),
    },
)


def _at_one(result: tuple, times: list[float], rate: float) -> tuple:
    return (result[0], rate) if len(times) == 1 else result


# ---- one figure for several requests ----

overall = Exercise(
    "one figure for many requests",
    toy.overall,
    (
        ([(0.5, 1.5, 11), (0.5, 10.5, 11)],),
        ([(1.0, 3.0, 5), (0.2, 0.8, 10), (2.0, 2.0, 1), (0.7, 9.7, 31)],),
        ([(0.3, 4.3, 9)],),
    ),
    {
        "That is the mean of the requests' speeds. The fast request gets as much weight as the slow one, "
        "though the user spent far less time in it: add up tokens, add up seconds, then divide.": (
            lambda requests: mean(toy.rates(requests))
        ),
        "That is the mean of the requests' speeds. It even stops at a request with a single token, which has "
        "no speed: add up tokens, add up seconds, then divide.": (
            lambda requests: mean((n - 1) / (total - ttft) for ttft, total, n in requests)
        ),
        "That is the mean of the requests' speeds, with 0 for a request of a single token, which has none. "
        "The fast request gets as much weight as the slow one: add up tokens, add up seconds, then divide.": (
            lambda requests: sum(toy.rates(requests)) / len(requests)
        ),
        "That is the speed of the middle request. It is a fair thing to report, but not what was asked: all "
        "tokens over all seconds.": lambda requests: median(toy.rates(requests)),
        "The first token of each request belongs to its prefill: n - 1 each.": (
            lambda requests: toy.overall(requests, counted=lambda tokens: tokens)
        ),
        "The time to the first token is not decoding: leave it out of the seconds.": (
            lambda requests: toy.overall(requests, seconds=lambda ttft, total: total)
        ),
        "All tokens over all time: prefill is in it.": lambda requests: toy.overall(
            requests, counted=lambda tokens: tokens, seconds=lambda ttft, total: total
        ),
        "One first token is left out in all. Each request has one of its own.": lambda requests: (
            (sum(n for *_, n in requests) - 1) / sum(total - ttft for ttft, total, _ in requests)
        ),
        "The speeds are added up. That is right for requests that run at the same time, and these ran one "
        "after the other.": lambda requests: sum(toy.rates(requests)),
        "That is seconds a token.": lambda requests: 1 / toy.overall(requests),
        "Nearly: the harmonic mean counts every request the same. A long answer has more tokens than a "
        "short one.": lambda requests: (
            len(toy.rates(requests)) / sum(1 / rate for rate in toy.rates(requests))
        ),
    },
)

# ---- seconds of a token, from rates ----

_A = (24, 11, 400_000_000, 5.0, 30e-6, 0.08)
_B = (6, 1, 3_000_000, 0.5, 1e-3, 0.5)
_C = (10, 3, 80_000_000, 20.0, 2e-3, 0.04)


def _cost(**changes) -> Callable:
    return lambda *case: toy.token_time(*case, **changes)


token_time = Exercise(
    "seconds of a token",
    toy.token_time,
    tuple((*case, overlap) for case in (_A, _B, _C) for overlap in (False, True)),
    {
        "The two are exchanged: with overlap the shorter one hides behind the longer one; without it they "
        "add up.": _cost(join=lambda c, m, overlap: c + m if overlap else max(c, m)),
        "With overlap it is right. Without it, nothing hides: copying and computing add up.": (
            _cost(join=lambda c, m, overlap: max(c, m))
        ),
        "Without overlap it is right. With overlap the shorter one hides behind the longer one.": (
            _cost(join=lambda c, m, overlap: c + m)
        ),
        "Without overlap it is right. With overlap what remains is the longer one, not the shorter.": (
            _cost(join=lambda c, m, overlap: min(c, m) if overlap else c + m)
        ),
        "With overlap, computing does not vanish: where it takes longer than copying, it decides.": (
            _cost(join=lambda c, m, overlap: c if overlap else c + m)
        ),
        "Each tensor of each layer is one copy: the fixed price is paid that many times, not once a layer.": (
            _cost(calls=lambda layers, tensors: layers)
        ),
        "Each tensor of each layer is one copy: the fixed price is paid for all layers, not for one.": (
            _cost(calls=lambda layers, tensors: tensors)
        ),
        "The fixed price is paid for each copy, not once a token.": _cost(calls=lambda layers, tensors: 1),
        "The fixed price of a copy is missing.": _cost(calls=lambda layers, tensors: 0),
        "`layer_bytes` are the bytes of a whole layer, all tensors together: do not multiply them again.": (
            lambda layers, tensors, size, *rest: toy.token_time(layers, tensors, size * tensors, *rest)
        ),
        "`layer_bytes` are the bytes of one layer, and all streamed layers are copied for each token.": (
            lambda layers, tensors, size, *rest: toy.token_time(layers, tensors, size / layers, *rest)
        ),
        "A GB of a link is 10⁹ bytes, not 2³⁰.": _cost(unit=2**30),
        "Far too long: `gb_s` counts 10⁹ bytes a second, and `layer_bytes` counts bytes.": _cost(unit=1),
        "Only the bytes hide in your answer. The fixed price of a copy is part of copying: it hides, too.": (
            lambda layers, tensors, size, rate, call, compute, overlap: (
                toy.token_time(layers, tensors, size, rate, 0.0, compute, overlap) + layers * tensors * call
            )
        ),
    },
)

# ---- which comparison is fair ----

_EXPERIMENTS = {
    "A": "Compare the two columns line by line: what may each engine keep on the device?",
    "B": "Compute tok/s of both columns yourself: (new - 1) / (total - TTFT).",
    "C": "Compare the two columns line by line, and compute tok/s yourself. A loss that is told is no fault.",
    "D": "Compare the two columns line by line: did both run on the same machine?",
    "E": "Multiply GB a token by tok/s: that is what the link must have carried in a second. Could it?",
    "F": "The claim is about TTFT. What decides how long a TTFT is?",
}


verdicts = judging(
    "six reports",
    toy.FAULTS,
    _EXPERIMENTS,
    {
        "All the same? One report is fair, and five have different faults.": (
            lambda: dict.fromkeys("ABCDEF", "none")
        ),
        "D and E are exchanged. In both something is odd about the link: in one it is another link, in the "
        "other it would have had to carry more than it can.": (
            lambda: toy.FAULTS | {"D": "idle", "E": "link"}
        ),
        "B and F are exchanged. Both have a long prompt somewhere: in one of them both engines have it, and "
        "one clock counts its time as writing.": lambda: toy.FAULTS | {"B": "prompt", "F": "clock"},
        "C is fair: the columns agree in all that they must agree in, both speeds follow from the times, and "
        "the link could carry them. A comparison may have a loss in it. The others are right.": (
            lambda: toy.FAULTS | {"C": "clock"}
        ),
        "E: the peak was not recorded, but that is not what makes it impossible. Multiply GB a token by "
        "tok/s. The others are right.": lambda: toy.FAULTS | {"E": "memory"},
    },
)
