"""Colours, hatches, limits and titles that every figure shares.

Okabe and Ito's colours for what happens in time, Paul Tol's muted ones for what a model is made of:
colour-blind eyes tell both apart, and hatches or lightness tell the same things apart in grey. Figures bring
their own light background, so that they read the same in a dark JupyterLab.
"""

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

INK = "#222222"
MUTED = "#6B6B6B"
PAPER = "#FFFFFF"

# The same thing has the same colour in every notebook.
COLOURS = {
    # what a machine does
    "copy": "#E69F00",
    "compute": "#0072B2",
    "wait": "#D0D0D0",
    "cpu": "#009E73",
    # who does it
    "naive": "#C85000",
    "prefetch": "#56B4E9",
    "vllm": "#CC79A7",
    "limit": "#222222",
    "other": "#C4CCD4",  # there for comparison only
    # what a model is made of
    "attention": "#332288",
    "mlp": "#CC6677",
    "embedding": "#DDCC77",
    "head": "#117733",
    "router": "#44AA99",
    "norm": "#BBBBBB",
    # how a number is stored
    "float32": "#222222",
    "float16": "#882255",
    "bfloat16": "#88CCEE",
}
HATCHES = {"copy": "//", "wait": "..", "cpu": "\\\\", "naive": "xx", "vllm": "--"}

# A line that crosses the figure must not cross out a number.
BEHIND_NUMBERS = {"facecolor": PAPER, "edgecolor": "none", "pad": 2.0}
DASHED = {"color": COLOURS["limit"], "linestyle": (0, (4, 3)), "linewidth": 1.4, "zorder": 1.5}

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


def decades(axes: Axes, low: float, high: float) -> None:
    """A logarithmic x axis with plain numbers: 0.1, 1, 10, 100."""
    axes.set(xscale="log", xlim=(low, high))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.12g}")


def limit(axes: Axes, value: float, label: str) -> None:
    """A bound as a dashed vertical line, named above the axes."""
    axes.axvline(value, **DASHED)
    axes.annotate(label, (value, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 3),
                  textcoords="offset points", ha="center", va="bottom", fontsize=9)  # fmt: skip


def floor(axes: Axes, value: float, label: str) -> None:
    """A bound as a dashed horizontal line, named at its right end, above the line."""
    axes.axhline(value, **DASHED)
    axes.annotate(label, (1.0, value), xycoords=("axes fraction", "data"), xytext=(0, 3),
                  textcoords="offset points", ha="right", va="bottom", fontsize=9)  # fmt: skip


def key(figure: Figure, names: dict[str, str]) -> None:
    """A legend of kinds, `{"copy": "copied over the link"}`, under the figure."""
    patches = [
        Patch(facecolor=COLOURS[kind], hatch=HATCHES.get(kind), edgecolor=PAPER, label=label)
        for kind, label in names.items()
    ]
    figure.legend(handles=patches, loc="outside lower left", ncols=len(patches), fontsize=9)
