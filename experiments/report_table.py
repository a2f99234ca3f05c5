"""A table with a caption and notes, for a notebook, a page and a terminal; text whose numbers are code's."""

import html
import re
from dataclasses import dataclass

from experiments.report_results import NOT_YET
from experiments.results import aligned

UNITS = "%|s|ms|[GMK]i?B|GB/s|tok/s|tokens|billion"
# Cells that are not broken into lines.
FIGURE = re.compile(rf"[-≤≥]?\s?[\d.,]+(e-?\d+)?\s?({UNITS})?|–|[\d.]+–[\d.]+")


ABSENT = ((NOT_YET,),)  # the rows of a table whose result is not there


@dataclass(frozen=True)
class Table:
    """Cells as text; a head with "predicted" marks its column; a short row's last cell spans the rest."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self):
        wrong = [row for row in self.rows if not 0 < len(row) <= len(self.head)]
        if wrong:
            raise ValueError(
                f"{self.caption}: a row has {len(wrong[0])} cells, from 1 to {len(self.head)} are possible"
            )

    def __repr__(self) -> str:
        blank = [(*row, *[""] * (len(self.head) - len(row))) for row in self.rows]
        lines = [self.caption, aligned([self.head, *blank]), *self.notes]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if self.rows == ABSENT:
            said = self.caption if NOT_YET in self.caption else f"{self.caption}: {NOT_YET}"
            return f'<p class="absent">{html.escape(said)}</p>'
        head = "".join(f"<th{self._mark(name)}>{html.escape(name)}</th>" for name in self.head)
        body = "\n".join(f"<tr>{self._cells(row)}</tr>" for row in self.rows)
        notes = "".join(f'<p class="note">{html.escape(note)}</p>' for note in self.notes)
        caption = f"<caption>{html.escape(self.caption)}</caption>"
        table = f"<table>{caption}\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>"
        return f'<div class="report-table">{table}{notes}</div>'

    def _cells(self, row: tuple[str, ...]) -> str:
        cells = [
            f"<td{self._mark(name, cell)}>{html.escape(cell)}</td>"
            for name, cell in zip(self.head, row, strict=False)
        ]
        if len(row) < len(self.head):
            cells[-1] = f'<td colspan="{len(self.head) - len(row) + 1}">{html.escape(row[-1])}</td>'
        return "".join(cells)

    def _mark(self, name: str, cell: str = "") -> str:
        found = ["predicted"] if "predicted" in name else []
        found += ["figure"] if FIGURE.fullmatch(cell) else []
        return f' class="{" ".join(found)}"' if found else ""


class Text(str):
    """Markdown that code has written."""

    def _repr_markdown_(self) -> str:
        return str(self)


def show(*things: object) -> None:
    """Show each as the notebook can; where there is no IPython, print it."""
    try:
        from IPython.display import display
    except ImportError:
        display = print
    for thing in things:
        display(Text(thing) if isinstance(thing, str) else thing)
