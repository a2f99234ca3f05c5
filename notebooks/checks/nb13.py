"""Notebook 13: bytes of a packed matrix, four bits with a middle, products with groups, an expansion."""

import torch

from checks.exercise import Exercise

__all__ = ["grouped_product", "matrix_bytes", "quantise4", "repaired_expand"]


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _values(*shape: int, seed: int = 0) -> torch.Tensor:
    """Whole numbers 0 to 15, uint8."""
    return torch.randint(0, 16, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


# ---- bytes of a packed matrix ----


def _bytes(rows, columns, bits, group, middle, shared=None, each=2, byte=8):
    """`shared`: how many scales there are, `each`: their bytes."""
    scales = rows * (columns // group if group else 1) if shared is None else shared
    return rows * columns * bits // byte + scales * each * (2 if middle else 1)


def _with(**settings):
    return lambda *case: _bytes(*case, **settings)


matrix_bytes = Exercise(
    "bytes of a matrix",
    _bytes,
    (
        (4096, 12288, 4, 128, True),
        (4096, 12288, 4, 64, False),
        (12288, 4096, 8, 0, False),
        (96, 256, 4, 32, True),
        (7, 64, 4, 0, True),
    ),
    {
        "The weights are right. The scales take bytes, too.": (
            lambda rows, columns, bits, group, middle: rows * columns * bits // 8
        ),
        "Those are bits. A byte has 8 of them.": _with(byte=1),
        "`bits` is what one weight takes. All weights together take rows × columns × bits.": (
            lambda rows, columns, bits, group, middle: rows * columns // bits
        ),
        "`middle` is not counted: it is one more number of 2 bytes for each group.": (
            lambda rows, columns, bits, group, middle: _bytes(rows, columns, bits, group, False)
        ),
        "A middle is counted everywhere; it is there only where `middle` is True.": (
            lambda rows, columns, bits, group, middle: _bytes(rows, columns, bits, group, True)
        ),
        "Each row has its own groups: there are rows × (columns ÷ group) of them.": (
            lambda rows, columns, bits, group, middle: _bytes(
                rows, columns, bits, group, middle, shared=columns // group if group else 1
            )
        ),
        "Groups lie along the columns of a row, not along the rows.": (
            lambda rows, columns, bits, group, middle: _bytes(
                rows, columns, bits, group, middle, shared=columns * (rows // group if group else 1)
            )
        ),
        "A scale is one number of 2 bytes, not of 4.": _with(each=4),
        "A scale takes 2 bytes, not one.": _with(each=1),
        "A group of 0 means one group for the whole row; dividing by it cannot work.": (
            lambda rows, columns, bits, group, middle: _bytes(
                rows, columns, bits, group, middle, shared=rows * (columns // group)
            )
        ),
        "With a group of 0 a row still has one scale; you count none.": (
            lambda rows, columns, bits, group, middle: _bytes(
                rows, columns, bits, group, middle, shared=rows * (columns // group) if group else 0
            )
        ),
    },
)

# ---- four bits with a middle ----


def _quantise(weight, group, steps=15, eight=8, add=8, rounded=torch.round, over=(-1,), centre=None):
    groups = weight.unflatten(1, (-1, group))
    low, high = groups.amin(over), groups.amax(over)
    low, high = (x.expand(groups.shape[:2]) for x in (low, high))
    scale = (high - low) / steps
    middle = low + eight * scale if centre is None else centre(low, high)
    values = rounded((groups - middle[..., None]) / scale[..., None] + add)
    return values, scale.clone(), middle


def _symmetric(weight, group):
    groups = weight.unflatten(1, (-1, group))
    scale = groups.abs().amax(-1) / 7
    return (groups / scale[..., None] + 8).round(), scale, torch.zeros_like(scale)


def _quantised(**settings):
    return lambda weight, group: _quantise(weight, group, **settings)


def _flat(weight, group):
    values, scale, middle = _quantise(weight, group)
    return values.flatten(1), scale, middle


def _whole_rows(weight, group):
    values, scale, middle = _quantise(weight, weight.shape[1])
    count = weight.shape[1] // group
    return values.view(len(weight), count, group), scale.expand(-1, count), middle.expand(-1, count)


def _changed(change):
    return lambda weight, group: change(*_quantise(weight, group))


quantise4 = Exercise(
    "four bits with a middle",
    _quantise,
    (
        (torch.arange(20, 28)[None] / 10, 8),
        (_random(5, 24), 8),
        (_random(3, 32, seed=1) + 2, 16),
        (0.01 * _random(6, 12, seed=2), 4),
    ),
    {
        "From 0 to 15 there are 15 steps, not 16.": _quantised(steps=16),
        "Value 8 stands for the lowest weight and 8 steps. The centre of the range is at seven and a half: "
        "with it the values do not reach from 0 to 15.": _quantised(
            centre=lambda low, high: (low + high) / 2
        ),
        "Value 8 stands for the mean of lowest and highest in yours, and is 7.5: values are whole.": (
            _quantised(centre=lambda low, high: (low + high) / 2, add=7.5)
        ),
        "The values go from −8 to 7; the stored ones go from 0 to 15.": _quantised(add=0),
        "The values are not rounded: they would need more than 4 bits.": _quantised(rounded=lambda x: x),
        "The values are cut off, not rounded: the error becomes twice as large, and lies to one side.": (
            _quantised(rounded=torch.floor)
        ),
        "That is the symmetric way: 8 stands for 0. Here it stands for the middle of each group's range.": (
            _symmetric
        ),
        "One scale for a whole row. Each group has its own: that is what groups are for.": _whole_rows,
        "Your lowest and highest are those of the whole matrix. Each group of each row has its own.": (
            _quantised(over=(0, 1, 2))
        ),
        "The numbers are right. The values keep the shape [rows, groups, group].": _flat,
        "The numbers are right. Scale and middle are [rows, groups]; yours have a dimension more.": _changed(
            lambda values, scale, middle: (values, scale[..., None], middle[..., None])
        ),
        "The numbers are right. The values are asked for in float32, yours are integers.": _changed(
            lambda values, scale, middle: (values.to(torch.uint8), scale, middle)
        ),
        "The three are right, but in another order: values, scale, middle.": _changed(
            lambda values, scale, middle: (values, middle, scale)
        ),
        "Values and scale are right. The third tensor is the middle, 8 steps above the lowest weight.": (
            _changed(lambda values, scale, middle: (values, scale, middle - 8 * scale))
        ),
    },
)

# ---- products with groups ----


def _grouped(x, values, scale):
    grouped = x.unflatten(1, (values.shape[1], -1))
    return (torch.einsum("tgc,rgc->trg", grouped, values) * scale).sum(-1)


grouped_product = Exercise(
    "scale after the sum",
    _grouped,
    (
        (_random(1, 8), (_values(3, 2, 4) - 8.0), _random(3, 2, seed=3).abs()),
        (_random(4, 30, seed=1), (_values(5, 3, 10, seed=1) - 8.0), _random(5, 3, seed=4).abs()),
        (_random(2, 12, seed=2), (_values(6, 2, 6, seed=2) - 8.0), _random(6, 2, seed=5).abs()),
    ),
    {
        "The scales are not used.": lambda x, values, scale: x @ values.flatten(1).T,
        "Groups with different scales are added before they are scaled. Each group's sum needs its own "
        "scale first.": lambda x, values, scale: (x @ values.flatten(1).T) * scale.sum(-1),
        "A row's groups do not have their mean scale: each sum is multiplied by its own.": (
            lambda x, values, scale: (x @ values.flatten(1).T) * scale.mean(-1)
        ),
        "Only the first scale of each row is used.": (
            lambda x, values, scale: (x @ values.flatten(1).T) * scale[:, 0]
        ),
        "The sums are right, group by group. They still have to be added: the result is [T, rows].": (
            lambda x, values, scale: (
                torch.einsum("tgc,rgc->trg", x.unflatten(1, (values.shape[1], -1)), values) * scale
            )
        ),
        "The result is transposed: [T, rows], one row for each token.": (
            lambda x, values, scale: _grouped(x, values, scale).T
        ),
        "Columns of a group are neighbours: the first group is x[:, :group], not every second or third "
        "column.": (
            lambda x, values, scale: _grouped(
                x.unflatten(1, (-1, values.shape[1])).mT.flatten(1), values, scale
            )
        ),
        "You divide by the scale. Multiplying by it gives the weight back.": (
            lambda x, values, scale: _grouped(x, values, 1 / scale)
        ),
    },
)

# ---- a broken expansion ----

FAULTS = {
    "halves": "The scales are right now. The low four bits hold the first half of a group's columns, the "
    "high four the second.",
    "axis": "The halves are right now. `scale` is [rows, groups]: transposed, each row takes the scales of "
    "other rows, and nothing complains where there are as many rows as groups.",
}


def _expand(packed, scale, middle, faults=(), eight=8):
    halves = packed.unflatten(1, (scale.shape[1], -1))
    pair = (halves & 15, halves >> 4)
    values = torch.cat(pair[::-1] if "halves" in faults else pair, -1).float()
    scales = scale.T if "axis" in faults else scale
    return ((values - eight) * scales[..., None] + middle[..., None]).flatten(1)


def _neighbours(packed, scale, middle):
    values = torch.stack((packed & 15, packed >> 4), -1).flatten(1).float()
    return ((values.unflatten(1, (scale.shape[1], -1)) - 8) * scale[..., None] + middle[..., None]).flatten(1)


def _whole_row(packed, scale, middle):
    values = torch.cat((packed & 15, packed >> 4), -1).float()
    return ((values.unflatten(1, (scale.shape[1], -1)) - 8) * scale[..., None] + middle[..., None]).flatten(1)


def _unshifted(packed, scale, middle):
    halves = packed.unflatten(1, (scale.shape[1], -1))
    values = torch.cat((halves & 15, halves & 240), -1).float()
    return ((values - 8) * scale[..., None] + middle[..., None]).flatten(1)


def _unsigned(packed, scale, middle):
    halves = packed.unflatten(1, (scale.shape[1], -1))
    values = torch.cat((halves & 15, halves >> 4), -1)
    return ((values - 8) * scale[..., None] + middle[..., None]).flatten(1)


def _packed(rows: int, groups: int, group: int, seed: int) -> tuple[torch.Tensor, ...]:
    low, high = _values(rows, groups, group, seed=seed).chunk(2, -1)
    scale, middle = _random(rows, groups, seed=seed).abs(), _random(rows, groups, seed=seed + 9)
    return (low | high << 4).flatten(1), scale, middle


repaired_expand = Exercise(
    "repaired expansion",
    _expand,
    (_packed(3, 3, 8, 0), _packed(4, 4, 2, 1), _packed(5, 2, 6, 2), _packed(2, 3, 4, 3)),
    {
        "Nothing is repaired yet. Expand one group on paper: section 3 says which columns a byte holds.": (
            lambda *case: _expand(*case, faults=("halves", "axis"))
        ),
        FAULTS["halves"]: lambda *case: _expand(*case, faults=("halves",)),
        FAULTS["axis"]: lambda *case: _expand(*case, faults=("axis",)),
        "uint8 has no negative numbers: 3 − 8 becomes 251. Turn the values into float before you take 8 "
        "off.": _unsigned,
        "The numbers are right. A weight is [rows, columns]: the groups of a row have to be joined.": (
            lambda *case: _expand(*case).unflatten(1, (case[1].shape[1], -1))
        ),
        "A byte does not hold neighbours: its two columns are half a group apart.": _neighbours,
        "The halves are those of a group, not of the whole row.": _whole_row,
        "8 stands for the middle and has to be taken off; that was right.": (
            lambda *case: _expand(*case, eight=0)
        ),
        "The low half and the scales are right. Shift the high four bits down: without it they count 16 "
        "times.": _unshifted,
    },
)
