"""Stored results as the report reads them: what is missing is an answer, too."""

import json
from collections.abc import Iterable
from pathlib import Path
from statistics import median

from minillm.units import gib

FOLDER = Path(__file__).resolve().parent.parent / "data" / "results"
NOT_YET = "not measured yet"
NOTHING = "–"  # there is nothing to be measured
MACHINES = {"h200": "H200", "cpu2": "two cores"}  # what a report calls them


class Stored:
    """One result file, or the place where it will be: without it there are no rows and no checks."""

    def __init__(self, path: Path):
        self.path = path
        self.experiment, _, self.machine = path.stem.partition("__")
        self.content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    @property
    def checks(self) -> list[dict]:
        return self.content.get("checks", [])

    @property
    def place(self) -> str:
        """The machine, as a report calls it."""
        return MACHINES.get(self.machine, self.machine)

    @property
    def date(self) -> str:
        """The day, such as 2026-11-29."""
        return self.content.get("date", NOT_YET).partition("T")[0]

    @property
    def commit(self) -> str:
        return self.content.get("commit", NOTHING)[:7]

    def rows(self, prefix: str = "") -> list[dict]:
        """Rows whose key starts with `prefix`, in order of measurement; skipped ones, too."""
        return [row for row in self.content.get("rows", []) if row.get("key", "").startswith(prefix)]

    def row(self, key: str) -> dict:
        """The row `key`; empty where it is missing."""
        return next((row for row in self.rows(key) if row["key"] == key), {})

    def check(self, name: str) -> float | None:
        """The value of a check by its whole name."""
        return next((check["value"] for check in self.checks if check["name"] == name), None)

    def goal(self, name: str) -> float | None:
        """What a check had to reach."""
        return next((check["goal"] for check in self.checks if check["name"] == name), None)

    def ceiling(self, name: str) -> float | None:
        """A rate that the same command measured."""
        return self.content.get("ceilings", {}).get(name)

    def met(self) -> tuple[int, int]:
        """Goals that were met, and goals."""
        judged = [check["met"] for check in self.checks if check["met"] is not None]
        return sum(judged), len(judged)


class Archive:
    """A folder of result files `<experiment>__<machine>.json`."""

    def __init__(self, folder: Path | str = FOLDER, machine: str = "h200"):
        self.folder, self.machine = Path(folder), machine

    def get(self, experiment: str, machine: str | None = None) -> Stored:
        """A result of the report's machine, or of another."""
        return Stored(self.folder / f"{experiment}__{machine or self.machine}.json")

    def all(self) -> list[Stored]:
        """Every file that is there, by name; runs that were cut short are not results."""
        paths = sorted(self.folder.glob("*__*.json"))
        return [Stored(path) for path in paths if not path.name.endswith(".partial.json")]


# ---- values as text ----


def caption(title: str, stored: Stored) -> str:
    """A table's title with the experiment, the machine and the day of its result."""
    if stored.content:
        return f"{title} ({stored.experiment}, {stored.place}, {stored.date})"
    return f"{title}: {NOT_YET} ({stored.path.name})"


def number(value: float | None, form: str = ".2f", unit: str = "") -> str:
    """`value` in `form` with its unit; None: not measured yet."""
    return NOT_YET if value is None else f"{value:{form}}{unit and ' ' + unit}"


def milliseconds(seconds: float | None) -> str:
    """Whole milliseconds from 100 on, a digit more below."""
    return NOT_YET if seconds is None else f"{1e3 * seconds:,.{0 if seconds >= 0.1 else 1}f} ms"


def size(num_bytes: int | None) -> str:
    return NOT_YET if num_bytes is None else gib(num_bytes)


def over(value: float | None, base: float | None) -> float | None:
    """Their ratio; None where one is missing."""
    return value / base if value is not None and base else None


def middle(rows: Iterable[dict], field: str) -> float | None:
    """The median of a field over the rows that have it."""
    values = [row[field] for row in rows if row.get(field) is not None]
    return median(values) if values else None


def most(rows: Iterable[dict], field: str) -> float | None:
    """The largest value of a field over the rows that have it."""
    return max((row[field] for row in rows if row.get(field) is not None), default=None)
