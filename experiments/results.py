"""The writer of `data/results/<experiment>__<machine>.json`: raw rows, and checks computed from them.

Order of calls: make `Results`, call `row` once for each measurement, then `finish` with the checks. Rows go
to a `.partial.json` file at once; a command that was cut short takes them from there and continues at the
first missing one. The final file replaces an older one only when everything is there.
"""

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments import machine

FOLDER = machine.ROOT / "data" / "results"


class Results:
    """Rows of one experiment on one machine.

    `settings`: what changes the rows (counts, model names); an interrupted run is continued only with the
    same settings at the same commit. `resume`: a folder with the partial file of the interrupted run, or with
    the final file of an earlier part. `about`: `description` of another result of the same command.
    """

    def __init__(
        self,
        experiment: str,
        machine_name: str | None = None,
        folder: Path | str = FOLDER,
        settings: dict | None = None,
        resume: Path | str | None = None,
        about: dict | None = None,
    ):
        self.machine_name = machine_name or machine.name()
        stem = f"{experiment}__{self.machine_name}"
        self.path = Path(folder) / f"{stem}.json"
        self.partial = Path(folder) / f"{stem}.partial.json"
        self.description = about or machine.describe()
        self.content = {"experiment": experiment, "machine": self.machine_name, **self.description}
        self.content |= {"settings": settings or {}, "earlier_runs": [], "rows": []}
        earlier = [self.partial]
        if resume:
            earlier = [Path(resume) / path.name for path in (self.partial, self.path)]
        self._continue(next((path for path in earlier if path.is_file()), None))

    def row(self, key: str, measure: Callable[[], dict]) -> dict:
        """The stored row `key`; where it is missing, what `measure()` returns, stored at once."""
        for row in self.rows():
            if row["key"] == key:
                return row
        start = time.perf_counter()
        row = {"key": key, **measure()}
        row.setdefault("seconds", round(time.perf_counter() - start, 3))
        self.content["rows"].append(row)
        write_json(self.partial, self.content)
        return row

    def has(self, key: str) -> bool:
        """Whether the row `key` has been measured."""
        return any(row["key"] == key for row in self.rows(key))

    def rows(self, prefix: str = "") -> list[dict]:
        """All rows whose key starts with `prefix`, in order of measurement."""
        return [row for row in self.content["rows"] if row["key"].startswith(prefix)]

    def forget(self, key: str) -> None:
        """Drop the row `key`, if there is one, so that it can be measured again."""
        self.content["rows"] = [row for row in self.rows() if row["key"] != key]

    def finish(self, checks: list[dict]) -> Path:
        """Write the final file and remove the partial one; returns its path."""
        write_json(self.path, {**self.content, "checks": checks})
        self.partial.unlink(missing_ok=True)
        return self.path

    def _continue(self, path: Path | None) -> None:
        if path is None:
            return
        found = json.loads(path.read_text(encoding="utf-8"))
        if any(found[k] != self.content[k] for k in ("experiment", "machine", "commit", "settings")):
            print(f"{path.name}: other settings or another commit; starting again", file=sys.stderr)
            return
        about = {k: v for k, v in found.items() if k not in ("rows", "earlier_runs", "settings", "checks")}
        self.content["earlier_runs"] = [*found["earlier_runs"], about]
        self.content["rows"] = found["rows"]
        print(f"continuing after {len(found['rows'])} rows of {path.name}", file=sys.stderr)


def check(name: str, value: float | None, goal: float | None = None, better: str = "higher") -> dict:
    """One figure beside its goal; booleans become 1 and 0, no goal means that it is only reported.

    A value that could not be computed (None) does not meet a goal.
    """
    if better not in ("higher", "lower"):
        raise ValueError(f"better is {better!r}: it must be 'higher' or 'lower'")
    met = None
    if goal is not None:
        met = value is not None and bool(value >= goal if better == "higher" else value <= goal)
    return {"name": name, "value": _number(value), "goal": _number(goal), "better": better, "met": met}


def reported(checks: list[dict]) -> list[dict]:
    """The same figures with nothing to meet: for machines that the goals are not about."""
    return [c | {"goal": None, "met": None} for c in checks]


def all_met(checks: list[dict]) -> bool:
    """Whether no check misses its goal."""
    return all(c["met"] is not False for c in checks)


def table(checks: list[dict]) -> str:
    """The checks as aligned text: name, value, goal, met."""
    rows: list[Sequence[str]] = [("check", "value", "goal", "met")]
    for c in checks:
        bound = (
            "" if c["goal"] is None else f"{'>=' if c['better'] == 'higher' else '<='} {_short(c['goal'])}"
        )
        rows.append((c["name"], _short(c["value"]), bound, {True: "yes", False: "NO", None: ""}[c["met"]]))
    return aligned(rows)


def aligned(rows: list[Sequence[str]]) -> str:
    """Cells as text, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines)


def report(path: Path, checks: list[dict], short: bool = False) -> int:
    """Print the table, `short`: of figures with a goal, and where the file is; returns the exit status.

    The status is 1 if a goal is missed, else 0.
    """
    print(table([c for c in checks if not short or c["goal"] is not None]))
    print(f"written to {path.relative_to(machine.ROOT) if path.is_relative_to(machine.ROOT) else path}")
    return 0 if all_met(checks) else 1


def write_json(path: Path, content: dict) -> None:
    """Replace `path` in one step, one row a line, so that a cut never leaves half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{json.dumps(k)}: {_value(v)}" for k, v in content.items()]
    fresh = path.with_suffix(".new")
    fresh.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    fresh.replace(path)


def _value(value: object) -> str:
    if isinstance(value, list) and value:
        return "[\n  " + ",\n  ".join(json.dumps(_plain(v), allow_nan=False) for v in value) + "\n]"
    return json.dumps(_plain(value), allow_nan=False)


def _plain(value: object) -> object:
    """`value` with NaN and infinities as null: a broken engine's row is still a row."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: float | bool | None) -> float | int | None:
    if isinstance(value, bool):
        return int(value)
    return value if value is not None and math.isfinite(value) else None  # JSON has no NaN


def _short(value: float | int | None) -> str:
    return "-" if value is None else str(value) if isinstance(value, int) else f"{value:.4g}"
