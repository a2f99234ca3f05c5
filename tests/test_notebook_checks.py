"""The checks of the exercises: the solution passes, each typical mistake gets its own hint and no other."""

import json
from importlib import import_module
from pathlib import Path

import pytest
import torch
from notebook_rules import REPORT

from checks.exercise import IN_PLACE, SKIPPED, Exercise, difference, same

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
MODULES = sorted(path.stem for path in NOTEBOOKS.glob("checks/nb*.py"))


def exercises(module: str) -> dict[str, Exercise]:
    return {k: v for k, v in vars(import_module(f"checks.{module}")).items() if isinstance(v, Exercise)}


EXERCISES = [(module, name) for module in MODULES for name in exercises(module)]
MISTAKES = [(*place, hint) for place in EXERCISES for hint in exercises(place[0])[place[1]].mistakes]


@pytest.mark.parametrize(("module", "name"), EXERCISES)
def test_the_solution_is_right(module, name):
    exercise = exercises(module)[name]
    assert exercise.verdict(exercise.solution) == "right."


@pytest.mark.parametrize(("module", "name", "hint"), MISTAKES)
def test_a_typical_mistake_gets_its_hint(module, name, hint):
    exercise = exercises(module)[name]
    assert exercise.verdict(exercise.mistakes[hint]) == f"not yet. {hint}"


@pytest.mark.parametrize(("module", "name"), EXERCISES)
def test_an_answer_that_does_nothing_is_not_right(module, name):
    exercise = exercises(module)[name]
    assert exercise.verdict(lambda *case: None).startswith("not yet")


LESSONS = [path.name for path in sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb")) if path.name[:2] != REPORT]


@pytest.mark.parametrize("notebook", LESSONS)
def test_every_notebook_checks_at_least_three_exercises(notebook):
    module = f"nb{notebook[:2]}"
    cells = json.loads((NOTEBOOKS / notebook).read_text(encoding="utf-8"))["cells"]
    source = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    names = exercises(module)
    assert len(names) >= 3
    assert [name for name in names if f"{module}.{name}.check(" not in source] == []
    assert source.count("### BEGIN SOLUTION") >= len(names)
    assert sum(len(exercise.mistakes) for exercise in names.values()) >= 2 * len(names)


# ---- the machinery ----

double = Exercise(
    "double",
    lambda x: 2 * x,
    ((1.0,), (3.0,)),
    {"Twice, not squared.": lambda x: x * x, "No sign.": lambda x: -2 * x},
)


def test_right_wrong_and_unknown(capsys):
    double.check(lambda x: x + x)
    double.check(lambda x: x * x)
    double.check(lambda x: x + 7)
    assert capsys.readouterr().out.splitlines() == [
        "double: right.",
        "double: not yet. Twice, not squared.",
        "double: not yet (for 1.0): it gave 8.0 (float).",
    ]


def test_a_mistake_must_fit_every_case():
    assert double.verdict(lambda x: 1.0 if x == 1.0 else 6.0) == "not yet (for 1.0): it gave 1.0 (float)."


def test_unanswered():
    def stub(x):
        raise NotImplementedError

    assert double.verdict(stub) == SKIPPED


def test_what_pytorch_has_not_implemented_is_not_taken_for_a_blank():
    shifted = double.verdict(lambda x: torch.ones(1, dtype=torch.uint16) << 1)
    assert "NotImplementedError" in shifted
    assert shifted != SKIPPED


def test_an_error_in_the_answer_is_named():
    assert "ZeroDivisionError" in double.verdict(lambda x: 1 / 0)


def test_an_answer_cannot_spoil_the_cases_and_is_told_when_it_tries():
    adds = Exercise("adds", lambda x: x + 1, ((torch.zeros(2),),))
    assert adds.verdict(lambda x: x.add_(1)) == f"not yet. {IN_PLACE}"
    assert adds.verdict(lambda x: x + 1) == "right."
    fills = Exercise("fills", lambda x: x.append(1) or x, (([],),))  # where changing it is the task
    assert fills.verdict(lambda x: x.append(1) or x) == "right."


def test_a_forgotten_return_is_named():
    assert double.verdict(lambda x: None) == "not yet (for 1.0): it gave None: did you forget `return`?"


def test_what_a_trial_says_itself_is_told_as_it_is():
    spoken = Exercise("spoken", lambda: "fine.", ((),), run=lambda answer: answer())
    assert spoken.verdict(lambda: "Pass 2 feeds too much.") == "not yet. Pass 2 feeds too much."


def test_a_long_case_is_not_printed():
    long = Exercise("long", len, (("x" * 200, "y" * 200),), run=lambda answer, *texts: answer(texts[0]))
    assert long.verdict(lambda text: 7) == "not yet: it gave 7 (int)."


def test_an_expected_error():
    refuses = Exercise("refuses", lambda x: [][x], ((0,),), {"Say no.": lambda x: x})
    assert refuses.verdict(lambda x: "abc"[5]) == "right."
    assert refuses.verdict(lambda x: 0) == "not yet. Say no."
    assert "should have raised IndexError" in refuses.verdict(lambda x: 1)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True), (1.0, 1.01), (100_000, 100_001), ("1", 1), ([1, 2], [1]), ([1, 2], [2, 1]), (None, 0),
        ({"a": 1}, {"b": 1}),
        (torch.ones(2), torch.ones(1, 2)), (torch.ones(2), torch.ones(2, dtype=torch.int64)),
        (torch.ones(2, dtype=torch.bool), torch.ones(2, dtype=torch.int64)), (torch.ones(1), 1.0),
        (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, 2.0])),
    ],
)  # fmt: skip
def test_different(one, other):
    assert not same(one, other)
    assert not same(other, one)
    assert same(one, one)


def test_rounding_is_no_difference():
    assert same(10.004, 10.0)
    assert same(torch.tensor([1000.0, 0.0]), torch.tensor([1000.1, 0.1]))
    assert same((1, [2.0]), [1, (2.0,)])


def test_a_difference_is_described():
    eye = torch.eye(3)
    assert difference(eye[:2], eye) == "the shape is [2, 3] where [3, 3] is expected."
    assert difference(eye.int(), eye) == "the dtype is torch.int32 where torch.float32 is expected."
    assert difference(eye + torch.tensor([0, 0, 1]), eye) == "3 of 9 entries are wrong, the first at [0, 2]."


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "right."),
        ({"C": " None "}, "right."),
        ({"A": "none"}, "not yet. A is not 'none'. Try queries of zero, then others."),
        ({"C": "mask"}, "not yet. C is not 'mask'. Compare it with F.scaled_dot_product_attention."),
        ({"D": "masks"}, "not yet. D is 'masks', which is none of the five words in the text above."),
    ],
)
def test_a_wrong_verdict_on_a_suspect_is_named(changes, told):
    verdicts = exercises("nb02")["verdicts"]
    assert verdicts.verdict(lambda: verdicts.solution() | changes) == told


def test_missing_verdicts_are_named():
    told = exercises("nb02")["verdicts"].verdict(lambda: {"A": "scale", "C": "none", "D": "mask"})
    assert told == "not yet. Give all five letters in one dictionary: there is no B, E."
