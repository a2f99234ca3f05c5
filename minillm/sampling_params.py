"""How to choose tokens and when to stop: one request's settings, checked when they are made."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from minillm import checks
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
        checked = {
            "max_tokens": checks.whole("max_tokens", self.max_tokens, 1),
            "temperature": checks.number("temperature", self.temperature, 0.0),
            "top_k": checks.whole("top_k", self.top_k, 0),
            "top_p": checks.number("top_p", self.top_p, 0.0, 1.0, above=True),
            "min_p": checks.number("min_p", self.min_p, 0.0, 1.0),
            "repetition_penalty": checks.number(
                "repetition_penalty", self.repetition_penalty, 0.0, above=True
            ),
            "seed": None if self.seed is None else checks.whole("seed", self.seed, 0, MAX_SEED),
            "stop": _strings(self.stop),
            "stop_token_ids": _ids(self.stop_token_ids),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if not isinstance(self.ignore_eos, bool):
            raise InputError(f"ignore_eos is {self.ignore_eos!r}: it must be true or false")


def _several(value: object) -> tuple:
    """What is iterable as a tuple, anything else, a text and a mapping, as a tuple of one."""
    one = isinstance(value, str | Mapping) or not isinstance(value, Iterable)
    return (value,) if one else tuple(value)


def _strings(value: str | Iterable[str]) -> tuple[str, ...]:
    strings = _several(value)
    if not all(isinstance(s, str) and s for s in strings):
        raise InputError(f"stop is {checks.shown(value)}: it must be one or more strings that are not empty")
    return strings


def _ids(value: int | Iterable[int]) -> tuple[int, ...]:
    return tuple(checks.whole("stop_token_ids", token_id, 0) for token_id in _several(value))
