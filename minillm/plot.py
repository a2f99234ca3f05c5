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
}
HATCHES = {"copy": "//", "wait": "..", "cpu": "\\\\", "naive": "xx", "vllm": "--"}

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
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlesize": 12,
    "axes.titlepad": 12,
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


def bars(axes: Axes, names: list[str], values: list[float], kinds: list[str], text: list[str]) -> None:
    """Horizontal bars from the top down, each coloured by what it is and labelled with its value."""
    drawn = axes.barh(range(len(names)), values, color=[COLOURS[kind] for kind in kinds], height=0.66)
    for bar, kind in zip(drawn, kinds, strict=True):
        bar.set_hatch(HATCHES.get(kind, ""))
    axes.bar_label(drawn, labels=text, padding=4, color=INK)
    axes.set_yticks(range(len(names)), labels=names)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)


def limit(axes: Axes, value: float, label: str, vertical: bool = True) -> None:
    """A bound as a dashed line with its name: nothing measured can lie beyond it."""
    style = {"color": COLOURS["limit"], "linestyle": (0, (4, 3)), "linewidth": 1.4}
    if vertical:
        axes.axvline(value, **style)
        axes.annotate(label, (value, 1.0), xycoords=("data", "axes fraction"), xytext=(4, -2),
                      textcoords="offset points", va="top", fontsize=9)  # fmt: skip
    else:
        axes.axhline(value, **style)
        axes.annotate(label, (1.0, value), xycoords=("axes fraction", "data"), xytext=(-2, 3),
                      textcoords="offset points", ha="right", fontsize=9)  # fmt: skip


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
