"""Small result files for the tests of the report."""

import json

from experiments.report_results import Archive
from experiments.report_table import Table


def store(archive: Archive, experiment: str, rows=(), checks=(), machine: str = "h200", **more) -> None:
    """Write a result into the archive's folder."""
    content = {"date": "2026-01-02T03:04:05", "commit": "abcdef0123", "torch": "2", **more}
    content |= {"rows": list(rows), "checks": list(checks)}
    (archive.folder / f"{experiment}__{machine}.json").write_text(json.dumps(content))


def cells(table: Table, name: str) -> tuple[str, ...]:
    """The row whose first cell is `name`."""
    (row,) = [row for row in table.rows if row[0] == name]
    return row
