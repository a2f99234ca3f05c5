"""Solutions are taken out of notebooks, all of them, and can be put back."""

import json

import notebook_rules
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_notebooks import BLOCK, CELL, notebook, sources

from experiments import blanks, student
from minillm.errors import InputError

SHIPPED = sorted(student.NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))
LESSONS = [path for path in SHIPPED if not path.name.startswith(notebook_rules.REPORT)]


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.name)
def test_student_edition_and_solutions_make_the_original(path):
    original = student.read(path)
    made, solutions = blanks.take_out(original)
    assert sum(map(len, solutions.values())) >= 3
    assert sources(made) != sources(original)
    assert blanks.put_back(made, solutions) == len(solutions)
    assert [(cell["id"], cell["cell_type"]) for cell in made["cells"]] == [
        (cell["id"], cell["cell_type"]) for cell in original["cells"]
    ]
    assert sources(made) == sources(original)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_no_solution_and_no_output_is_left(path):
    made, solutions = blanks.take_out(student.read(path))
    text = "\n".join(sources(made))
    assert blanks.MARKER.search(text) is None
    for cell in made["cells"]:
        for block in solutions.get(cell["id"], []):
            assert "\n".join(block.splitlines()[1:-1]) not in "".join(cell["source"])
    assert all(not cell["outputs"] for cell in made["cells"] if cell["cell_type"] == "code")
    assert "widgets" not in made["metadata"]


LINES = st.lists(st.sampled_from(["x = 1", "", "    y = 2", "# a comment", "\tz = '###'"]), max_size=4)


@st.composite
def exercise_cells(draw) -> tuple[str, list[str]]:
    """(source of a cell, lines that stand between its markers): blocks at any depth."""
    lines, inside = draw(LINES), []
    for number in range(draw(st.integers(0, 3))):
        indent = draw(st.sampled_from(["", "    ", "        ", "\t"]))
        secret = [f"{indent}secret_{number} = {line!r}" if line else "" for line in draw(LINES)]
        lines += [f"{indent}{blanks.BEGIN}", *secret, f"{indent}{blanks.END}", *draw(LINES)]
        inside += secret
    return "\n".join(lines) + draw(st.sampled_from(["", "\n", "\n\n"])), inside


@given(st.lists(exercise_cells(), min_size=1, max_size=3))
def test_any_notebook_comes_back(cells):
    original = notebook(*(source for source, _ in cells))
    made, solutions = blanks.take_out(original)
    assert "secret" not in json.dumps(made)
    total = sum(source.count(blanks.BEGIN) for source, _ in cells)
    assert "\n".join(sources(made)).count(blanks.BLANK) == total
    blanks.put_back(made, json.loads(json.dumps(solutions)))
    assert sources(made) == sources(original)


def test_a_blank_stands_at_the_depth_of_its_block():
    made, _ = blanks.take_out(
        notebook(CELL + "\n\nclass C:\n    def f(self):\n" + BLOCK.replace("    ", " " * 8))
    )
    (source,) = sources(made)
    assert source == (
        f"def double(x):\n    {blanks.BLANK}\n\n\nclass C:\n    def f(self):\n        {blanks.BLANK}"
    )
    with pytest.raises(NotImplementedError):
        exec(source + "\ndouble(1)", {})


@pytest.mark.parametrize(
    "source",
    [
        "### BEGIN SOLUTION\n1",
        "1\n### END SOLUTION",
        "### END SOLUTION\n1\n### BEGIN SOLUTION",
        f"### BEGIN SOLUTION\n{BLOCK}\n### END SOLUTION",
        f"{BLOCK}\n### END SOLUTION",
        "### BEGIN SOLUTION\n1\n# end solution",
        "x = 1 ### BEGIN SOLUTION\n1\n### END SOLUTION",
        f"{CELL}\n{blanks.BLANK}",
    ],
)
def test_what_cannot_be_put_back_is_refused(source):
    blanks.take_out(notebook("x", CELL), "07.ipynb")
    with pytest.raises(InputError, match=r"^07\.ipynb, cell 1: [^\n]+$"):
        blanks.take_out(notebook("x", source), "07.ipynb")


@pytest.mark.parametrize("name", [None, "c0"])
def test_solutions_need_a_cell_id_of_their_own(name):
    made = notebook(CELL, CELL)
    made["cells"][1]["id"] = name
    with pytest.raises(InputError, match="cell 1: its id is missing or used twice"):
        blanks.take_out(made)


def test_an_answered_exercise_stays():
    made, solutions = blanks.take_out(notebook(CELL, CELL))
    answer = "def double(x):\n    return x + x\n"
    made["cells"][0]["source"] = [answer]
    assert blanks.put_back(made, solutions) == 1
    assert sources(made) == [answer, CELL]
