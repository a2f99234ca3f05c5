"""The notebook runner: outputs are stored, failures are told, a widget does not make it wait."""

import nbformat
import pytest
from nbformat import v4

from experiments import execute

pytest.importorskip("ipykernel", reason="ipykernel is not installed")

# Each time the figure is redrawn, the kernel and the runner send each other messages about the widget.
WIDGET = """from ipywidgets import IntSlider, interact
slider = IntSlider(max=5)
_ = interact(lambda x: print("drawn", x), x=slider)
for value in range(1, 6):
    slider.value = value"""


def write(path, *sources):
    notebook = v4.new_notebook(cells=[v4.new_code_cell(source) for source in sources])
    nbformat.write(notebook, path)
    return path


def test_outputs_are_stored_in_one_piece_and_the_source_stays(tmp_path, capsys):
    (tmp_path / "beside.txt").write_text("here")
    made = write(tmp_path / "a.ipynb", "for i in range(3): print(i)", "print(open('beside.txt').read())")
    before = made.read_text()
    assert execute.main(["--to", str(tmp_path / "out"), str(made)]) == 0
    assert made.read_text() == before
    cells = nbformat.read(tmp_path / "out" / "a.ipynb", as_version=4).cells
    assert [output.text for cell in cells for output in cell.outputs] == ["0\n1\n2\n", "here\n"]
    assert "execution" not in cells[0].metadata
    assert "wrote" in capsys.readouterr().out


def test_a_widget_is_run_through_and_its_state_is_kept(tmp_path):
    made = write(tmp_path / "a.ipynb", *[WIDGET] * 4)
    assert execute.main([str(made)]) == 0
    notebook = nbformat.read(made, as_version=4)
    (states,) = (state["state"] for state in notebook.metadata.widgets.values())
    shown = [one["state"]["outputs"] for one in states.values() if one["model_name"] == "OutputModel"]
    assert [output[-1]["text"] for output in shown] == ["drawn 5\n"] * 4


def test_a_failing_cell_is_told_and_what_came_before_it_is_stored(tmp_path, capsys):
    made = write(tmp_path / "a.ipynb", "print('before')", "1 / 0", "print('after')")
    assert execute.main([str(made)]) == 1
    said = capsys.readouterr().err
    assert "a.ipynb" in said
    assert "ZeroDivisionError" in said
    cells = nbformat.read(made, as_version=4).cells
    assert cells[0].outputs[0].text == "before\n"
    assert cells[1].outputs[0].ename == "ZeroDivisionError"
    assert cells[2].outputs == []
