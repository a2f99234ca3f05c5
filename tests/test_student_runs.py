"""Every notebook of the student edition runs from the top, and every check says that it has no answer yet."""

import re
import sys

import notebook_rules
import pytest
import small_notebooks
import torch
from matplotlib import pyplot as plt

from checks.exercise import SKIPPED
from experiments import cells, student

NAMES = [path.name for path in sorted(student.NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))]
CHECK = re.compile(r"^\s*nb\d\d\.\w+\.check\(", re.MULTILINE)

pytestmark = pytest.mark.student


@pytest.fixture(scope="module")
def edition(tmp_path_factory):
    folder = tmp_path_factory.mktemp("course") / "build" / "student"
    student.make_edition(student.NOTEBOOKS, folder)
    return folder


@pytest.fixture(autouse=True)
def as_in_a_fresh_kernel(monkeypatch):
    """No window opens, and `checks` is the copy that lies in the edition."""
    monkeypatch.setattr(plt, "show", lambda *_, **__: plt.close("all"))
    for name in [name for name in sys.modules if name.split(".")[0] == "checks"]:
        monkeypatch.delitem(sys.modules, name)
    yield
    plt.close("all")
    torch.set_grad_enabled(True)  # lessons switch gradients off


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_and_nothing_is_answered(name, edition, capsys):
    path = edition / name
    cells.run(path)
    checked = sum(len(CHECK.findall("".join(cell["source"]))) for cell in student.read(path)["cells"])
    verdicts = [line for line in capsys.readouterr().out.splitlines() if line.endswith(SKIPPED)]
    assert len(verdicts) == checked
    if not name.startswith(notebook_rules.REPORT):  # the report has no exercises
        assert checked >= 3
        assert str(edition) in sys.modules["checks"].__file__


def test_a_lesson_that_needs_a_solution_is_found(tmp_path):
    lesson = small_notebooks.notebook(small_notebooks.CELL, "print(double(3))")
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "data").mkdir()
    student.write(tmp_path / "notebooks" / "00_a.ipynb", lesson)
    cells.run(tmp_path / "notebooks" / "00_a.ipynb")
    student.make_edition(tmp_path / "notebooks", tmp_path / "build" / "student")
    with pytest.raises(NotImplementedError):
        cells.run(tmp_path / "build" / "student" / "00_a.ipynb")
