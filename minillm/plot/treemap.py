"""Areas that are numbers: what a model is made of, several models on one scale."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from minillm.plot.style import COLOURS, INK, PAPER

GAP_INCHES = 0.3  # between two maps
LETTER_INCHES = 0.011  # width of a letter for each point of its size
PALE = 0.72  # share of white in the colour of a pale tile

Box = tuple[float, float, float, float]  # left, top, width, height; down is positive
Colour = tuple[float, float, float]


@dataclass(frozen=True)
class Tile:
    """One rectangle: a `size` in any unit, coloured by `kind`; `pale` marks what is there but rests."""

    kind: str
    size: float
    name: str = ""
    pale: bool = False


def treemap(axes: Axes, maps: dict[str, Sequence[Tile]]) -> None:
    """Draw each of `maps`, `{"title": tiles}`, as a square; equal areas are equal sizes in all of them.

    Tiles of one kind lie together under the kind's name and its share of the map.
    """
    width, height = axes.figure.get_size_inches()
    sides = [sqrt(sum(tile.size for tile in tiles)) for tiles in maps.values()]
    titles = [LETTER_INCHES * 10.5 * max(map(len, title.split("\n"))) for title in maps]
    free = 0.97 * width - GAP_INCHES * (len(maps) - 1)
    inch = max(sum(sides) / free, max(sides) / (0.8 * height))  # what is one inch long, in roots of sizes
    left = right = 0.0
    for (title, tiles), side, letters in zip(maps.items(), sides, titles, strict=True):
        top = max(sides) - side  # all stand on one ground
        axes.text(left, top - 0.06 * inch, title, va="bottom", fontsize=10.5, fontweight="bold")
        _draw_map(axes, tiles, (left, top, side, side), inch)
        right = left + max(side, letters * inch)
        left = right + GAP_INCHES * inch
    axes.set(xlim=(-0.02 * inch, right), ylim=(max(sides) + 0.02 * inch, -0.45 * inch), aspect="equal")
    axes.axis("off")


def squares(sizes: Sequence[float], box: Box) -> list[Box]:
    """Fill `box` with one rectangle for each of `sizes`, in proportion, as near to squares as rows allow.

    The squarified treemap of Bruls, Huizing and van Wijk (2000). Sizes come best in falling order.
    """
    left, top, width, height = box
    boxes: list[Box] = []
    rest, scale = list(sizes), width * height / sum(sizes)
    while rest:
        short = min(width, height)
        count = _row_length([size * scale for size in rest], short)
        row, rest = rest[:count], rest[count:]
        # The last row takes what is left, so that rounding leaves no gap.
        thick = sum(row) * scale / short if rest else max(width, height)
        along = 0.0
        for size in row:
            length = short * size / sum(row)
            if width >= height:
                boxes.append((left, top + along, thick, length))
            else:
                boxes.append((left + along, top, length, thick))
            along += length
        if width >= height:
            left, width = left + thick, width - thick
        else:
            top, height = top + thick, height - thick
    return boxes


def _row_length(areas: list[float], short: float) -> int:
    """How many of `areas` make the best row along a side of length `short`."""

    def worst(count: int) -> float:
        total = sum(areas[:count])
        ratios = [(area / (total / short) ** 2) for area in areas[:count]]
        return max(max(ratio, 1 / ratio) for ratio in ratios)

    count = 1
    while count < len(areas) and worst(count + 1) <= worst(count):
        count += 1
    return count


def _draw_map(axes: Axes, tiles: Sequence[Tile], box: Box, inch: float) -> None:
    parts: dict[str, list[Tile]] = {}
    for tile in tiles:
        parts.setdefault(tile.kind, []).append(tile)
    ordered = sorted(parts.values(), key=lambda part: -_total(part))
    for part, place in zip(ordered, squares([_total(part) for part in ordered], box), strict=True):
        for tile, where in zip(part, squares([tile.size for tile in part], place), strict=True):
            _draw_tile(axes, tile, where, inch)
        left, top, width, height = place
        axes.add_patch(Rectangle((left, top), width, height, fill=False, edgecolor=PAPER, linewidth=1.8))
        pale = 2 * _total([tile for tile in part if tile.pale]) > _total(part)
        lines = [part[0].kind, f"{_total(part) / _total(tiles):.0%}"]
        _name(axes, lines, place, inch, _colour(Tile(part[0].kind, 0.0, pale=pale)))


def _total(tiles: Sequence[Tile]) -> float:
    return sum(tile.size for tile in tiles)


def _draw_tile(axes: Axes, tile: Tile, box: Box, inch: float) -> None:
    left, top, width, height = box
    colour = _colour(tile)
    edge = PAPER if min(width, height) > 0.09 * inch else colour
    axes.add_patch(Rectangle((left, top), width, height, facecolor=colour, edgecolor=edge, linewidth=0.5))
    if tile.name and _fits([tile.name], (width, 0.3 * height), inch, 8):
        corner = (left + 0.06 * inch, top + height - 0.05 * inch)
        axes.text(*corner, tile.name, va="bottom", fontsize=8, color=_ink(colour))


def _name(axes: Axes, lines: list[str], box: Box, inch: float, colour: Colour) -> None:
    """Write `lines` in the middle, as large as fits; turned, or the last line alone, where it is narrow."""
    left, top, width, height = box
    choices = [(lines, (width, height), 0), (lines, (height, width), 90), (lines[-1:], (width, height), 0)]
    for shown, room, angle in choices:
        for size in (13, 11, 9.5, 8, 7):
            if _fits(shown, room, inch, size):
                behind = {"facecolor": colour, "edgecolor": "none", "pad": 0.8}
                axes.text(left + width / 2, top + height / 2, "\n".join(shown), ha="center", va="center",
                          fontsize=size, fontweight="bold", color=_ink(colour), rotation=angle,
                          bbox=behind)  # fmt: skip
                return


def _fits(lines: list[str], room: tuple[float, float], inch: float, size: float) -> bool:
    width, height = room
    letters = max(map(len, lines))
    return letters * LETTER_INCHES * size < width / inch and len(lines) * size / 46 < height / inch


def _colour(tile: Tile) -> Colour:
    white = PALE if tile.pale else 0.0
    red, green, blue = ((1 - white) * part + white for part in to_rgb(COLOURS[tile.kind]))
    return red, green, blue


def _ink(colour: Colour) -> str:
    red, green, blue = colour
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 0.6 else PAPER
