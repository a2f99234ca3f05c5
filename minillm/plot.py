"""One style for every figure of the course; only notebooks import it.

Okabe and Ito's colours, which colour-blind eyes tell apart, and hatches, which tell the same things apart
in grey. Figures bring their own light background, so that they read the same in a dark JupyterLab.
"""

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Patch

INK = "#222222"
MUTED = "#6B6B6B"
PAPER = "#FFFFFF"

# The same thing has the same colour in every notebook.
COLOURS = {
    "copy": "#E69F00",
    "compute": "#0072B2",
    "wait": "#D0D0D0",
    "cpu": "#009E73",
    "naive": "#C85000",
    "prefetch": "#56B4E9",
    "vllm": "#CC79A7",
    "limit": "#222222",
    "other": "#C4CCD4",  # there for comparison only
}
HATCHES = {"copy": "//", "wait": "..", "cpu": "\\\\", "naive": "xx", "vllm": "--"}

# A line that crosses the figure must not cross out a number.
_BEHIND_NUMBERS = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.8}

_RC = {
    "figure.figsize": (8.0, 3.6),
    "figure.dpi": 110,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "figure.constrained_layout.use": True,
    "axes.facecolor": PAPER,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.labelsize": 10,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "font.size": 10,
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
    "hatch.color": PAPER,
}


def use() -> None:
    """Apply the style to every figure drawn from here on."""
    mpl.rcParams.update(_RC)


def message(figure: Figure, text: str) -> None:
    """The one thing that the figure says, over its whole width."""
    figure.suptitle(text, x=0.005, ha="left", fontsize=12, fontweight="bold")


def short(value: float) -> str:
    """Two or three digits that can be read at a glance: 0.31, 5.6, 42, 1,704."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def bars(axes: Axes, names: list[str], values: list[float], kinds: list[str], text: list[str]) -> None:
    """Horizontal bars from the top down, each coloured by what it is and labelled with its value."""
    drawn = axes.barh(range(len(names)), values, color=[COLOURS[kind] for kind in kinds], height=0.66)
    for bar, kind in zip(drawn, kinds, strict=True):
        bar.set_hatch(HATCHES.get(kind, ""))
    labels = axes.bar_label(drawn, labels=text, padding=4, color=INK)
    for label in labels:
        label.set_bbox(_BEHIND_NUMBERS)
    _name_rows(axes, names)


def pairs(
    axes: Axes, names: list[str], left: list[float], right: list[float], kinds: tuple[str, str]
) -> None:
    """Two dots a row, joined by a line: one thing in two places. On a logarithmic axis a bar has no foot."""
    rows = range(len(names))
    axes.hlines(rows, left, right, color=COLOURS["wait"], linewidth=3, zorder=1)
    for values, kind, marker in ((left, kinds[0], "o"), (right, kinds[1], "D")):
        axes.scatter(values, rows, s=70, marker=marker, color=COLOURS[kind], zorder=2)
        for row, value in zip(rows, values, strict=True):
            axes.annotate(short(value), (value, row), xytext=(0, 8), textcoords="offset points", ha="center",
                          fontsize=8.5, bbox=_BEHIND_NUMBERS)  # fmt: skip
    _name_rows(axes, names)


def _name_rows(axes: Axes, names: list[str]) -> None:
    axes.set_yticks(range(len(names)), labels=names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def decades(axes: Axes, low: float, high: float) -> None:
    """A logarithmic x axis with plain numbers: 0.1, 1, 10, 100."""
    axes.set(xscale="log", xlim=(low, high))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.12g}")


def limit(axes: Axes, value: float, label: str) -> None:
    """A bound as a dashed vertical line, named above the axes."""
    axes.axvline(value, color=COLOURS["limit"], linestyle=(0, (4, 3)), linewidth=1.4, zorder=1.5)
    axes.annotate(label, (value, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 3),
                  textcoords="offset points", ha="center", va="bottom", fontsize=9)  # fmt: skip


def key(figure: Figure, names: dict[str, str]) -> None:
    """A legend of kinds, `{"copy": "copied over the link"}`, under the figure."""
    patches = [
        Patch(facecolor=COLOURS[kind], hatch=HATCHES.get(kind), edgecolor=PAPER, label=label)
        for kind, label in names.items()
    ]
    figure.legend(handles=patches, loc="outside lower left", ncols=len(patches), fontsize=9)


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
