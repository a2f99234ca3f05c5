"""Small result files for the tests of the report."""

import json

from experiments.report_results import Archive
from experiments.report_table import Table

MODEL = "Qwen3-8B"


def store(archive: Archive, experiment: str, rows=(), checks=(), machine: str = "h200", **more) -> None:
    """Write a result into the archive's folder."""
    content = {"date": "2026-01-02T03:04:05", "commit": "abcdef0123", "torch": "2", **more}
    content |= {"rows": list(rows), "checks": list(checks)}
    (archive.folder / f"{experiment}__{machine}.json").write_text(json.dumps(content))


def answer(engine: str, mode: str, question: int | None, speed: float | None, **more) -> dict:
    """A row of one answer."""
    key = f"{MODEL}/{engine}/{mode}/{question}"
    row = {
        "key": key,
        "model": MODEL,
        "engine": engine,
        "mode": mode,
        "question_id": question,
        "ttft_s": 0.02,
    }
    return {
        **row,
        "prompt_tokens": 100,
        "new_tokens": 256,
        "tokens_per_s": speed,
        "peak_bytes": 2**30,
        **more,
    }


def cells(table: Table, name: str) -> tuple[str, ...]:
    """The row whose first cell is `name`."""
    (row,) = [row for row in table.rows if row[0] == name]
    return row
