"""The map of the course."""

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from minillm.plot.style import COLOURS, INK, PAPER


def course_map(axes: Axes, rows: list[dict[str, str]], here: str) -> None:
    """The notebooks as boxes, one line for each part, in the order of reading; `here` is the number to mark.

    `rows` are those of data/course.json.
    """
    parts = list(dict.fromkeys(row["part"] for row in rows))
    width = max(sum(row["part"] == part for row in rows) for part in parts)
    for line, part in enumerate(parts):
        axes.text(-0.15, line, part, ha="right", va="center", fontweight="bold")
        for column, row in enumerate(row for row in rows if row["part"] == part):
            _map_box(axes, column, line, row, marked=row["number"] == here)
    axes.set(xlim=(-1.5, width), ylim=(len(parts) - 0.45, -0.55))
    axes.axis("off")


def _map_box(axes: Axes, column: int, line: int, row: dict[str, str], marked: bool) -> None:
    face, ink = (COLOURS["compute"], PAPER) if marked else ("#E8EEF4", INK)
    box = FancyBboxPatch((column + 0.06, line - 0.33), 0.88, 0.66, boxstyle="round,pad=0,rounding_size=0.1",
                         facecolor=face, edgecolor=COLOURS["compute"], linewidth=1.0)  # fmt: skip
    axes.add_patch(box)
    label = f"{row['number']}  {row['title']}"
    axes.text(column + 0.5, line, label, ha="center", va="center", fontsize=8.5, color=ink)
