"""Notebook 03: SwiGLU, counting parameters, routing, a broken layer."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from checks import toy_counts as counts
from checks import toy_layers as layers
from checks.exercise import Exercise, Trial, difference, same
from checks.toy_counts import Count
from checks.toy_layers import numbers

# ---- 1. SwiGLU over joined matrices ----


def _swiglu(x, gate_up, down):
    gate, up = (x @ gate_up.T).chunk(2, -1)
    return (F.silu(gate) * up) @ down.T


def _with(combine):
    """SwiGLU with another way to bring gate and up together."""

    def mistake(x, gate_up, down):
        gate, up = (x @ gate_up.T).chunk(2, -1)
        return combine(gate, up) @ down.T

    return mistake


def _interleaved(x, gate_up, down):
    return (F.silu(x @ gate_up[0::2].T) * (x @ gate_up[1::2].T)) @ down.T


def _down_not_transposed(x, gate_up, down):
    gate, up = (x @ gate_up.T).chunk(2, -1)
    return (F.silu(gate) * up) @ down


swiglu = Exercise(
    "SwiGLU",
    _swiglu,
    (  # in the second case hidden = width, so that a forgotten transpose gives numbers instead of an error
        (numbers(3, 4, seed=0), numbers(10, 4, seed=1), numbers(4, 5, seed=2)),
        (numbers(2, 3, 4, seed=3), numbers(8, 4, seed=4), numbers(4, 4, seed=5)),
    ),
    {
        "silu belongs to the gate, the first half; you bent up.": _with(lambda g, u: g * F.silu(u)),
        "That is the sigmoid of the gate. silu(z) is z · sigmoid(z).": _with(lambda g, u: g.sigmoid() * u),
        "relu has a hard knee; Qwen3 was trained with silu.": _with(lambda g, u: F.relu(g) * u),
        "That is gelu, another soft knee; Qwen3 was trained with silu.": _with(lambda g, u: F.gelu(g) * u),
        "Only the gate is bent; up goes into the product as it is.": _with(
            lambda g, u: F.silu(g) * F.silu(u)
        ),
        "Gate and up are multiplied, number by number, and not added.": _with(lambda g, u: F.silu(g) + u),
        "The gate is not bent: without silu this is only a product of two views.": _with(lambda g, u: g * u),
        "Where is up? The gate alone decides nothing: it scales what up says.": _with(lambda g, u: F.silu(g)),
        "silu is taken of the gate before the product with up, not of the product.": _with(
            lambda g, u: F.silu(g * u)
        ),
        "The first half of the rows is gate, the second half up; they do not alternate.": _interleaved,
        "`down` is [hidden, width]: as for gate and up, each row makes one output.": _down_not_transposed,
    },
)


# ---- 2. parameters of a whole model ----


parameters = Count(
    "parameters of a model", counts.parameters, counts.DENSE, counts.PARAMETER_MISTAKES, counts.whole
)


# ---- 3. the router ----

UNSORTED = "The right experts with the right weights, but the heaviest must come first."


@dataclass(frozen=True)
class Routing(Exercise):
    """An exercise whose answer is weights [N, k] and expert numbers [N, k], the heaviest first."""

    def _hint(self, given: list[Trial]) -> str:
        """The hint of a known mistake; else whether only the order is wrong, or which of the two is wrong."""
        expected = self._trials(self.solution)
        if all(same(_sorted(a.outcome), b.outcome) for a, b in zip(given, expected, strict=True)):
            return f". {UNSORTED}"
        known = super()._hint(given)
        return known or next(filter(None, map(_wrong_part, given, expected)), "")


def _two_tensors(outcome) -> bool:
    pair = isinstance(outcome, list | tuple) and len(outcome) == 2
    return pair and all(isinstance(part, torch.Tensor) for part in outcome)


def _sorted(outcome):
    """Weights and experts, the heaviest first; anything else as it is."""
    if not _two_tensors(outcome) or outcome[0].shape != outcome[1].shape or outcome[1].is_floating_point():
        return outcome
    weights, order = outcome[0].sort(-1, descending=True)
    return weights, outcome[1].gather(-1, order)


def _wrong_part(mine: Trial, right: Trial) -> str:
    """What is wrong with the weights or the experts of a case; nothing where no pair of tensors came."""
    if not _two_tensors(mine.outcome):
        return ""
    _, k, renormalise = mine.case
    for name, a, b in zip(("weights", "expert numbers"), mine.outcome, right.outcome, strict=True):
        if not same(a, b):
            return f" (for k = {k}, renormalise = {renormalise}), in the {name}: {difference(a, b)}"
    return ""


def _route(scores, k, renormalise):
    weights, chosen = scores.softmax(-1).topk(k, -1)
    return (weights / weights.sum(-1, keepdim=True) if renormalise else weights), chosen


def _softmax_again(scores, k, renormalise):
    weights, chosen = scores.softmax(-1).topk(k, -1)
    return (weights.softmax(-1) if renormalise else weights), chosen


def _summed_over_tokens(scores, k, renormalise):
    weights, chosen = scores.softmax(-1).topk(k, -1)
    return (weights / weights.sum(0, keepdim=True) if renormalise else weights), chosen


def _summed_over_all(scores, k, renormalise):
    weights, chosen = scores.softmax(-1).topk(k, -1)
    return (weights / weights.sum() if renormalise else weights), chosen


def _softmax_over_tokens(scores, k, renormalise):
    weights, chosen = scores.softmax(0).topk(k, -1)
    return (weights / weights.sum(-1, keepdim=True) if renormalise else weights), chosen


def _weakest(scores, k, renormalise):
    weights, chosen = scores.softmax(-1).topk(k, -1, largest=False)
    return (weights / weights.sum(-1, keepdim=True) if renormalise else weights), chosen


def _lightest_first(scores, k, renormalise):
    return tuple(part.flip(-1) for part in _route(scores, k, renormalise))


def _no_softmax(scores, k, renormalise):
    weights, chosen = scores.topk(k, -1)
    return (weights / weights.sum(-1, keepdim=True) if renormalise else weights), chosen


_SCORES = numbers(5, 7, seed=6)  # [N, experts]

route = Routing(
    "router",
    _route,
    ((_SCORES, 3, False), (_SCORES, 3, True), (2 * _SCORES[:4, :6], 2, True), (_SCORES[:2], 4, False)),
    {
        # The same numbers as a softmax of the k best scores.
        "Your weights always sum to one. When `renormalise` is false they must not.": (
            lambda scores, k, renormalise: _route(scores, k, True)
        ),
        "You renormalise when `renormalise` is false, and not when it is true.": (
            lambda scores, k, renormalise: _route(scores, k, not renormalise)
        ),
        "Not renormalised: the k weights of a token must sum to one when `renormalise` is true.": (
            lambda scores, k, renormalise: _route(scores, k, False)
        ),
        "Renormalise by dividing by the sum. A second softmax makes them nearly equal.": _softmax_again,
        "Each token's weights sum to one: the sum runs over its experts, not over the tokens.": (
            _summed_over_tokens
        ),
        "Each token's weights sum to one: divide by a sum of its own, not by one for all.": _summed_over_all,
        "First the weights, then the numbers of the experts.": (
            lambda scores, k, renormalise: _route(scores, k, renormalise)[::-1]
        ),
        "The softmax runs over the experts of one token; yours runs over the tokens.": _softmax_over_tokens,
        "Those are the k experts with the lowest scores.": _weakest,
        "Each token gets k experts; yours gets one.": lambda scores, k, renormalise: _route(
            scores, 1, renormalise
        ),
        "The scores can be negative: weights come from their softmax.": _no_softmax,
        "Those are the scores themselves: weights come from their softmax.": (
            lambda scores, k, renormalise: scores.topk(k, -1)
        ),
        UNSORTED: _lightest_first,
        "Those are the weights alone; the numbers of the experts are asked for, too.": (
            lambda scores, k, renormalise: _route(scores, k, renormalise)[0]
        ),
        "Those are the numbers of the experts alone; their weights are asked for, too.": (
            lambda scores, k, renormalise: _route(scores, k, renormalise)[1]
        ),
    },
)


# ---- 4. active parameters ----


active_parameters = Count(
    "active parameters", counts.active, counts.MIXED, counts.ACTIVE_MISTAKES, counts.whole
)


# ---- 5. a broken layer ----


layer = Exercise(
    "decoder layer",
    layers.layer,
    (layers.pieces(6, seed=10), layers.pieces(3, seed=20)),
    {
        "That is the broken layer as it was: both faults are still in it.": layers.broken,
        "One fault is mended. The second norm still stands after the MLP instead of before it.": (
            layers.norm_still_after
        ),
        "One fault is mended. The stream itself is still normed at the start: "
        "norm only what the attention reads.": layers.stream_still_normed,
        "In the second block the stream itself is normed: add to what was there before.": (
            layers.both_normed
        ),
        "The MLP must read the stream after attention has added to it.": layers.side_by_side,
        "Each block has a norm of its own, with weights of its own; norm_2 is not used.": layers.one_norm,
        "Nothing is added: without the residual each block replaces the stream.": layers.no_residual,
        "The residual of the first block is missing: add what attention computed to the stream.": (
            layers.no_first_residual
        ),
        "The residual of the second block is missing: add what the MLP computed to the stream.": (
            layers.no_second_residual
        ),
        "What attention computed reaches the MLP but is not added to the stream.": layers.old_residual,
        "The second norm stands before the MLP and not after it, too.": layers.norm_before_and_after,
        "The MLP reads the stream without its norm.": layers.no_second_norm,
        "Attention reads the stream without its norm.": layers.no_first_norm,
        "The norms are exchanged: norm_1 belongs to attention, norm_2 to the MLP.": layers.norms_exchanged,
        "Attention comes first: the MLP works on what attention has gathered.": layers.mlp_first,
        "Attention comes first, and it is what norm_1 belongs to.": layers.mlp_first_with_norm_1,
        "The norms stand after the additions and norm the stream itself: norm only what a block reads.": (
            layers.norms_after_adding
        ),
        "The first norm stands after the addition: norm only what attention reads, not the stream.": (
            layers.first_norm_after_adding
        ),
        "The second norm stands after the addition: norm only what the MLP reads, not the stream.": (
            layers.second_norm_after_adding
        ),
        "Both norms stand after their blocks: norm what a block reads, not what it writes.": (
            layers.norms_of_what_is_written
        ),
    },
)
