"""Notebook 05: the KV cache, the decode loop, top-p."""

import torch

from checks import toy_caches
from checks import toy_loops as loops
from checks.exercise import Exercise

# ---- a conversation ----


def _chat(turns, kept, unfed=1, own=lambda question, answer: question + answer, last=1):
    """`unfed`: tokens of the history that the kept cache does not hold; `own`: what a turn adds to it."""
    fed = history = 0
    for question, answer in turns:
        held = max(0, history - unfed) if kept else 0
        fed += history + question - held + answer - last
        history += own(question, answer)
    return fed


def _no_history(turns, kept):
    return _chat(turns, True) if kept else sum(question + answer - 1 for question, answer in turns)


def _no_answers(turns, kept):
    return _chat(turns, True) if kept else _chat(turns, False, own=lambda question, answer: question)


def _no_cache_within_a_turn(turns, kept):
    fed = history = 0
    for question, answer in turns:
        history += question
        fed += sum(history + step for step in range(answer))
        history += answer
    return _chat(turns, True) if kept else fed


chat_fed = Exercise(
    "tokens fed in a chat",
    _chat,
    (
        ([(5, 4)], True),
        ([(5, 4)], False),
        ([(20, 30), (10, 7), (6, 9)], True),
        ([(20, 30), (10, 7), (6, 9)], False),
    ),
    {
        "The very last token is chosen, and nobody feeds it.": (
            lambda turns, kept: _chat(turns, kept, unfed=0, last=0)
        ),
        "When a turn begins, the kept cache lacks one token: the newest of the answer before.": (
            lambda turns, kept: _chat(turns, kept, unfed=0)
        ),
        "The last token of an answer is counted in its own turn, where nobody feeds it.": (
            lambda turns, kept: _chat(turns, kept, last=0)
        ),
        "Without a kept cache, a turn's prompt is the whole conversation, not only the new question.": (
            _no_history
        ),
        "The answers are part of the conversation, too: the next turn's prompt holds them.": _no_answers,
        "Thrown away after a turn, not after a step: within a turn the cache works.": (
            _no_cache_within_a_turn
        ),
        "`kept` makes no difference in your answer: without it, a turn reads the whole conversation.": (
            lambda turns, kept: _chat(turns, True)
        ),
        "`kept` makes no difference in your answer: a kept cache need not read the history again.": (
            lambda turns, kept: _chat(turns, False)
        ),
    },
)

# ---- the decode loop ----

decode_loop = Exercise(
    "decode loop",
    loops.right_loop,
    (([3, 5, 2, 9], 6, set()), ([4], 3, set()), ([1, 2, 3], 8, {6}), ([7, 7], 1, set()), ([8, 3], 5, {10})),
    {
        "The tokens are right, but each step feeds everything again. Feed what the cache does not hold.": (
            loops.fed_again
        ),
        "A step starts one position too far. The newest token is not in the cache yet.": (loops.one_too_far),
        "Positions start again at 0 after the prompt. A step goes on where the prompt ended.": loops.restarts,
        "Every step says position 0: each token would take the place, and the angle, of the first one.": (
            loops.always_zero
        ),
        "Every step says the same position. It has to grow by one a step.": loops.stands_still,
        "The last token is fed, and its logits are thrown away: one pass for nothing.": loops.feeds_the_last,
        "The prompt's logits already choose the first new token. You feed its last token twice.": (
            loops.forgets_the_first
        ),
        "The prompt goes in one token at a time. It works, and reads all weights once for each token.": (
            loops.prompt_piecemeal
        ),
        "An end token does not end your loop. (A tensor is never found in a set of ints: take int(…).)": (
            loops.never_stops
        ),
        "The first new token, from the prompt's pass, may be an end token already.": (
            loops.checks_the_end_too_late
        ),
        "The prompt's last token is fed again, over its own place. Its pass has its logits already.": (
            loops.last_of_prompt_again
        ),
        "The token that ends the answer belongs to the list; only its text is not shown.": (
            loops.stops_before_the_end_token
        ),
        "Return the new tokens only, without the prompt.": loops.with_prompt,
        "One token too many: the prompt's pass gives the first of the `new` tokens.": loops.one_too_many,
    },
    run=loops.try_loop,
)

# ---- top-p ----


def _nucleus(logits: torch.Tensor, temperature: float, p: float) -> torch.Tensor:
    probabilities = (logits / temperature).softmax(-1)
    best, ids = probabilities.sort(descending=True)
    keep = best.cumsum(-1) - best < p
    kept = torch.zeros_like(probabilities)
    kept[ids[keep]] = best[keep]
    return kept / kept.sum()


def _crossing_dropped(logits, temperature, p):
    probabilities = (logits / temperature).softmax(-1)
    best, ids = probabilities.sort(descending=True)
    keep = best.cumsum(-1) <= p
    kept = torch.zeros_like(probabilities)
    kept[ids[keep]] = best[keep]
    return kept / kept.sum()


def _unsorted(logits, temperature, p):
    probabilities = (logits / temperature).softmax(-1)
    kept = probabilities * (probabilities.cumsum(-1) - probabilities < p)
    return kept / kept.sum()


def _ascending(logits, temperature, p):
    probabilities = (logits / temperature).softmax(-1)
    worst, ids = probabilities.sort()
    keep = worst.cumsum(-1) - worst < p
    kept = torch.zeros_like(probabilities)
    kept[ids[keep]] = worst[keep]
    return kept / kept.sum()


def _not_renormalised(logits, temperature, p):
    probabilities = (logits / temperature).softmax(-1)
    return probabilities * (_nucleus(logits, temperature, p) > 0)


def _temperature_after(logits, temperature, p):
    return (logits.masked_fill(_nucleus(logits, 1.0, p) == 0, -torch.inf) / temperature).softmax(-1)


def _no_temperature(logits, temperature, p):
    return _nucleus(logits, 1.0, p)


def _multiplied(logits, temperature, p):
    return _nucleus(logits, 1 / temperature, p)


def _sorted_order(logits, temperature, p):
    return _nucleus(logits, temperature, p).sort(descending=True).values


def _as_min_p(logits, temperature, p):
    probabilities = (logits / temperature).softmax(-1)
    kept = probabilities * (probabilities >= p * probabilities.max())
    return kept / kept.sum()


def _zeros_softmaxed(logits, temperature, p):
    return (logits / temperature).masked_fill(_nucleus(logits, temperature, p) == 0, 0.0).softmax(-1)


nucleus = Exercise(
    "top-p",
    _nucleus,
    (
        (torch.tensor([0.1, 0.3, 0.05, 0.4, 0.15]).log(), 1.0, 0.8),
        (torch.tensor([0.1, 0.3, 0.05, 0.4, 0.15]).log(), 0.5, 0.8),
        (torch.tensor([0.1, 0.3, 0.05, 0.4, 0.15]).log(), 2.0, 0.8),
        (torch.tensor([1.0, -2.0, 0.5, 3.0, 2.5, 0.0, -1.0]), 0.8, 0.1),
        (torch.tensor([1.0, -2.0, 0.5, 3.0, 2.5, 0.0, -1.0]), 1.5, 0.9),
    ),
    {
        "The token that crosses p is dropped; it belongs to the set. A p smaller than the best token's "
        "probability would leave nothing.": _crossing_dropped,
        "The running sum goes over the tokens in the order of the vocabulary. The best come first.": (
            _unsorted
        ),
        "Sorted, but the wrong way round: you keep the worst tokens.": _ascending,
        "What is left does not sum to 1.": _not_renormalised,
        "The temperature comes before the filter. It changes how many tokens it takes to reach p.": (
            _temperature_after
        ),
        "Where is the temperature?": _no_temperature,
        "Logits are divided by the temperature: a low one makes the best token more likely.": _multiplied,
        "The probabilities are right, but in sorted order: entry i has to belong to token i.": _sorted_order,
        "That compares each token with the best one, which is min-p. Top-p looks at the running sum.": (
            _as_min_p
        ),
        "A logit of 0 is not a probability of 0: after softmax the dropped tokens have some left.": (
            _zeros_softmaxed
        ),
    },
)

# ---- a cache with a fault ----

repaired_cache = Exercise(
    "repaired cache",
    toy_caches.Repaired,
    (((5, 1, 1, 1),), ((1, 1, 1),), ((3, 2, 1, 1),)),
    {
        "Each token after the prompt is still written over the one before it. Who counts the tokens?": (
            toy_caches.StillBroken
        ),
        "The length grows by one for each call. A prompt has more tokens than one.": toy_caches.CountsCalls,
        "You count first and write afterwards: there is a gap of zeros before the new keys.": (
            toy_caches.WritesAfterCounting
        ),
        "All of the memory comes back, also what nobody has written: zeros get a share of the softmax.": (
            toy_caches.ReturnsEverything
        ),
        "The newest token is missing in what comes back; it looks at itself, too.": toy_caches.ReturnsOld,
        "A second pass of several tokens goes to the front again. A long prompt may come in pieces.": (
            toy_caches.LongPassFromZero
        ),
        "The keys are right now. The values are not.": toy_caches.KeysOnly,
    },
    run=toy_caches.try_cache,
)
