"""Notebooks as plain scripts: cells in order, in their folder, with or without widgets."""

import inspect
import json
import sys

import pytest

from experiments import cells, stand_in
from minillm.errors import InputError


def write(path, *sources):
    made = [{"cell_type": "code", "source": [source]} for source in sources]
    path.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": ["1 +"]}, *made]}))
    return path


def test_cells_share_names_and_run_in_the_notebooks_folder(tmp_path):
    (tmp_path / "beside.txt").write_text("here")
    notebook = write(tmp_path / "a.ipynb", "x = open('beside.txt').read()", "y = x + '!'")
    assert cells.run(notebook)["y"] == "here!"


def test_what_lies_beside_the_notebook_can_be_imported(tmp_path):
    (tmp_path / "lies_beside.py").write_text("answer = 42")
    before = list(sys.path)
    names = cells.run(
        write(tmp_path / "a.ipynb", "import os; os.chdir('/')", "from lies_beside import answer")
    )
    assert names["answer"] == 42
    assert sys.path == before


def test_inspect_finds_what_a_cell_defines(tmp_path):
    notebook = write(tmp_path / "a.ipynb", "x = 1", "import inspect", "def f(x):\n    return x")
    assert inspect.getsource(cells.run(notebook)["f"]) == "def f(x):\n    return x"


def test_a_failing_cell_is_named_and_later_ones_do_not_run(tmp_path):
    notebook = write(tmp_path / "a.ipynb", "x = 1", "x / 0", "open('ran', 'w')")
    with pytest.raises(ZeroDivisionError) as caught:
        cells.run(notebook)
    assert "a.ipynb, cell 2" in str(caught.traceback[-1].path)
    assert not (tmp_path / "ran").exists()


def test_without_ipywidgets_a_widgets_function_runs_once_with_its_first_values(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", stand_in.ipywidgets_module())
    notebook = write(
        tmp_path / "a.ipynb",
        "from ipywidgets import Dropdown, FloatLogSlider, interact\ncalls = []",
        "slider = FloatLogSlider(value=50, min=1); slider.layout.width = '440px'",
        "_ = interact(lambda **now: calls.append(now), a=Dropdown(options=['x', 'y']), b=slider, c=[3, 4])",
    )
    assert cells.run(notebook)["calls"] == [{"a": "x", "b": 50, "c": 3}]


def test_a_missing_notebook_is_named():
    with pytest.raises(InputError, match=r"no notebook 'nowhere\.ipynb'"):
        cells.run(cells.Path("nowhere.ipynb"))


def test_what_ran_is_kept_and_what_failed_is_told(tmp_path, capsys):
    whole = write(tmp_path / "whole.ipynb", "x = 1", "y = x")
    broken = write(tmp_path / "broken.ipynb", "x = 1", "x / 0")
    last = write(tmp_path / "last.ipynb", "x = 1")
    assert cells.main([str(path) for path in (whole, broken, last)] + ["--out", str(tmp_path)]) == 1
    stored = json.loads(next(tmp_path.glob("cells__*.json")).read_text())
    found = {cells.Path(row["key"]).stem: (row.get("cells"), row.get("error")) for row in stored["rows"]}
    told = "broken.ipynb, cell 2: ZeroDivisionError: division by zero"
    assert found == {"whole": (2, None), "broken": (None, told), "last": (1, None)}
    assert [(c["value"], c["met"]) for c in stored["checks"]] == [(2, False)]
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert cells.main([str(whole), "--out", str(tmp_path)]) == 0


def test_without_a_folder_nothing_is_kept(tmp_path):
    assert cells.main([str(write(tmp_path / "a.ipynb", "x = 1"))]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["a.ipynb"]


def test_notebooks_of_one_name_are_two_and_an_exit_is_an_error(tmp_path):
    for name, source in (("a", "x = 1"), ("b", "1 / 0"), ("c", "import sys; sys.exit(0)")):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "same.ipynb", source)
    paths = [str(tmp_path / name / "same.ipynb") for name in "abc"]
    assert cells.main([*paths, "--out", str(tmp_path)]) == 1
    stored = json.loads(next(tmp_path.glob("cells__*.json")).read_text())
    assert ["error" in row for row in stored["rows"]] == [False, True, True]


def test_what_failed_in_a_run_that_was_cut_short_is_tried_again(tmp_path, monkeypatch):
    first, second = write(tmp_path / "first.ipynb", "1 / 0"), write(tmp_path / "second.ipynb", "x = 1")
    command = [str(first), str(second), "--out", str(tmp_path)]
    run = cells.run
    monkeypatch.setattr(cells, "run", lambda path: run(path) if path == first else _cut_short())
    with pytest.raises(KeyboardInterrupt):
        cells.main(command)
    monkeypatch.setattr(cells, "run", run)
    write(first, "x = 1")
    assert cells.main(command) == 0


def _cut_short():
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere.ipynb"], "no notebook 'nowhere.ipynb'"),
        ([__file__], "no notebook"),
        (["{}", "nowhere.ipynb", "--out", "."], "no notebook 'nowhere.ipynb'"),
        (["{}", "--out", "/proc/x"], "--out is /proc/x"),
    ],
)
def test_bad_arguments_are_told_before_anything_runs(tmp_path, monkeypatch, arguments, says):
    good = write(tmp_path / "a.ipynb", "x = 1")
    monkeypatch.setattr(cells, "run", lambda _: pytest.fail("it ran"))
    with pytest.raises(InputError, match=says):
        cells.main([each.replace("{}", str(good)) for each in arguments])
