"""Caches for the repair exercise of notebook 05: a right one, and those that learners write."""

from collections.abc import Callable
from itertools import groupby

import torch


class Repaired:
    """Room for `capacity` tokens, [K, capacity, D]; knows how many it holds.

    `writes_at`, `counts` and `result` say where a pass of T tokens is written, what `length` is afterwards,
    and which slots come back.
    """

    counts_first = False
    writes_at = staticmethod(lambda cache, T: cache.length)
    counts = staticmethod(lambda cache, T: cache.length + T)
    result = staticmethod(lambda cache, begin, T: slice(0, begin + T))

    def __init__(self, capacity: int, K: int, D: int):
        self.keys = torch.zeros(K, capacity, D)
        self.values = torch.zeros(K, capacity, D)
        self.length = 0

    def append(self, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        T = k.shape[1]
        length = self.counts(self, T)
        if self.counts_first:
            self.length = length
        begin = self.writes_at(self, T)
        self.write(k, v, begin)
        self.length = length
        back = self.result(self, begin, T)
        return self.keys[:, back], self.values[:, back]

    def write(self, k, v, begin):
        self.keys[:, begin : begin + k.shape[1]] = k
        self.values[:, begin : begin + v.shape[1]] = v


AT_THE_FRONT = staticmethod(lambda cache, T: cache.length if T == 1 else 0)
UP_TO_LENGTH = staticmethod(lambda cache, begin, T: slice(0, cache.length))


class StillBroken(Repaired):
    """The cache as the exercise gives it."""

    writes_at = AT_THE_FRONT
    counts = staticmethod(lambda cache, T: cache.length if T == 1 else T)


class CountsCalls(Repaired):
    counts = staticmethod(lambda cache, T: cache.length + 1)


class CountsCallsUpToLength(CountsCalls):
    result = UP_TO_LENGTH


class CountsCallsFromZero(CountsCalls):
    writes_at = AT_THE_FRONT


class CountsTheNewestPass(Repaired):
    counts = staticmethod(lambda cache, T: T)


class CountsPromptsOneTooMany(Repaired):
    writes_at = AT_THE_FRONT
    counts = staticmethod(lambda cache, T: (cache.length if T == 1 else T) + 1)


class WritesAfterCounting(Repaired):
    counts_first = True


class WritesAfterCountingUpToLength(WritesAfterCounting):
    result = UP_TO_LENGTH


class ReturnsEverything(Repaired):
    result = staticmethod(lambda cache, begin, T: slice(None))


class ReturnsOld(Repaired):
    """Without the pass's own tokens."""

    result = staticmethod(lambda cache, begin, T: slice(0, begin))


class ReturnsAllButTheNewest(Repaired):
    result = staticmethod(lambda cache, begin, T: slice(0, begin + T - 1))


class ReturnsNew(Repaired):
    result = staticmethod(lambda cache, begin, T: slice(begin, begin + T))


class LongPassFromZero(Repaired):
    """Decoding mended, but every pass of several tokens still counts as a prompt at the front."""

    writes_at = AT_THE_FRONT
    counts = staticmethod(lambda cache, T: cache.length + 1 if T == 1 else T)


class LongPassForgetsTheOnesBefore(Repaired):
    """Written at its own place, but `self.length = T` is still there."""

    counts = staticmethod(lambda cache, T: cache.length + 1 if T == 1 else T)


class KeysOnly(Repaired):
    """Keys mended; values still written where the broken cache writes them."""

    prompt = 0

    def write(self, k, v, begin):
        T = k.shape[1]
        self.prompt = T if T > 1 else self.prompt
        at = 0 if T > 1 else self.prompt
        self.keys[:, begin : begin + T] = k
        self.values[:, at : at + T] = v


class KeysAsValues(Repaired):
    def write(self, k, v, begin):
        super().write(k, k, begin)


class ValuesAsKeys(Repaired):
    def write(self, k, v, begin):
        super().write(v, v, begin)


def try_cache(answer: Callable, passes: tuple[int, ...]) -> str | None:
    """The first thing that is wrong with what comes back from passes of so many tokens; or "right"."""
    cache, made = answer(12, 2, 3), 0
    for number, T in enumerate(passes, 1):
        tokens = 1.0 + torch.arange(made, made + T)[None, :, None]
        k = (
            tokens + torch.tensor([0.0, 0.25])[:, None, None] + 0.01 * torch.arange(3)
        )  # [2, T, 3], all unlike
        made += T
        given = cache.append(k.clone(), 100 + k)
        if given is None:
            return None
        fault = _fault(given, made)
        if fault:
            return f"pass {number} gave back {fault}"
    return "right"


def _fault(given: object, made: int) -> str:
    """What is wrong with keys and values that should be those of tokens 1 … `made`; empty if nothing."""
    if not (isinstance(given, tuple | list) and len(given) == 2):
        return "something else than a pair, keys and values"
    every = torch.arange(1, made + 1)[None, :, None] + torch.tensor([0.0, 0.25])[:, None, None]
    for what, kept, right in zip(("keys", "values"), given, (0, 100), strict=True):
        if kept.dim() != 3 or (kept.shape[0], kept.shape[2]) != (2, 3):
            return f"{what} of shape {list(kept.shape)}, not {[2, made, 3]}"
        tokens = _listed([int(number) - right if number else 0 for number in kept[0, :, 0].tolist()])
        if tokens != _listed(range(1, made + 1)):
            return f"{what} of {tokens}; expected: {_listed(range(1, made + 1))}"
        if not torch.allclose(kept, right + every + 0.01 * torch.arange(3)):
            return f"{what} of the right tokens, but mixed up in heads or parts"
    return ""


def _listed(tokens) -> str:
    """Runs in short: [1, 2, 3, 7, 0, 0] is "tokens 1 to 3, 7, 2 empty slots"."""
    parts = []
    for _, run in groupby(enumerate(tokens), lambda place: place[1] - place[0] if place[1] else None):
        run = [token for _, token in run]
        if run[0] == 0:
            parts.append(f"{len(run)} empty slot{'s' * (len(run) > 1)}")
        else:
            parts.append(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)))
    return "tokens " + ", ".join(parts) if parts else "no token"
