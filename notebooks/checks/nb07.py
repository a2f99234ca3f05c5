"""Notebook 07: a kernel in Triton, partial softmaxes, what a profile asks for, a step recorded wrongly."""

import torch
import torch.nn.functional as F

from checks import toy_graphs as toy
from checks.exercise import Exercise
from checks.verdicts import exchanged, judging

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

# ---- 1: two parts of a softmax ----


def _of_part(scores: tuple[float, ...], D: int = 3) -> tuple:
    """Largest score, sum of powers and mix of a part with these scores, over values that count upwards."""
    scores = torch.tensor(scores)
    values = torch.arange(len(scores) * D, dtype=torch.float32).view(-1, D) + 1
    powers = (scores - scores.max()).exp()
    return scores.max(), powers.sum(), powers @ values


def _join(one, other):
    best = torch.maximum(one[0], other[0])
    a, b = (one[0] - best).exp(), (other[0] - best).exp()
    return best, a * one[1] + b * other[1], a * one[2] + b * other[2]


def _unscaled(one, other):
    return torch.maximum(one[0], other[0]), one[1] + other[1], one[2] + other[2]


def _total_unscaled(one, other):
    best, _, mixed = _join(one, other)
    return best, one[1] + other[1], mixed


def _mix_unscaled(one, other):
    best, total, _ = _join(one, other)
    return best, total, one[2] + other[2]


def _first_is_larger(one, other):
    b = (other[0] - one[0]).exp()
    return one[0], one[1] + b * other[1], one[2] + b * other[2]


def _upside_down(one, other):
    best = torch.maximum(one[0], other[0])
    a, b = (best - one[0]).exp(), (best - other[0]).exp()
    return best, a * one[1] + b * other[1], a * one[2] + b * other[2]


def _crossed(one, other):
    best = torch.maximum(one[0], other[0])
    a, b = (one[0] - best).exp(), (other[0] - best).exp()
    return best, b * one[1] + a * other[1], b * one[2] + a * other[2]


def _divided(one, other):
    best, total, mixed = _join(one, other)
    return best, total, mixed / total


def _scores_added(one, other):
    return one[0] + other[0], *_join(one, other)[1:]


_EMPTY = (torch.tensor(-torch.inf), torch.tensor(0.0), torch.zeros(3))

join = Exercise(
    "join two parts",
    _join,
    (
        (_of_part((1.0, 2.0)), _of_part((4.0, 3.5, 0.0))),
        (_of_part((5.0,)), _of_part((2.0, 1.0))),
        (_of_part((1.0, 0.0)), _EMPTY),
        (_EMPTY, _of_part((1.0, 0.0, 0.5))),
    ),
    {
        "The powers of each part are relative to its own largest score. Before they are added, both have to "
        "be brought to the same one.": _unscaled,
        "The mix is right, the sum of powers is not: it, too, was counted from each part's own largest.": (
            _total_unscaled
        ),
        "The sum of powers is right, the mix is not: it has to shrink by the same factor.": _mix_unscaled,
        "It is right as long as the first part holds the largest score. If the second one does, it is the "
        "first that has to shrink.": _first_is_larger,
        "The factor is the wrong way up: the part with the smaller largest score must weigh less.": (
            _upside_down
        ),
        "The two factors have changed places: each part shrinks by what its own largest score is below the "
        "common one.": _crossed,
        "The division comes last, after all parts are joined: what you return may still be joined with a "
        "third part.": _divided,
        "The common largest score is the larger of the two, not their sum.": _scores_added,
    },
)

# ---- 2: a kernel ----

SPARE = 64  # numbers behind each row of memory, which a kernel has no business with
UNTOUCHED = -7.0


def _silu_up(gate_up, out, width, block):
    out[:width] = F.silu(gate_up[:width]) * gate_up[width : 2 * width]


def _nothing(gate_up, out, width, block):
    pass


def _one_block(gate_up, out, width, block):
    some = min(width, block)
    out[:some] = F.silu(gate_up[:some]) * gate_up[width : width + some]


def _no_mask(gate_up, out, width, block):
    end = -(-width // block) * block
    out[:end] = F.silu(gate_up[:end]) * gate_up[width : width + end]


def _store_unmasked(gate_up, out, width, block):
    _silu_up(gate_up, out, width, block)
    out[width : -(-width // block) * block] = 0.0


def _no_silu(gate_up, out, width, block):
    out[:width] = gate_up[:width] * gate_up[width : 2 * width]


def _sigmoid_only(gate_up, out, width, block):
    out[:width] = gate_up[:width].sigmoid() * gate_up[width : 2 * width]


def _silu_only(gate_up, out, width, block):
    out[:width] = F.silu(gate_up[:width])


def _halves_swapped(gate_up, out, width, block):
    out[:width] = gate_up[:width] * F.silu(gate_up[width : 2 * width])


def _gate_twice(gate_up, out, width, block):
    out[:width] = F.silu(gate_up[:width]) * gate_up[:width]


def _up_beside(gate_up, out, width, block):
    out[:width] = F.silu(gate_up[:width]) * gate_up[block : block + width]


def _launched(kernel, width: int, block: int):
    """What stands in the output after a run: a kernel is started on a grid, a plain function is called."""
    torch.manual_seed(width)
    gate_up = torch.full((2 * width + SPARE,), 50.0)
    gate_up[: 2 * width] = torch.randn(2 * width)
    out = torch.full((width + SPARE,), UNTOUCHED)
    if not hasattr(kernel, "__getitem__"):
        kernel(gate_up, out, width, block)
        return out
    gate_up, out = gate_up.to(DEVICE), out.to(DEVICE)
    try:
        kernel[(-(-width // block),)](gate_up, out, width, BLOCK=block)
    except Exception as error:
        raise _own(error) from None
    return out.cpu()


def _own(error: Exception) -> Exception:
    """The learner's error: Triton wraps it."""
    if "NotImplementedError" in f"{error!r} {error}":
        return NotImplementedError()
    return error.__cause__ if isinstance(error.__cause__, Exception) else error


kernel = Exercise(
    "a kernel for silu(gate) · up",
    _silu_up,
    ((8, 8), (12, 4), (13, 8), (5, 16)),
    {
        "Nothing was written: a kernel returns nothing, its result goes into memory by `tl.store`.": _nothing,
        "Only the first program's part is right: each program has to begin at its own number times BLOCK.": (
            _one_block
        ),
        "Where BLOCK does not divide the width, the last program goes on behind the end: without a mask it "
        "writes into memory that belongs to somebody else.": _no_mask,
        "All numbers are right, and then it writes zeros behind the end: a mask at the loads is not enough, "
        "the store needs it, too.": _store_unmasked,
        "The product is there, silu is not: silu(z) = z · sigmoid(z).": _no_silu,
        "sigmoid alone is not silu: silu(z) = z · sigmoid(z).": _sigmoid_only,
        "That is silu(gate). It still has to be multiplied by up.": _silu_only,
        "silu belongs to the gate, which is the first half.": _halves_swapped,
        "That is silu(gate) · gate: the second half begins `width` numbers later.": _gate_twice,
        "The second half begins at `width`. You look for it at BLOCK.": _up_beside,
    },
    run=_launched,
)

# ---- 3: what a profile asks for ----

PROFILES = {"a": "graph", "b": "fuse", "c": "bytes", "d": "parts", "e": "none"}
_TRY = {
    "a": "Who waits for whom in the gaps between two kernels?",
    "b": "Nobody waits for Python any more. How many kernels read no weights to speak of?",
    "c": "How far is it from the bound of section 9, and what does the bound depend on?",
    "d": "How many programs does attention have without being cut, and how many processors are there?",
    "e": "What are the processors busy with, and is it something that has to be done?",
}

profiles = judging(
    "what would help",
    PROFILES,
    _TRY,
    {
        f"a is not 'fuse'. {_TRY['a']}": exchanged(PROFILES, "a", "b"),
        f"c is not 'fuse'. {_TRY['c']}": lambda: PROFILES | {"c": "fuse"},
        f"d is not 'graph'. {_TRY['d']}": lambda: PROFILES | {"d": "graph"},
        f"e is not 'bytes'. {_TRY['e']}": lambda: PROFILES | {"e": "bytes"},
    },
)

# ---- 4: the broken step ----

repaired = Exercise(
    "repaired step",
    toy.Step,
    ((([1],), 6), (([3, 1, 4],), 5), (([2], [5, 1, 1, 2], [7, 7]), 4)),
    {
        "Every answer is still the first one. What is fixed at the recording? Look for numbers of Python, "
        "for new memory, and for results that were not asked for.": toy.BrokenStep,
        "New tokens arrive. But it still sees only the place that was the last one while it was recorded: "
        "a number that Python read then is part of the graph for ever.": toy.step(host_end=True),
        "It looks far enough now. But every replay reads the token of the recording: `=` gives the name to "
        "another tensor, and the graph knows the memory, not the name.": toy.step(other_token=True),
        "Each new token is written over the first one: the graph knows an old position. Either Python read "
        "it while recording, or it lies in other memory now.": toy.step(other_position=True),
        "The tokens are right, but the orders are given one by one at every call: that is the eager engine "
        "again. Record once.": toy.step(anew=True),
        "It looks at the whole cache, also at what an earlier text left behind the position.": (
            toy.step(everything=True)
        ),
    },
    run=toy.try_step,
)
