"""What `quantize --budget-gib` found, as text."""

from minillm.quant.fit import Fit, Row
from minillm.units import gib

HEAD = ("part", "layers", "format", "before", "after", "predicted KL")


def table(fit: Fit, where: str) -> str:
    """The mix and a line for each run of layers in one format; `where`: what it was measured on."""
    lines = [HEAD, *map(_cells, fit.rows()), _whole(fit)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    text = [f"mix  {fit.mix}", *("  ".join(_padded(line, widths)).rstrip() for line in lines)]
    return "\n".join([*text, f"measured KL of the mix: {fit.measured:.6f} nats a token, {where}"]) + "\n"


def _cells(row: Row) -> tuple[str, ...]:
    first, last = row.layers[0], row.layers[-1]
    span = f"{first}" if first == last else f"{first}-{last}"
    return row.part, span, row.format, gib(row.before), gib(row.after), f"{row.damage:.6f}"


def _whole(fit: Fit) -> tuple[str, ...]:
    """All weights: with embedding and head, which no format changes."""
    sizes = fit.sizes
    return "all weights", "", "", gib(sizes.full), gib(sizes.mixed(fit.mix)), f"{fit.predicted:.6f}"


def _padded(cells: tuple[str, ...], widths: list[int]) -> list[str]:
    pairs = zip(cells, widths, strict=True)
    return [
        cell.ljust(width) if place < 3 else cell.rjust(width) for place, (cell, width) in enumerate(pairs)
    ]
