"""Notebook 05: the KV cache, the decode loop, top-p."""

import torch

from checks import toy_caches, toy_filters
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


def _last_is_not_history(turns, kept):
    return (
        _chat(turns, True)
        if kept
        else _chat(turns, False, own=lambda question, answer: question + answer - 1)
    )


def _last_is_never_history(turns, kept):
    return _chat(turns, kept, unfed=0) if kept else _last_is_not_history(turns, False)


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
        "Without a kept cache it is right. With it, one token too many: before the first turn there is "
        "nothing that the cache could lack, and the last token of all is never fed.": (
            lambda turns, kept: _chat(turns, kept) + kept
        ),
        "Without a kept cache it is right. With it, you count the questions, but not what is fed while an "
        "answer is written.": (
            lambda turns, kept: sum(turn[0] for turn in turns) if kept else _chat(turns, False)
        ),
        "With a kept cache it is right. Without it, a turn feeds one token less: the last one of its "
        "answer is chosen, and not fed in that turn.": (
            lambda turns, kept: _chat(turns, kept, last=int(kept))
        ),
        "With a kept cache it is right. Without it, each turn has a last token that it does not feed, "
        "not only the last turn.": (lambda turns, kept: _chat(turns, kept, last=int(kept)) - (not kept)),
        "With a kept cache it is right. Without it, the last token of an answer, never fed in its own turn, "
        "is still part of the next turn's prompt.": _last_is_not_history,
        "The last token of an answer is not fed in its own turn, but in the next, with the new question.": (
            _last_is_never_history
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
        "After the prompt, positions start again at 0: a new token would take the place, and the angle, of "
        "an old one. A step goes on where the prompt ended.": loops.restarts,
        "The position does not count the prompt. A step goes on where the prompt ended.": (
            loops.restarts_at_one
        ),
        "Every step says the same position. It has to grow by one a step.": loops.stands_still,
        "When the answer has its full length, the loop feeds the last token once more, and its scores are "
        "thrown away: one pass for nothing.": loops.feeds_the_last,
        "The last token is fed, even an end token, and its scores are thrown away: one pass for nothing.": (
            loops.feeds_the_last_and_the_end
        ),
        "The prompt's scores already choose the first new token. You feed its last token twice.": (
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
        "The prompt's last token is fed again, over its own place. Its pass has given its scores already.": (
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


nucleus = Exercise(
    "top-p",
    toy_filters.right,
    (
        (torch.tensor([0.1, 0.3, 0.05, 0.4, 0.15]).log(), 1.0, 0.8),
        (torch.tensor([0.1, 0.3, 0.05, 0.4, 0.15]).log(), 0.5, 0.8),
        (torch.tensor([0.1, 0.3, 0.05, 0.4, 0.15]).log(), 2.0, 0.8),
        (torch.tensor([1.0, -2.0, 0.5, 3.0, 2.5, 0.0, -1.0]), 0.8, 0.1),
        (torch.tensor([1.0, -2.0, 0.5, 3.0, 2.5, 0.0, -1.0]), 1.5, 0.9),
    ),
    {
        "The token that crosses p is dropped; it belongs to the set. A p smaller than the best token's "
        "probability would leave nothing.": toy_filters.crossing_dropped,
        "The running sum goes over the tokens in the order of the vocabulary. The best come first.": (
            toy_filters.unsorted
        ),
        "Sorted, but the wrong way round: you keep the worst tokens.": toy_filters.ascending,
        "What is left does not sum to 1.": toy_filters.not_renormalised,
        "The temperature comes before the filter. It changes how many tokens it takes to reach p.": (
            toy_filters.temperature_after
        ),
        "Where is the temperature?": toy_filters.no_temperature,
        "Logits are divided by the temperature: a low one makes the best token more likely.": (
            toy_filters.multiplied
        ),
        "The probabilities are right, but in sorted order: entry i has to belong to token i.": (
            toy_filters.sorted_order
        ),
        "That compares each token with the best one, which is min-p. Top-p looks at the running sum.": (
            toy_filters.as_min_p
        ),
        "A logit of 0 is not a probability of 0: after softmax the dropped tokens have some left.": (
            toy_filters.zeros_softmaxed
        ),
        "The token that crosses p is dropped, unless it is the best one. It always belongs to the set.": (
            toy_filters.never_empty
        ),
        "One token too many: the one that crosses p is the last of the set.": toy_filters.one_too_many,
        "You keep tokens that have p each. Top-p adds probabilities up, best first, until the sum has p.": (
            toy_filters.large_enough
        ),
        "The running sum goes over scores, which may be negative and sum to anything. First the softmax.": (
            toy_filters.sum_of_logits
        ),
        "Back to the order of the vocabulary: `places[i]` says to which token number i of the sorted ones "
        "belongs. So it is the index where you write, not where you read.": toy_filters.looked_up,
        "Softmax is for scores. Of probabilities it makes flatter ones: to make them sum to 1 again, divide "
        "by their sum.": toy_filters.softmax_twice,
        "A softmax at the end gives every token a probability, also cut ones. Divide by the sum instead.": (
            toy_filters.softmax_over_all
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
        "The length grows by one for each call, and it says what comes back. A prompt has several tokens.": (
            toy_caches.CountsCallsUpToLength
        ),
        "A prompt goes to the front and counts as one token: the next token is written into it.": (
            toy_caches.CountsCallsFromZero
        ),
        "After a prompt the length is one too large: it is counted twice, once as T and once as 1.": (
            toy_caches.CountsPromptsOneTooMany
        ),
        "You count first and write afterwards: there is a gap of zeros before the new keys.": (
            toy_caches.WritesAfterCounting
        ),
        "You count first and write afterwards, behind what comes back: the new keys are not in it.": (
            toy_caches.WritesAfterCountingUpToLength
        ),
        "All of the memory comes back, also what nobody has written: zeros get a share of the softmax.": (
            toy_caches.ReturnsEverything
        ),
        "What this pass has written is missing in what comes back; new tokens look at themselves, too.": (
            toy_caches.ReturnsOld
        ),
        "The newest token is missing in what comes back; it looks at itself, too.": (
            toy_caches.ReturnsAllButTheNewest
        ),
        "Only the newest keys and values come back. Attention needs all that the cache has been given. (If "
        "your slice begins at 0, look at where you write, and at what `length` is afterwards.)": (
            toy_caches.ReturnsNew
        ),
        "The length is that of the newest pass alone. It has to count all tokens.": (
            toy_caches.CountsTheNewestPass
        ),
        "A second pass of several tokens goes to the front again. A long prompt may come in pieces.": (
            toy_caches.LongPassFromZero
        ),
        "After a second pass of several tokens, the length forgets the ones before: it is T, not T more.": (
            toy_caches.LongPassForgetsTheOnesBefore
        ),
        "The keys are right now. The values are not.": toy_caches.KeysOnly,
        "The keys are right. Look at what you write into the values.": toy_caches.KeysAsValues,
        "Look at what you write into the keys.": toy_caches.ValuesAsKeys,
    },
    run=toy_caches.try_cache,
)
