"""A matrix as coloured cells: toy tensors with their numbers, attention maps, distances."""

from collections.abc import Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

from minillm.plot.style import INK, PAPER


def heat(
    axes: Axes,
    values: torch.Tensor,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    text: str = "",
    signed: bool = False,
) -> AxesImage:
    """Draw `values` [rows, columns]; returns the image, for `figure.colorbar`.

    `text` is a format such as ".1f" that writes each number into its cell. `signed` centres the colours at
    zero (orange below, blue above); otherwise darker is larger. Entries that are not finite stay white.
    """
    table = values.detach().float().cpu()
    finite = table[table.isfinite()]
    top = finite.abs().max().item() if finite.numel() else 1.0
    low, high = (-top, top) if signed else (min(0.0, finite.min().item()) if finite.numel() else 0.0, top)
    shown = table.masked_fill(~table.isfinite(), float("nan"))
    image = axes.imshow(shown, cmap="PuOr" if signed else "Blues", vmin=low, vmax=high or 1.0, aspect="auto")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    if rows:
        axes.set_yticks(range(len(rows)), labels=rows)
    if columns:
        axes.set_xticks(range(len(columns)), labels=columns)
    if text:
        _write(axes, table, text, image)
    return image


def _write(axes: Axes, table: torch.Tensor, text: str, image: AxesImage) -> None:
    for row, line in enumerate(table.tolist()):
        for column, value in enumerate(line):
            red, green, blue, _ = image.cmap(image.norm(value)) if value == value else (1, 1, 1, 1)
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
            axes.text(column, row, format(value, text), ha="center", va="center", fontsize=9,
                      color=PAPER if dark else INK)  # fmt: skip
