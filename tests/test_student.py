"""The folder of the student edition: complete, up to date, and nobody's work is lost."""

import shutil
from pathlib import Path

import pytest
from small_notebooks import CELL, notebook, sources

from experiments import blanks, student
from minillm.errors import InputError


@pytest.fixture
def course(tmp_path) -> tuple[Path, Path]:
    """(notebooks/, the edition's folder) of a small course of two notebooks."""
    folder = tmp_path / "notebooks"
    (folder / "checks" / "__pycache__").mkdir(parents=True)
    (folder / "checks" / "nb00.py").write_text("checks = 0")
    (folder / "glossary.md").write_text("words")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "course.json").write_text("[]")
    (tmp_path / "minillm").mkdir()
    (tmp_path / "minillm" / "rope.py").write_text("# turns")
    for name in ("00_a.ipynb", "01_b.ipynb"):
        student.write(folder / name, notebook("x = 1", CELL))
    return folder, tmp_path / "build" / "student"


def edit(path: Path, number: int, source: str) -> None:
    made = student.read(path)
    made["cells"][number]["source"] = [source]
    student.write(path, made)


def answers(path: Path) -> str:
    return sources(student.read(path))[1]


def test_everything_that_notebooks_need_lies_there(course):
    student.make_edition(*course)
    edition = course[1]
    names = {"00_a.ipynb", "01_b.ipynb", "checks", "glossary.md", "solutions.json"}
    assert {path.name for path in edition.iterdir()} == names
    assert [path.name for path in (edition / "checks").iterdir()] == ["nb00.py"]
    assert (edition / "../data/course.json").read_text() == "[]"
    assert (edition / "../minillm/rope.py").read_text() == "# turns"
    assert not any(Path((edition.parent / name).readlink()).is_absolute() for name in ("data", "minillm"))


def test_work_is_kept_and_the_rest_is_brought_up_to_date(course, capsys):
    student.make_edition(*course)
    folder, edition = course
    edit(edition / "00_a.ipynb", 1, "def double(x): return x + x")
    for name in ("00_a.ipynb", "01_b.ipynb"):
        edit(folder / name, 0, "x = 2")
    (folder / "glossary.md").write_text("more words")
    capsys.readouterr()
    student.make_edition(folder, edition)
    kept, updated = capsys.readouterr().out.splitlines()
    assert kept == "kept     00_a.ipynb: you changed it. Anew: ./run_all.sh student --force 00"
    assert updated == "updated  01_b.ipynb"
    assert sources(student.read(edition / "00_a.ipynb")) == ["x = 1", "def double(x): return x + x"]
    assert sources(student.read(edition / "01_b.ipynb"))[0] == "x = 2"
    assert (edition / "glossary.md").read_text() == "more words"


def test_outputs_of_a_learner_stay_until_the_notebook_changes(course):
    student.make_edition(*course)
    path = course[1] / "00_a.ipynb"
    ran = student.read(path)
    ran["cells"][0] |= {"outputs": ["a result"], "execution_count": 1}
    student.write(path, ran)
    student.make_edition(*course)
    assert student.read(path) == ran
    edit(course[0] / path.name, 0, "x = 2")
    student.make_edition(*course)
    assert student.read(path)["cells"][0]["outputs"] == []


def test_force_moves_work_aside(course):
    student.make_edition(*course)
    path, other = course[1] / "00_a.ipynb", course[1] / "01_b.ipynb"
    edit(other, 1, "also mine")
    for number in (1, 2):
        edit(path, 1, f"mine {number}")
        student.make_edition(*course, numbers=["00"], force=True)
        assert blanks.BLANK in answers(path)
        assert answers(path.with_name(f"00_a.yours-{number}.ipynb")) == f"mine {number}"
    assert answers(other) == "also mine"


def test_a_file_that_we_did_not_write_is_kept(course):
    course[1].mkdir(parents=True)
    student.write(course[1] / "00_a.ipynb", notebook("mine"))
    student.make_edition(*course)
    assert sources(student.read(course[1] / "00_a.ipynb")) == ["mine"]


def test_solutions_of_the_version_that_is_there_are_restored(course, capsys):
    student.make_edition(*course)
    folder, edition = course
    edit(edition / "00_a.ipynb", 0, "x = 'mine'")
    edit(folder / "00_a.ipynb", 1, CELL.replace("2 * x", "x << 1"))
    student.make_edition(folder, edition)
    student.restore_edition(edition, ["00"])
    assert sources(student.read(edition / "00_a.ipynb")) == ["x = 'mine'", CELL]
    assert blanks.BLANK in answers(edition / "01_b.ipynb")
    assert "00_a.ipynb: solutions put into 1 of 1 exercises" in capsys.readouterr().out


def test_a_bad_notebook_stops_all_before_anything_is_written(course):
    edit(course[0] / "01_b.ipynb", 1, "### BEGIN SOLUTION")
    with pytest.raises(InputError, match=r"01_b\.ipynb, cell 1"):
        student.make_edition(*course)
    assert not course[1].exists()


def test_errors_are_one_line(course, monkeypatch, capsys):
    monkeypatch.setattr(student, "NOTEBOOKS", course[0])
    monkeypatch.setattr(student, "EDITION", course[1])
    assert student.main(["--restore"]) == 2
    assert "none (to make them: ./run_all.sh student)" in capsys.readouterr().err
    assert student.main([]) == 0
    assert "./run_all.sh lab student" in capsys.readouterr().out
    assert student.main(["07"]) == 2
    assert capsys.readouterr().err == "student: no notebook in notebooks/ starts with: 07; there are 00, 01\n"
    (course[1] / "00_a.ipynb").write_text("{")
    assert student.main([]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    shutil.rmtree(course[1])
    (course[1].parent / "data").unlink()
    (course[1].parent / "data").mkdir()
    assert student.main([]) == 1
    assert "move what is there" in capsys.readouterr().err
