"""A block's parameters in its layer's flat buffer when its matrices are quantised. No torch.

Matrices that share an input (q, k and v; gate and up) and a format lie one below the other as one matrix, so
that they cost one product, as in the dense layout. What has no format, such as norms and biases, stays dense.
"""

from dataclasses import dataclass
from itertools import pairwise

from minillm.geometry import ALIGNMENT, Shapes
from minillm.quant.formats import Format, Part, Place

STACKED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


@dataclass(frozen=True)
class Entry:
    """One stored matrix, or one dense tensor, of a block."""

    names: tuple[str, ...]  # its parameters from top to bottom, relative to the layer
    rows: tuple[int, ...]  # of each
    columns: int
    format: Format
    places: tuple[Place, ...]

    def row_range(self, name: str) -> tuple[int, int]:
        """The rows of one parameter, the same in every part."""
        index = self.names.index(name)
        begin = sum(self.rows[:index])
        return begin, begin + self.rows[index]


@dataclass(frozen=True)
class BlockLayout:
    """Entries of one block in forward order."""

    entries: tuple[Entry, ...]
    begin: int  # bytes
    end: int

    @property
    def num_bytes(self) -> int:
        return self.end - self.begin


def dense(dtype: str) -> Format:
    """Numbers as they are; a vector is a matrix of one row."""
    return Format(dtype, 0, (Part("weight", dtype),))


def block_layout(shapes: Shapes, formats: dict[str, Format], dtype: str, begin: int = 0) -> BlockLayout:
    """Lay out a block whose parameters are `shapes` (`geometry.block_shapes`), from byte `begin` on.

    `formats` of quantised matrices, by name; `dtype` is torch's name for all others. Raises InputError for a
    matrix that its format cannot store.
    """
    entries, end = [], begin
    for names in _groups(shapes, formats):
        format = formats.get(names[0], dense(dtype))
        for name in names if names[0] in formats else ():
            format.check(name, shapes[name])
        rows = tuple(shapes[name][0] if len(shapes[name]) > 1 else 1 for name in names)
        columns = shapes[names[0]][-1]
        places = format.places(sum(rows), columns, end)
        entries.append(Entry(names, rows, columns, format, places))
        end = -(-(places[-1].offset + places[-1].num_bytes) // ALIGNMENT) * ALIGNMENT
    return BlockLayout(tuple(entries), begin, end)


def _groups(shapes: Shapes, formats: dict[str, Format]) -> list[tuple[str, ...]]:
    """Names in order, those that are stacked together as one group: neighbours in one format."""
    groups: list[tuple[str, ...]] = []
    for name in shapes:
        above = groups[-1][-1] if groups else ""
        alike = name in formats and formats.get(above) == formats[name]
        if alike and _stackable(above, name):
            groups[-1] += (name,)
        else:
            groups.append((name,))
    return groups


def _stackable(above: str, name: str) -> bool:
    """Whether both are weights of neighbours in one stack of one module."""
    (owner, module, kind), (owner_above, module_above, kind_above) = _split(name), _split(above)
    if owner != owner_above or (kind, kind_above) != ("weight", "weight"):
        return False
    return any((module_above, module) in pairwise(stack) for stack in STACKED)


def _split(name: str) -> tuple[str, str, str]:
    """`mlp.experts.3.up_proj.weight` → `mlp.experts.3`, `up_proj`, `weight`."""
    path, _, kind = name.rpartition(".")
    owner, _, module = path.rpartition(".")
    return owner, module, kind
