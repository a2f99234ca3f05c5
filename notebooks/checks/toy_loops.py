"""Decode loops for notebook 05: a right one, those that learners write, and a model to try them on."""

from collections.abc import Callable

import torch

VOCAB = 11


class FakeModel:
    """Answers token t with token (3 t + 1) mod 11, whatever came before, and writes down what it was fed."""

    def __init__(self):
        self.passes, self.held = [], 0

    def feed(self, token_ids, start):
        ids = [int(token) for token in token_ids]
        self.passes.append(f"feeds {ids} at {int(start)}; the cache holds {self.held}")
        self.held += len(ids)
        if len(self.passes) > 40:
            raise RuntimeError("fed 40 times, and the loop does not end")
        logits = torch.zeros(VOCAB)
        logits[(3 * ids[-1] + 1) % VOCAB] = 1.0
        return logits


def try_loop(answer: Callable, prompt: list[int], new: int, end_ids: set[int]) -> str:
    """What `answer` fed and returned, the first pass that differs from the right one in front."""
    tokens, passes = _run(answer, prompt, new, end_ids)
    _, right_passes = _run(right_loop, prompt, new, end_ids)
    for number, (one, other) in enumerate(zip(passes, right_passes, strict=False), 1):
        if one != other:
            return f"pass {number} {one}. All: {passes}, {tokens}"
    if len(passes) != len(right_passes):
        return f"{len(passes)} passes where {len(right_passes)} are enough and needed. {passes}, {tokens}"
    return f"{tokens} of at most {new} tokens after {prompt}, end {sorted(end_ids)}"


def _run(answer, prompt, new, end_ids):
    model = FakeModel()
    tokens = answer(model.feed, list(prompt), new, set(end_ids))
    return [int(token) for token in tokens], model.passes


def right_loop(feed, prompt, new, end_ids, start=None, newest=None):
    """`start(prompt, tokens)` and `newest(prompt, tokens)` say what a step feeds, and where."""
    start = start or (lambda prompt, tokens: len(prompt) + len(tokens) - 1)
    newest = newest or (lambda prompt, tokens: tokens[-1:])
    tokens = [int(feed(prompt, 0).argmax())]
    while len(tokens) < new and tokens[-1] not in end_ids:
        tokens.append(int(feed(newest(prompt, tokens), start(prompt, tokens)).argmax()))
    return tokens


def fed_again(feed, prompt, new, end_ids):
    return right_loop(feed, prompt, new, end_ids, lambda *_: 0, lambda prompt, tokens: prompt + tokens)


def one_too_far(feed, prompt, new, end_ids):
    return right_loop(feed, prompt, new, end_ids, lambda prompt, tokens: len(prompt) + len(tokens))


def restarts(feed, prompt, new, end_ids):
    return right_loop(feed, prompt, new, end_ids, lambda prompt, tokens: len(tokens) - 1)


def always_zero(feed, prompt, new, end_ids):
    return right_loop(feed, prompt, new, end_ids, lambda *_: 0)


def stands_still(feed, prompt, new, end_ids):
    return right_loop(feed, prompt, new, end_ids, lambda prompt, tokens: len(prompt))


def feeds_the_last(feed, prompt, new, end_ids):
    tokens, logits, start = [], feed(prompt, 0), len(prompt)
    while len(tokens) < new and not (tokens and tokens[-1] in end_ids):
        tokens.append(int(logits.argmax()))
        logits, start = feed(tokens[-1:], start), start + 1
    return tokens


def forgets_the_first(feed, prompt, new, end_ids):
    feed(prompt, 0)
    tokens, newest, start = [], prompt[-1:], len(prompt)
    while len(tokens) < new and not (tokens and tokens[-1] in end_ids):
        tokens.append(int(feed(newest, start).argmax()))
        newest, start = tokens[-1:], start + 1
    return tokens


def prompt_piecemeal(feed, prompt, new, end_ids):
    for start, token in enumerate(prompt[:-1]):
        feed([token], start)
    before = len(prompt) - 1
    return right_loop(lambda ids, start: feed(ids[-1:], start or before), prompt, new, end_ids)


def never_stops(feed, prompt, new, end_ids):
    return right_loop(feed, prompt, new, ())


def stops_before_the_end_token(feed, prompt, new, end_ids):
    tokens = right_loop(feed, prompt, new, end_ids)
    return tokens[:-1] if tokens[-1] in end_ids else tokens


def with_prompt(feed, prompt, new, end_ids):
    return prompt + right_loop(feed, prompt, new, end_ids)


def one_too_many(feed, prompt, new, end_ids):
    return right_loop(feed, prompt, new + 1, end_ids)


def checks_the_end_too_late(feed, prompt, new, end_ids):
    answer = [int(feed(prompt, 0).argmax())]
    while len(answer) < new:
        answer.append(int(feed(answer[-1:], len(prompt) + len(answer) - 1).argmax()))
        if answer[-1] in end_ids:
            break
    return answer


def last_of_prompt_again(feed, prompt, new, end_ids):
    feed(prompt, 0)
    answer, newest, start = [], prompt[-1:], len(prompt) - 1
    while len(answer) < new and not (answer and answer[-1] in end_ids):
        answer.append(int(feed(newest, start).argmax()))
        newest, start = answer[-1:], start + 1
    return answer
