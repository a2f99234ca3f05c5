"""How to choose tokens and when to stop: one request's settings, checked when they are made."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from minillm.errors import InputError

MAX_SEED = 2**63 - 1  # the generator takes 64 bits; the upper half is left for a request's place in the call


@dataclass(frozen=True)
class SamplingParams:
    """Settings of one request; `temperature=0` is greedy and then the filters do not matter."""

    max_tokens: int = 256  # new tokens, end token included
    temperature: float = 0.0  # logits are divided by it
    top_k: int = 0  # keep the k best; 0 keeps all
    top_p: float = 1.0  # keep the smallest set whose probabilities sum to at least this (nucleus sampling)
    min_p: float = 0.0  # keep tokens of at least this share of the best one's probability
    repetition_penalty: float = 1.0  # > 1 lowers the logits of tokens already seen, prompt included
    seed: int | None = None  # None: derived from the engine's seed and the request's place in the call
    stop: tuple[str, ...] = ()  # strings that end the text and are not part of it
    stop_token_ids: tuple[int, ...] = ()  # token ids that end it beside the model's own end tokens
    ignore_eos: bool = False  # go on past the model's end tokens

    def __post_init__(self):
        object.__setattr__(self, "stop", _strings(self.stop))
        object.__setattr__(self, "stop_token_ids", _ids(self.stop_token_ids))
        _whole("max_tokens", self.max_tokens, low=1)
        _whole("top_k", self.top_k, low=0)
        _within("temperature", self.temperature, 0.0, math.inf)
        _within("top_p", self.top_p, 0.0, 1.0, open_low=True)
        _within("min_p", self.min_p, 0.0, 1.0)
        _within("repetition_penalty", self.repetition_penalty, 0.0, math.inf, open_low=True)
        if self.seed is not None:
            _whole("seed", self.seed, low=0, high=MAX_SEED)
        if not isinstance(self.ignore_eos, bool):
            raise InputError(f"ignore_eos is {self.ignore_eos!r}: it must be true or false")


def _whole(name: str, value: object, low: int, high: float = math.inf) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        limit = "" if high == math.inf else f" and at most {high}"
        raise InputError(f"{name} is {value!r}: it must be a whole number of at least {low}{limit}")


def _within(name: str, value: object, low: float, high: float, open_low: bool = False) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not (low < value if open_low else low <= value) or value > high:
        bounds = f"above {low:g}" if open_low else f"at least {low:g}"
        limit = "" if high == math.inf else f" and at most {high:g}"
        raise InputError(f"{name} is {value!r}: it must be a number {bounds}{limit}")


def _several(value: object) -> tuple:
    """What is iterable as a tuple, anything else, and a text, as a tuple of one."""
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)


def _strings(value: str | Iterable[str]) -> tuple[str, ...]:
    strings = _several(value)
    if not all(isinstance(s, str) and s for s in strings):
        raise InputError(f"stop is {value!r}: it must be one or more strings that are not empty")
    return strings


def _ids(value: int | Iterable[int]) -> tuple[int, ...]:
    ids = _several(value)
    for token_id in ids:
        _whole("stop_token_ids", token_id, low=0)
    return ids
