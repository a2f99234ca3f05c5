"""An exercise in which each of some suspects gets a verdict, one word; for a wrong one, how to find out."""

from collections.abc import Callable
from dataclasses import dataclass, field

from checks.exercise import Exercise, Trial

NUMBERS = {5: "five", 6: "six"}


@dataclass(frozen=True)
class Verdicts(Exercise):
    """`truth`: the word for each letter; `experiments`: what to try or compute where a letter's is wrong."""

    truth: dict[str, str] = field(default_factory=dict)
    experiments: dict[str, str] = field(default_factory=dict)

    def _hint(self, given: list[Trial]) -> str:
        said, hint = given[0].outcome, super()._hint(given)
        if hint or isinstance(said, Exception):
            return hint
        number = NUMBERS[len(self.truth)]
        missing = [letter for letter in self.truth if letter not in said]
        if missing:
            return f". Give all {number} letters in one dictionary: there is no {', '.join(missing)}."
        letter = next(letter for letter, fault in self.truth.items() if said[letter] != fault)
        if said[letter] not in self.truth.values():
            return f". {letter} is {said[letter]!r}, which is none of the {number} words in the text above."
        return f". {letter} is not {said[letter]!r}. {self.experiments[letter]}"


def judging(
    name: str, truth: dict[str, str], experiments: dict[str, str], mistakes: dict[str, Callable]
) -> Verdicts:
    """The exercise; an answer is a function that returns a dictionary from letters to words."""
    cases = (("".join(truth),),)
    return Verdicts(name, lambda: truth, cases, mistakes, _said, truth=truth, experiments=experiments)


def exchanged(truth: dict[str, str], one: str, other: str) -> Callable:
    """An answer in which two verdicts have changed places."""
    return lambda: truth | {one: truth[other], other: truth[one]}


def _said(answer: Callable, letters: str) -> dict[str, str]:
    """The verdicts of an answer in small letters; those that it does not give are left out."""
    said = answer()
    given = said if isinstance(said, dict) else {}
    return {letter: str(given[letter]).strip().lower() for letter in letters if letter in given}
