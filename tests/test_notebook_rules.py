"""Notebooks follow the rules of the course; each rule is first shown to catch a case that breaks it."""

import json
from copy import deepcopy
from pathlib import Path

import notebook_rules as rules
import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted(ROOT.glob("notebooks/*.ipynb"))

PRINTED = {"output_type": "stream", "name": "stdout", "text": "1"}
FIGURE = {"output_type": "display_data", "data": {"image/png": "…"}, "metadata": {}}
SOLUTION = "def f():\n    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION"
THREE = "**Three sentences to remember.**\n\n1. One,\n   long.\n2. Two.\n3. Three."


def code(source: str, *outputs: dict) -> dict:
    return {
        "cell_type": "code",
        "source": source,
        "outputs": list(outputs),
        "execution_count": 1,
        "metadata": {"tags": ["nbval-ignore-output"]},
    }


def markdown(source: str) -> dict:
    return {"cell_type": "markdown", "source": source, "metadata": {}}


def good() -> list[dict]:
    """The cells of a notebook without a fault; a string is Markdown."""
    cells = [
        "# 07 · Why?\n\n**What you will have built.** It.\n\n**What you need.** This.",
        "## Predict first",
        code("my_guess_ms = None\nmy_guess_share = None"),
        code("draw()", FIGURE, FIGURE),
        code("_ = interact(draw)", PRINTED),
        "Without a widget:",
        code("draw()", FIGURE),
        "## What we predicted and saw",
        code("print(my_guess_ms, my_guess_share)", PRINTED),
        f"{THREE}\n\n## Exercises",
        code(SOLUTION),
        "## Where the same idea lives in the big engines",
        "## Onwards",
    ]
    cells = [
        {"cell_type": "markdown", "source": c, "metadata": {}} if isinstance(c, str) else c for c in cells
    ]
    return [cell | {"id": f"c{number}"} for number, cell in enumerate(deepcopy(cells))]


def faults(cells: list[dict], report: bool = False) -> list[str]:
    return rules.faults({"cells": cells}, report)


def good_report() -> list[dict]:
    """The cells of a report without a fault."""
    cells = [
        markdown(f"{part}\n\nA card of 8 GB, 16 bits, 20 prompts.")
        for part in rules.REPORT_PARTS
        if part != rules.REMEMBER
    ]
    cells.insert(-1, markdown(THREE))
    cells.insert(2, code("draw()", FIGURE, FIGURE, FIGURE))
    return [cell | {"id": f"c{number}"} for number, cell in enumerate(cells)]


def test_a_good_notebook_passes():
    assert faults(good()) == []


@pytest.mark.parametrize(
    ("number", "changes", "fault"),
    [
        (2, {"execution_count": None}, "outputs are not stored"),
        (3, {"outputs": [FIGURE, FIGURE, {"output_type": "error"}]}, "an error is stored"),
        (3, {"outputs": [FIGURE, FIGURE, {**PRINTED, "name": "stderr"}]}, "something is stored from stderr"),
        (3, {"outputs": [FIGURE]}, "fewer than 3 figures are stored"),
        (3, {"source": "x = 1\n" * 25}, "a code cell has 26 lines, more than 25"),
        (3, {"id": "c2"}, "cells have no id, or two have the same"),
        (3, {"id": None}, "cells have no id, or two have the same"),
        (3, {"metadata": {"tags": ["nbval-ignore-outputs"]}}, "unknown tag nbval-ignore-outputs"),
        (0, {"source": "# 07\n\n**What you need.** This."}, "there is no '**What you will have built.**'"),
        (1, {"source": "Predict first"}, "there is no '## Predict first'"),
        (9, {"source": THREE}, "there is no '## Exercises'"),
        (9, {"source": f"## Exercises\n\n{THREE}"}, "parts are not in the usual order"),
        (9, {"source": f"{THREE[:-9]}\n\n## Exercises"}, "the sentences to remember are not three"),
        (9, {"source": f"{THREE}\n4. Four.\n\n## Exercises"}, "the sentences to remember are not three"),
        (12, {"source": "Onwards"}, "there is no '## Onwards'"),
        (12, {"source": "## Onwards\n\n![a](https://x.org/a.png)"}, "a picture comes from elsewhere"),
        (2, {"source": "guess = None"}, "nothing is predicted: there is no my_guess… = None"),
        (8, {"source": "print(my_guess_share)"}, "my_guess_ms is not shown again at the end"),
        (6, {"outputs": [PRINTED]}, "a widget has no static figure after it"),
        (10, {"source": "### BEGIN SOLUTION\n1\n### END SOLUTION"}, "a solution stands outside a function"),
        (10, {"source": SOLUTION[:-20]}, "solution markers do not pair up"),
        (10, {"source": f"{SOLUTION}\n    # end solution"}, "solution markers do not pair up"),
    ],
)  # fmt: skip
def test_each_fault_is_found(number, changes, fault):
    cells = good()
    cells[number] |= changes
    if number == 6:  # the figure is stored, but not after the widget
        cells[3]["outputs"] = [FIGURE] * 3
    assert faults(cells) == [fault]


def test_a_good_report_passes_and_is_no_lesson():
    assert faults(good_report(), report=True) == []
    assert "there is no '## Exercises'" in faults(good_report())


@pytest.mark.parametrize(
    ("number", "changes", "fault"),
    [
        (0, {"source": "# 20"}, "there is no '**What this is.**'"),
        (-1, {"source": "Books"}, "there is no '## References'"),
        (-2, {"source": THREE[:-9]}, "the sentences to remember are not three"),
        (2, {"outputs": [FIGURE]}, "fewer than 3 figures are stored"),
        (3, {"source": "## 1. Method\n\nIt wrote 5.97 tok/s."}, "a number in the text: 5.97 tok/s"),
        (3, {"source": "## 1. Method\n\nA stall of 60 ms."}, "a number in the text: 60 ms"),
        (3, {"source": "## 1. Method\n1,704 tokens a second"}, "a number in the text: 1,704 tokens a second"),
        (3, {"source": "## 1. Method\n\nThat is 12 % more."}, "a number in the text: 12 %"),
    ],
)  # fmt: skip
def test_each_fault_of_a_report_is_found(number, changes, fault):
    cells = good_report()
    cells[number] |= changes
    assert faults(cells, report=True)[:1] == [fault]


def test_imports_are_not_counted():
    assert rules.code_lines("import a\nfrom b import c\n\nx = 1\nfrom_b = 2") == 3


def test_long_cells_are_found():
    cells = good()
    for cell in cells:
        if cell["cell_type"] == "code" and cell["source"] != SOLUTION:
            cell["source"] += "\n" * 11
    assert faults(cells) == ["the median code cell has more than 10 lines"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebooks_follow_the_rules(path):
    report = path.name.startswith(rules.REPORT)
    assert rules.faults(json.loads(path.read_text(encoding="utf-8")), report) == []


def test_notebooks_are_those_of_the_course():
    course = json.loads((ROOT / "data" / "course.json").read_text(encoding="utf-8"))
    assert [row["number"] for row in course] == [f"{number:02d}" for number in range(21)]
    numbers = [path.name[:2] for path in NOTEBOOKS]
    assert numbers == [f"{number:02d}" for number in range(14)] + [rules.REPORT]
    questions = {row["number"]: row["question"] for row in course}
    for path in NOTEBOOKS:
        title = rules.source(json.loads(path.read_text(encoding="utf-8"))["cells"][0]).splitlines()[0]
        assert title == f"# {path.name[:2]} · {questions[path.name[:2]]}"
