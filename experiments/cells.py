"""Run a notebook's code cells as one plain script, where there is no Jupyter.

    python -m experiments.cells notebooks/00_start_here.ipynb

Prints what the cells print; figures are drawn and dropped. Without `ipywidgets` a stand-in calls the function
behind a widget once, with the values that the widget would start with (experiments/stand_in.py). With `--out`
what ran is kept as cells__<machine>.json: a notebook that fails is told there, and the next one runs.
"""

import argparse
import json
import linecache
import os
import sys
import traceback
import warnings
from pathlib import Path

from experiments import offload_options
from experiments.results import Results, all_met, check, report
from experiments.stand_in import ipywidgets_module
from minillm.errors import InputError


def main(arguments: list[str] | None = None) -> int:
    """Run each notebook given, in its own folder as Jupyter does; exit status 1 if one failed."""
    parser = argparse.ArgumentParser(prog="experiments.cells", description=__doc__.split("\n")[0])
    parser.add_argument("notebooks", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, help="folder for cells__<machine>.json; default: nothing is kept")
    options = parser.parse_args(arguments)
    for notebook in options.notebooks:
        code_cells(notebook)
    if options.out:
        offload_options.check_folder(options.out)
    os.environ.setdefault("MPLBACKEND", "agg")
    warnings.filterwarnings("ignore", message=".*non-interactive")
    try:
        import ipywidgets  # noqa: F401
    except ImportError:
        sys.modules["ipywidgets"] = ipywidgets_module()
    if options.out:
        return keep(options.notebooks, options.out)
    for notebook in options.notebooks:
        run(notebook)
    return 0


def keep(notebooks: list[Path], folder: Path) -> int:
    """Run them, and store which of them ran to their end."""
    keys = [notebook.as_posix() for notebook in notebooks]
    results = Results("cells", folder=folder.resolve(), settings={"notebooks": keys})
    for row in results.rows():
        if "error" in row:
            results.forget(row["key"])  # of a run that was cut short: it may have been mended since
    rows = [results.row(path.as_posix(), lambda path=path: outcome(path)) for path in notebooks]
    ran = sum("error" not in row for row in rows)
    checks = [check(f"notebooks that ran as scripts, of {len(rows)}", ran, len(rows))]
    report(results.finish(checks), checks)
    return 0 if all_met(checks) else 1


def outcome(notebook: Path) -> dict:
    """How many code cells ran, and what ended them too early."""
    try:
        run(notebook)
        return {"cells": len(code_cells(notebook))}
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        names = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        where = next((name for name in names if ", cell " in name), notebook.name)
        return {"error": f"{where}: {type(error).__name__}: {error}"}


def code_cells(notebook: Path) -> list[tuple[int, str]]:
    """Number and source of each code cell; InputError where there is no notebook."""
    try:
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, LookupError, TypeError):
        raise InputError(f"no notebook {str(notebook)!r}: give the path of an .ipynb file") from None
    return [(n, "".join(cell["source"])) for n, cell in enumerate(cells) if cell["cell_type"] == "code"]


def run(notebook: Path) -> dict:
    """Execute the code cells in order; the names they leave behind. A failing cell's error names it."""
    cells = code_cells(notebook)
    names: dict = {"__name__": "__main__"}
    before, path = Path.cwd(), list(sys.path)
    os.chdir(notebook.parent)
    # As a kernel finds `checks` beside the notebook; absolute, for cells that change the folder.
    sys.path.insert(0, str(Path.cwd()))
    try:
        for number, source in cells:
            name = f"{notebook.name}, cell {number}"
            # As IPython does, so that `inspect` finds what a cell defines.
            linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
            exec(compile(source, name, "exec"), names)
    finally:
        os.chdir(before)
        sys.path[:] = path
    return names


if __name__ == "__main__":
    sys.exit(offload_options.run(main))
