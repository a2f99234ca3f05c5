"""What a quantised matrix consists of: parts, their shapes and bytes, known from the shape alone. No torch.

A matrix [rows, columns] (a Linear's [out, in]) is stored as a few contiguous tensors. Every format
quantises each row by itself, so that rows of several projections of one input can be stacked, and a row
range of a matrix is the same row range of each part.
"""

from dataclasses import dataclass

from minillm.errors import InputError
from minillm.geometry import ALIGNMENT

ITEM_BYTES = {"int8": 1, "uint8": 1, "float8_e4m3fn": 1, "bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True)
class Part:
    """One tensor of a quantised matrix: `entries` for every `columns` weights of a row; 0: one for a row."""

    name: str
    dtype: str  # torch's name
    entries: int = 1
    columns: int = 1

    def shape(self, rows: int, columns: int) -> tuple[int, ...]:
        """[rows, entries], or [rows] where a row has one."""
        return (rows, columns // self.columns * self.entries) if self.columns else (rows,)


@dataclass(frozen=True)
class Place:
    """Where a part lies in a buffer."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int  # bytes
    num_bytes: int


@dataclass(frozen=True)
class Format:
    """A way to store a matrix. `group`: columns that share a scale, 0 for a whole row."""

    name: str
    group: int
    parts: tuple[Part, ...]

    def takes(self, shape: tuple[int, ...]) -> bool:
        """Whether a tensor of that shape can be stored: a matrix whose rows are whole groups."""
        return len(shape) == 2 and min(shape) > 0 and shape[1] % max(self.group, 1) == 0

    def check(self, name: str, shape: tuple[int, ...], key: str | None = None) -> None:
        """Raise InputError, with `name`, for a tensor that cannot be stored; `key`: what a mix calls it."""
        if len(shape) != 2 or min(shape) < 1:
            raise InputError(f"{name} has shape {list(shape)}: {self.name} stores matrices [out, in] only")
        if not self.takes(shape):
            others = [format.name for format in FORMATS.values() if format.takes(shape)]
            raise InputError(
                f"{name} has {shape[1]} columns, which {self.name}'s groups of {self.group} do not divide: "
                f"choose {' or '.join(others)} for it" + (f", as in {key}={others[0]}" if key else "")
            )

    def places(self, rows: int, columns: int, begin: int = 0) -> tuple[Place, ...]:
        """Each part's place in a buffer from byte `begin` on, every part at a multiple of `ALIGNMENT`."""
        places, end = [], begin
        for part in self.parts:
            shape, offset = part.shape(rows, columns), -(-end // ALIGNMENT) * ALIGNMENT
            num_bytes = _count(shape) * ITEM_BYTES[part.dtype]
            places.append(Place(part.name, part.dtype, shape, offset, num_bytes))
            end = offset + num_bytes
        return tuple(places)

    def packed_bytes(self, rows: int, columns: int) -> int:
        """Bytes of the parts themselves."""
        return sum(place.num_bytes for place in self.places(rows, columns))


def int4_format(group: int, kind: str, name: str | None = None) -> Format:
    """Four bits a weight in groups of `group` columns; `kind` says what the value 8 stands for.

    "symmetric": 0; "middle": a stored number; "zero": the stored value that stands for 0 (files of others).
    """
    if group < 2 or group % 2:
        raise InputError(f"int4 in groups of {group}: a group has a whole number of bytes, so an even number")
    scale = {"symmetric": "bfloat16", "middle": "bfloat16", "zero": "float16"}[kind]
    parts = (Part("packed", "uint8", group // 2, group), Part("scale", scale, 1, group))
    if kind == "middle":
        parts += (Part("middle", "bfloat16", 1, group),)
    elif kind == "zero":
        parts += (Part("zero", "uint8", 1, group),)
    return Format(name or f"int4-{kind}{group}", group, parts)


INT8 = Format("int8", 0, (Part("packed", "int8"), Part("scale", "bfloat16", columns=0)))
INT4 = int4_format(128, "middle", "int4")
INT4_SYM = int4_format(64, "symmetric", "int4-sym")
FP8 = Format("fp8", 0, (Part("packed", "float8_e4m3fn"), Part("scale", "float32", columns=0)))
FORMATS = {format.name: format for format in (INT8, INT4, INT4_SYM, FP8)}


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
