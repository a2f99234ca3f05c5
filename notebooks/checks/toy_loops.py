"""Decode loops for notebook 05: a right one, those that learners write, and a model to try them on."""

from collections.abc import Callable
from itertools import zip_longest

import torch

VOCAB = 11


class FakeModel:
    """Answers token t with token (3 t + 1) mod 11, whatever came before, and writes down what it was fed."""

    def __init__(self):
        self.passes = []

    def step(self, token_ids, start):
        if isinstance(token_ids, int) or getattr(token_ids, "ndim", 1) == 0:
            raise TypeError(f"`step` takes a list of ids: [{int(token_ids)}], not {int(token_ids)}.")
        ids = [int(token) for token in token_ids]
        self.passes.append((ids, int(start)))
        if len(self.passes) > 40:
            raise RuntimeError("fed 40 times, and the loop does not end")
        scores = torch.zeros(VOCAB)
        scores[(3 * ids[-1] + 1) % VOCAB] = 1.0
        return scores


def try_loop(answer: Callable, prompt: list[int], new: int, end_ids: set[int]) -> str | None:
    """The first thing that is wrong with what `answer` feeds and returns, as a sentence; or "right"."""
    tokens, passes = _run(answer, prompt, new, end_ids)
    if tokens is None:
        return None
    right_tokens, right_passes = _run(right_loop, prompt, new, end_ids)
    for number, (one, other) in enumerate(zip_longest(passes, right_passes), 1):
        if one is None:
            return f"{number - 1} passes where {len(right_passes)} are needed"
        if other is None:
            count = "" if len(tokens) == len(right_tokens) else f", and {len(tokens)} tokens are returned"
            return f"pass {number} feeds {_said(*one)}: one pass too many{count}"
        if one != other:
            return f"pass {number} feeds {_said(*one)} where {_said(*other)} is right"
    if tokens == right_tokens:
        return "right"
    return f"the passes are right, but it returns {tokens}, not {right_tokens}"


def _said(ids: list[int], start: int) -> str:
    return f"{ids if len(ids) < 6 else f'{len(ids)} tokens'} at {start}"


def _run(answer, prompt, new, end_ids):
    model = FakeModel()
    tokens = answer(model.step, list(prompt), new, set(end_ids))
    return tokens if tokens is None else [int(token) for token in tokens], model.passes


def right_loop(step, prompt, new, end_ids, start=None, newest=None):
    """`start(prompt, tokens)` and `newest(prompt, tokens)` say what a step feeds, and where."""
    start = start or (lambda prompt, tokens: len(prompt) + len(tokens) - 1)
    newest = newest or (lambda prompt, tokens: tokens[-1:])
    tokens = [int(step(prompt, 0).argmax())]
    while len(tokens) < new and tokens[-1] not in end_ids:
        tokens.append(int(step(newest(prompt, tokens), start(prompt, tokens)).argmax()))
    return tokens


def fed_again(step, prompt, new, end_ids):
    return right_loop(step, prompt, new, end_ids, lambda *_: 0, lambda prompt, tokens: prompt + tokens)


def one_too_far(step, prompt, new, end_ids):
    return right_loop(step, prompt, new, end_ids, lambda prompt, tokens: len(prompt) + len(tokens))


def restarts(step, prompt, new, end_ids):
    return right_loop(step, prompt, new, end_ids, lambda prompt, tokens: len(tokens) - 1)


def restarts_at_one(step, prompt, new, end_ids):
    return right_loop(step, prompt, new, end_ids, lambda prompt, tokens: len(tokens))


def stands_still(step, prompt, new, end_ids):
    return right_loop(step, prompt, new, end_ids, lambda prompt, tokens: len(prompt))


def feeds_the_last(step, prompt, new, end_ids):
    tokens, scores = [], step(prompt, 0)
    for _ in range(new):
        tokens.append(int(scores.argmax()))
        if tokens[-1] in end_ids:
            break
        scores = step(tokens[-1:], len(prompt) + len(tokens) - 1)
    return tokens


def feeds_the_last_and_the_end(step, prompt, new, end_ids):
    tokens, scores, start = [], step(prompt, 0), len(prompt)
    while len(tokens) < new and not (tokens and tokens[-1] in end_ids):
        tokens.append(int(scores.argmax()))
        scores, start = step(tokens[-1:], start), start + 1
    return tokens


def forgets_the_first(step, prompt, new, end_ids):
    step(prompt, 0)
    tokens, newest, start = [], prompt[-1:], len(prompt)
    while len(tokens) < new and not (tokens and tokens[-1] in end_ids):
        tokens.append(int(step(newest, start).argmax()))
        newest, start = tokens[-1:], start + 1
    return tokens


def prompt_piecemeal(step, prompt, new, end_ids):
    for start, token in enumerate(prompt[:-1]):
        step([token], start)
    before = len(prompt) - 1
    return right_loop(lambda ids, start: step(ids[-1:], start or before), prompt, new, end_ids)


def never_stops(step, prompt, new, end_ids):
    return right_loop(step, prompt, new, ())


def stops_before_the_end_token(step, prompt, new, end_ids):
    tokens = right_loop(step, prompt, new, end_ids)
    return tokens[:-1] if tokens[-1] in end_ids else tokens


def with_prompt(step, prompt, new, end_ids):
    return prompt + right_loop(step, prompt, new, end_ids)


def one_too_many(step, prompt, new, end_ids):
    return right_loop(step, prompt, new + 1, end_ids)


def checks_the_end_too_late(step, prompt, new, end_ids):
    answer = [int(step(prompt, 0).argmax())]
    while len(answer) < new:
        answer.append(int(step(answer[-1:], len(prompt) + len(answer) - 1).argmax()))
        if answer[-1] in end_ids:
            break
    return answer


def last_of_prompt_again(step, prompt, new, end_ids):
    step(prompt, 0)
    answer, newest, start = [], prompt[-1:], len(prompt) - 1
    while len(answer) < new and not (answer and answer[-1] in end_ids):
        answer.append(int(step(newest, start).argmax()))
        newest, start = answer[-1:], start + 1
    return answer
