"""An exercise and its check: right, or what is wrong with it. A wrong answer never stops the notebook."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from math import isclose
from typing import Any

import torch

SKIPPED = "not answered yet: replace the line that raises NotImplementedError."
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
        given, expected = self._outcomes(answer), self._outcomes(self.solution)
        if any(unanswered(outcome) for outcome in given):
            return SKIPPED
        if same(given, expected):
            return "right."
        for hint, mistake in self.mistakes.items():
            if same(given, self._outcomes(mistake)):
                return f"not yet. {hint}"
        return "not yet: " + next(
            difference(a, b) for a, b in zip(given, expected, strict=True) if not same(a, b)
        )

    def _outcomes(self, answer: Callable) -> list[Any]:
        """What `answer` gives in each case; an exception counts as an outcome."""
        return [self._outcome(answer, case) for case in self.cases]

    def _outcome(self, answer: Callable, case: tuple) -> Any:
        try:
            with torch.no_grad():
                return self.run(answer, *deepcopy(case))
        except Exception as error:
            return error


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
    text = f"a tensor of shape {list(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
