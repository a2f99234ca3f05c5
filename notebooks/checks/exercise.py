"""An exercise and its check: right, or what is wrong with it. A wrong answer never stops the notebook."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from math import isclose
from typing import Any

import torch

SKIPPED = "not answered yet: replace the line that raises NotImplementedError."
IN_PLACE = "The result is right, but your code changed what it was given; its caller may still need that."
LONGEST_CASE = 90  # characters
TOLERANCE = 1e-3  # relative, and absolute for parts of tensors: enough for another order of float32 sums


def call(answer: Callable, *case: Any) -> Any:
    """The usual way to try an answer: call it."""
    return answer(*case)


@dataclass(frozen=True)
class Exercise:
    """`check(answer)` compares an answer with `solution` on every case.

    `cases` hold the arguments of one trial each. `mistakes` maps a hint to a function that makes the mistake
    which the hint explains: an answer that gives what it gives, in every case, gets the hint.
    `run(answer, *case)` says how an answer is tried where calling it is not enough, as when it is a class.
    """

    name: str
    solution: Callable
    cases: tuple[tuple, ...]
    mistakes: dict[str, Callable] = field(default_factory=dict)
    run: Callable = call

    def check(self, answer: Callable) -> None:
        """Print one line: right, or a hint."""
        print(f"{self.name}: {self.verdict(answer)}")

    def verdict(self, answer: Callable) -> str:
        """What `check` prints after the name."""
        given, expected = self._trials(answer), self._trials(self.solution)
        if any(unanswered(trial.outcome) for trial in given):
            return SKIPPED
        if not _same_outcomes(given, expected):
            return "not yet" + (self._hint(given) or self._first_difference(given, expected))
        if any(a.changed and not b.changed for a, b in zip(given, expected, strict=True)):
            return "not yet. " + IN_PLACE
        return "right."

    def _hint(self, given: list["Trial"]) -> str:
        """The hint of the first mistake that gives the same in every case, if there is one."""
        for hint, mistake in self.mistakes.items():
            if _same_outcomes(given, self._trials(mistake)):
                return f". {hint}"
        return ""

    def _first_difference(self, given: list["Trial"], expected: list["Trial"]) -> str:
        """The first case that went wrong, named where that is short, and how."""
        pairs = zip(given, expected, strict=True)
        mine, right = next((a, b) for a, b in pairs if not same(a.outcome, b.outcome))
        named = ", ".join(map(_brief, mine.case))
        place = f" (for {named})" if 0 < len(named) <= LONGEST_CASE else ""
        if self.run is not call and isinstance(mine.outcome, str):
            return f". {mine.outcome}"  # a `run` of one's own says itself what went wrong
        return f"{place}: {difference(mine.outcome, right.outcome)}"

    def _trials(self, answer: Callable) -> list["Trial"]:
        return [self._trial(answer, case) for case in self.cases]

    def _trial(self, answer: Callable, case: tuple) -> "Trial":
        given = deepcopy(case)
        try:
            with torch.no_grad():
                outcome = self.run(answer, *given)
        except Exception as error:
            outcome = error
        return Trial(case, outcome, changed=not same(given, case))


@dataclass(frozen=True)
class Trial:
    """What an answer gave in one case, an exception included, and whether it changed its arguments."""

    case: tuple
    outcome: Any
    changed: bool


def _same_outcomes(given: list[Trial], expected: list[Trial]) -> bool:
    return all(same(a.outcome, b.outcome) for a, b in zip(given, expected, strict=True))


def unanswered(outcome: Any) -> bool:
    """Whether it is the bare NotImplementedError of a blank exercise; PyTorch's own say what is missing."""
    return isinstance(outcome, NotImplementedError) and not outcome.args


def same(value: Any, other: Any) -> bool:
    """Equal up to rounding, element by element in lists, tuples and dictionaries; kinds must agree."""
    if isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor):
        return _same_tensors(value, other)
    if isinstance(value, Exception) or isinstance(other, Exception):
        return type(value) is type(other)
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(value, int) and isinstance(other, int):
        return value == other  # counts: off by one is a mistake however large they are
    if isinstance(value, int | float) and isinstance(other, int | float):
        return isclose(value, other, rel_tol=TOLERANCE) or value == other
    if isinstance(value, list | tuple) and isinstance(other, list | tuple):
        return len(value) == len(other) and all(map(same, value, other))
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(same(value[name], other[name]) for name in value)
    return type(value) is type(other) and value == other


def _same_tensors(value: torch.Tensor, other: torch.Tensor) -> bool:
    alike = value.shape == other.shape and value.is_floating_point() == other.is_floating_point()
    if not alike or (value.dtype == torch.bool) != (other.dtype == torch.bool):
        return False
    a, b = value.double(), other.double()
    return torch.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE * _scale(b), equal_nan=True)


def _scale(values: torch.Tensor) -> float:
    finite = values[values.isfinite()]
    return finite.abs().max().item() if finite.numel() else 1.0


def difference(given: Any, expected: Any) -> str:
    """What tells `given` from `expected`, for a mistake that nobody foresaw."""
    if isinstance(given, Exception):
        return f"your code raised {type(given).__name__}: {given}"
    if given is None:
        return "it gave None: did you forget `return`?"
    if isinstance(expected, Exception):
        return f"your code should have raised {type(expected).__name__}, but gave {_brief(given)}."
    if not (isinstance(given, torch.Tensor) and isinstance(expected, torch.Tensor)):
        return f"it gave {_brief(given)} ({type(given).__name__})."
    if given.shape != expected.shape:
        return f"the shape is {list(given.shape)} where {list(expected.shape)} is expected."
    if given.is_floating_point() != expected.is_floating_point():
        return f"the dtype is {given.dtype} where {expected.dtype} is expected."
    wrong = ~torch.isclose(given.double(), expected.double(), rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
    place = wrong.nonzero()[0].tolist() if wrong.any() else [0] * given.dim()
    return f"{int(wrong.sum())} of {wrong.numel()} entries are wrong, the first at {place}."


def _brief(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {list(value.shape)}"
    text = " ".join(repr(value).split())  # tensors in a dictionary come with line breaks
    return text if len(text) <= 80 else text[:77] + "..."
