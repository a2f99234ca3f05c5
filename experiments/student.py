"""Makes the student edition of the notebooks in build/student/: solutions and outputs taken out, checks kept.

    python -m experiments.student                 all notebooks, as ./run_all.sh student does
    python -m experiments.student --force 02      notebook 02 anew; yours is moved aside, not lost
    python -m experiments.student --restore 02    puts the solutions into the exercises you have not answered

A notebook that you have changed is never written over: whether it was, its cells say, compared with those
written last time (build/student/solutions.json). Having run it does not count.
"""

import argparse
import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

from experiments import blanks
from experiments.machine import ROOT
from minillm.errors import InputError, MiniLLMError, RunError

NOTEBOOKS = ROOT / "notebooks"
EDITION = ROOT / "build" / "student"
RECORD = "solutions.json"  # for each notebook: the solutions by cell, and a digest of the cells as written
CLUTTER = shutil.ignore_patterns("*.ipynb", "__pycache__", ".ipynb_checkpoints")


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0, or that of the error that is printed as one line."""
    parser = argparse.ArgumentParser(
        "./run_all.sh student", description="notebooks with exercises to fill in"
    )
    parser.add_argument("numbers", nargs="*", metavar="NN", help="only notebooks that start with NN")
    parser.add_argument(
        "--force", action="store_true", help="replace changed ones, too; yours is moved aside"
    )
    parser.add_argument("--restore", action="store_true", help="put solutions into unanswered exercises")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.restore:
            restore_edition(EDITION, chosen.numbers)
        else:
            make_edition(NOTEBOOKS, EDITION, chosen.numbers, chosen.force)
            print("To work through them: ./run_all.sh lab student")
    except MiniLLMError as error:
        print(f"student: {error}", file=sys.stderr)
        return error.exit_status
    return 0


def make_edition(source: Path, edition: Path, numbers: list[str] = (), force: bool = False) -> None:
    """Write the student edition of the notebooks in `source` to `edition`, and say what was done to each.

    All notebooks are read before the first is written: one with unbalanced markers stops all, and leaves all.
    """
    made = {path.name: blanks.take_out(read(path), path.name) for path in choose(source, numbers)}
    shutil.copytree(source, edition, ignore=CLUTTER, dirs_exist_ok=True)  # checks/, glossary.md
    link_up(source, edition)
    record = read_record(edition)
    for name, (notebook, solutions) in made.items():
        if place(edition / name, notebook, record, force):
            record[name] = {"written": digest(notebook), "solutions": solutions}
        write(
            edition / RECORD, record
        )  # after each: an interruption must not make a new notebook look changed


def place(path: Path, notebook: dict, record: dict, force: bool) -> bool:
    """Bring one notebook up to date, unless the learner changed it; whether it is now what it should be."""
    note = ""
    if not path.exists():
        done = "new"
    elif digest(read(path)) == digest(notebook):
        print(f"current  {path.name}")  # not written again: its outputs may be the learner's
        return True
    elif not changed(path, record):
        done = "updated"
    elif force:
        done, note = "new", f" (yours is now {set_aside(path).name})"
    else:
        print(f"kept     {path.name}: you changed it. Anew: ./run_all.sh student --force {path.name[:2]}")
        return False
    write(path, notebook)
    print(f"{done:8} {path.name}{note}")
    return True


def restore_edition(edition: Path, numbers: list[str] = ()) -> None:
    """Put the solutions into every exercise whose cell still has all its blanks."""
    record = read_record(edition)
    for path in choose(edition, numbers):
        if path.name in record:
            notebook = read(path)
            solutions = record[path.name]["solutions"]
            count = blanks.put_back(notebook, solutions)
            write(path, notebook)
            print(f"{path.name}: solutions put into {count} of {len(solutions)} exercises")


def choose(folder: Path, numbers: list[str]) -> list[Path]:
    """Notebooks of the course in `folder`: all, or those whose names start with one of `numbers`."""
    found = sorted(folder.glob("[0-9][0-9]_*.ipynb"))
    chosen = [path for path in found if not numbers or path.name.startswith(tuple(numbers))]
    if not chosen:
        there = ", ".join(path.name[:2] for path in found) or "none (to make them: ./run_all.sh student)"
        raise InputError(
            f"no notebook in {folder.name}/ starts with: {' '.join(numbers) or 'NN_'}; there are {there}"
        )
    return chosen


def changed(path: Path, record: dict) -> bool:
    """Whether cells differ from what was written last; a file that we have not written counts as changed."""
    return path.name not in record or digest(read(path)) != record[path.name]["written"]


def digest(notebook: dict) -> str:
    """Of kinds and sources of the cells, and of nothing that running or opening a notebook changes."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()


def set_aside(path: Path) -> Path:
    """Rename a learner's notebook to the first free of NAME.yours-1.ipynb, NAME.yours-2.ipynb, …"""
    number = 1
    while (target := path.with_suffix(f".yours-{number}.ipynb")).exists():
        number += 1
    return path.rename(target)


def link_up(source: Path, edition: Path) -> None:
    """Make `../data` and `../minillm` lead from the edition to where they lead from notebooks/.

    Links, not copies: the models are megabytes, and new results show at once. Relative: a checkout may move.
    """
    for name in ("data", "minillm"):
        link, target = edition.parent / name, source.parent / name
        if link.resolve() == target.resolve():
            continue
        if link.is_symlink():
            link.unlink()
        try:
            link.symlink_to(os.path.relpath(target, edition.parent), target_is_directory=True)
        except OSError as error:
            raise RunError(
                f"cannot link {link} to {target} ({error}): move what is there, or copy {name}/ there"
            ) from None


def read(path: Path) -> dict:
    """A notebook, or the record; what is no JSON is an InputError with its name."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(
            f"{path.name} is not a notebook ({error}): move it out of {path.parent.name}/"
        ) from None


def read_record(edition: Path) -> dict:
    """What was written last; empty at first."""
    return read(edition / RECORD) if (edition / RECORD).exists() else {}


def write(path: Path, content: dict) -> None:
    """As Jupyter writes it; in one step, so that an interruption leaves the old file."""
    beside = path.with_name(f".{path.name}.part")
    beside.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    beside.replace(path)


if __name__ == "__main__":
    sys.exit(main())
