"""Run a notebook's code cells as one plain script, where there is no Jupyter.

    python -m experiments.cells notebooks/00_start_here.ipynb

Prints what the cells print; figures are drawn and dropped. Without `ipywidgets` a stand-in calls the function
behind a widget once, with the values that the widget would start with.
"""

import json
import os
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path

from minillm.errors import InputError


def main(arguments: list[str]) -> None:
    """Run each notebook given, in its own folder as Jupyter does."""
    os.environ.setdefault("MPLBACKEND", "agg")
    warnings.filterwarnings("ignore", message=".*non-interactive")
    try:
        import ipywidgets  # noqa: F401
    except ImportError:
        sys.modules["ipywidgets"] = stand_in()
    for name in arguments:
        run(Path(name))


def run(notebook: Path) -> dict:
    """Execute the code cells in order; the names they leave behind. A failing cell's error names it."""
    if not notebook.is_file():
        raise InputError(f"no notebook {str(notebook)!r}: give the path of an .ipynb file")
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    names: dict = {"__name__": "__main__"}
    before = Path.cwd()
    os.chdir(notebook.parent)
    try:
        for number, cell in enumerate(cells):
            if cell["cell_type"] == "code":
                code = compile("".join(cell["source"]), f"{notebook.name}, cell {number}", "exec")
                exec(code, names)
    finally:
        os.chdir(before)
    return names


def stand_in() -> types.ModuleType:
    """What the notebooks use of `ipywidgets`: `interact`, and controls that hold a value."""
    module = types.ModuleType("ipywidgets")
    module.interact = interact
    module.Dropdown = module.FloatLogSlider = module.FloatSlider = module.IntSlider = Widget
    return module


class Widget:
    """Keeps the value it was made with, else the first of its options, else its lower end."""

    def __init__(self, **settings):
        options = settings.get("options") or [settings.get("min")]
        self.value = settings.get("value", options[0])
        self.layout = types.SimpleNamespace()


def interact(function: Callable, **controls: object) -> Callable:
    """Call `function` once with each control's first value."""
    function(**{name: _first(control) for name, control in controls.items()})
    return function


def _first(control: object) -> object:
    if isinstance(control, Widget):
        return control.value
    return control[0] if isinstance(control, list | tuple) else control


if __name__ == "__main__":
    main(sys.argv[1:])
