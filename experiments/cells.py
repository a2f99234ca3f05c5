"""Run a notebook's code cells as one plain script, where there is no Jupyter.

    python -m experiments.cells notebooks/00_start_here.ipynb

Prints what the cells print; figures are drawn and dropped. Without `ipywidgets` a stand-in calls the function
behind a widget once, with the values that the widget would start with (experiments/stand_in.py).
"""

import json
import linecache
import os
import sys
import warnings
from pathlib import Path

from experiments.stand_in import ipywidgets_module
from minillm.errors import InputError


def main(arguments: list[str]) -> None:
    """Run each notebook given, in its own folder as Jupyter does."""
    os.environ.setdefault("MPLBACKEND", "agg")
    warnings.filterwarnings("ignore", message=".*non-interactive")
    try:
        import ipywidgets  # noqa: F401
    except ImportError:
        sys.modules["ipywidgets"] = ipywidgets_module()
    for name in arguments:
        run(Path(name))


def run(notebook: Path) -> dict:
    """Execute the code cells in order; the names they leave behind. A failing cell's error names it."""
    if not notebook.is_file():
        raise InputError(f"no notebook {str(notebook)!r}: give the path of an .ipynb file")
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    names: dict = {"__name__": "__main__"}
    before, path = Path.cwd(), list(sys.path)
    os.chdir(notebook.parent)
    # As a kernel finds `checks` beside the notebook; absolute, for cells that change the folder.
    sys.path.insert(0, str(Path.cwd()))
    try:
        for number, cell in enumerate(cells):
            if cell["cell_type"] == "code":
                source, name = "".join(cell["source"]), f"{notebook.name}, cell {number}"
                # As IPython does, so that `inspect` finds what a cell defines.
                linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
                exec(compile(source, name, "exec"), names)
    finally:
        os.chdir(before)
        sys.path[:] = path
    return names


if __name__ == "__main__":
    main(sys.argv[1:])
