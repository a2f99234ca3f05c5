"""Top-p for notebook 05: a right one, and those that learners write. Scores [vocab] in, probabilities out."""

import torch


def right(logits: torch.Tensor, temperature: float, p: float) -> torch.Tensor:
    probabilities = (logits / temperature).softmax(-1)
    best, ids = probabilities.sort(descending=True)
    keep = best.cumsum(-1) - best < p
    kept = torch.zeros_like(probabilities)
    kept[ids[keep]] = best[keep]
    return kept / kept.sum()


def crossing_dropped(logits, temperature, p):
    probabilities = (logits / temperature).softmax(-1)
    best, ids = probabilities.sort(descending=True)
    keep = best.cumsum(-1) <= p
    kept = torch.zeros_like(probabilities)
    kept[ids[keep]] = best[keep]
    return kept / kept.sum()


def unsorted(logits, temperature, p):
    probabilities = (logits / temperature).softmax(-1)
    kept = probabilities * (probabilities.cumsum(-1) - probabilities < p)
    return kept / kept.sum()


def ascending(logits, temperature, p):
    probabilities = (logits / temperature).softmax(-1)
    worst, ids = probabilities.sort()
    keep = worst.cumsum(-1) - worst < p
    kept = torch.zeros_like(probabilities)
    kept[ids[keep]] = worst[keep]
    return kept / kept.sum()


def not_renormalised(logits, temperature, p):
    probabilities = (logits / temperature).softmax(-1)
    return probabilities * (right(logits, temperature, p) > 0)


def temperature_after(logits, temperature, p):
    return (logits.masked_fill(right(logits, 1.0, p) == 0, -torch.inf) / temperature).softmax(-1)


def no_temperature(logits, temperature, p):
    return right(logits, 1.0, p)


def multiplied(logits, temperature, p):
    return right(logits, 1 / temperature, p)


def sorted_order(logits, temperature, p):
    return right(logits, temperature, p).sort(descending=True).values


def as_min_p(logits, temperature, p):
    probabilities = (logits / temperature).softmax(-1)
    kept = probabilities * (probabilities >= p * probabilities.max())
    return kept / kept.sum()


def zeros_softmaxed(logits, temperature, p):
    return (logits / temperature).masked_fill(right(logits, temperature, p) == 0, 0.0).softmax(-1)


def _keeping(logits, temperature, p, keep):
    """`keep(best)`: which of the probabilities, best first, are kept."""
    best, ids = (logits / temperature).softmax(-1).sort(descending=True)
    kept = torch.zeros_like(best)
    chosen = keep(best)
    kept[ids[chosen]] = best[chosen]
    return kept / kept.sum()


def never_empty(logits, temperature, p):
    return _keeping(logits, temperature, p, lambda best: (best.cumsum(-1) < p) | (best == best[0]))


def one_too_many(logits, temperature, p):
    return _keeping(
        logits, temperature, p, lambda best: torch.arange(len(best)) <= (best.cumsum(-1) - best < p).sum()
    )


def large_enough(logits, temperature, p):
    return _keeping(logits, temperature, p, lambda best: best >= p)


def sum_of_logits(logits, temperature, p):
    best, ids = (logits / temperature).sort(descending=True)
    keep = best.cumsum(-1) - best < p
    kept = torch.full_like(best, -torch.inf)
    kept[ids[keep]] = best[keep]
    return kept.softmax(-1)


def looked_up(logits, temperature, p):
    best, ids = (logits / temperature).softmax(-1).sort(descending=True)
    best = best * (best.cumsum(-1) - best < p)
    return (best / best.sum())[ids]


def softmax_twice(logits, temperature, p):
    kept = right(logits, temperature, p)
    return (logits / temperature).softmax(-1).masked_fill(kept == 0, -torch.inf).softmax(-1)


def softmax_over_all(logits, temperature, p):
    kept = right(logits, temperature, p)
    return (logits / temperature).softmax(-1).masked_fill(kept == 0, 0.0).softmax(-1)
