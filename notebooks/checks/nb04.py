"""Notebook 04: from a file into modules."""

from collections.abc import Callable

import torch

from checks import toy_files, toy_loads, toy_names
from checks.exercise import Exercise

# ---- 1. the header ----

places = Exercise(
    "the header",
    toy_files.places,
    tuple((data,) for data in toy_files.FILES),
    {
        "`data_offsets` count from where the data begins. Where is that in the file?": (
            lambda data: toy_files.places(data, begin=0)
        ),
        "Nearly: the 8 bytes of the length come before the header, and they count too.": (
            lambda data: toy_files.places(data, begin=toy_files.length_of(data))
        ),
        "More than the header was read as JSON. Was its length read with the smallest byte first "
        "(little-endian), and does the cut end where the header ends?": toy_files.from_the_end,
        "The JSON text was cut too early. It begins at byte 8. Where does it end?": toy_files.cut_short,
        "The length counts bytes; a letter such as 权 takes three. First cut the bytes, then decode UTF-8.": (
            toy_files.in_characters
        ),
        "The places are right, the names are not: the text is UTF-8, where a letter such as 权 takes three "
        "bytes.": toy_files.in_latin_letters,
        "`__metadata__` is no tensor: it has no dtype.": lambda data: toy_files.places(data, metadata=True),
        "Two things: `__metadata__` is no tensor, and offsets do not count from the start of the file.": (
            lambda data: toy_files.places(data, begin=0, metadata=True)
        ),
        "Two things: `__metadata__` is no tensor, and the 8 bytes of the length count too.": (
            lambda data: toy_files.places(data, begin=toy_files.length_of(data), metadata=True)
        ),
        "Only the name `__metadata__` is special. A tensor may have any other, also one with `_` in front.": (
            toy_files.without_underscores
        ),
        "Two things: a tensor's name may begin with `_`, and offsets do not count from the file's start.": (
            lambda data: toy_files.without_underscores(data, begin=0)
        ),
    },
    toy_files.try_places,
)


# ---- 2. bfloat16 ----


def _widen(raw: bytearray, shape: tuple[int, ...]) -> torch.Tensor:
    return (_ints(raw) << 16).view(torch.float32).view(shape)


def _ints(raw: bytearray) -> torch.Tensor:
    return torch.frombuffer(raw, dtype=torch.int16).to(torch.int32)


def _try_by_hand(answer: Callable, raw: bytearray, shape: tuple[int, ...]) -> object:
    """What `answer` gives, unless torch widens the numbers for it."""
    code = getattr(answer, "__code__", None)
    if code is not None and "bfloat16" in code.co_names:
        return "torch.bfloat16 was used"
    return answer(raw, shape)


def _swapped(raw: bytearray) -> bytearray:
    return bytearray(b"".join(bytes(raw[i : i + 2][::-1]) for i in range(0, len(raw), 2)))


def _numbers(*values: float) -> bytearray:
    return bytearray(torch.tensor(values, dtype=torch.bfloat16).view(torch.uint8).numpy().tobytes())


widen = Exercise(
    "bfloat16 by hand",
    _widen,
    (
        (_numbers(1.0, -2.5, 3.140625, 0.0, -0.0078125, 96.0), (2, 3)),
        (_numbers(-7.5, 0.15625, 1e20, 42.0), (4, 1)),
    ),
    {
        "Those are the same bits read as float16, which has 5 bits of exponent; bfloat16 has 8.": (
            lambda raw, shape: torch.frombuffer(raw, dtype=torch.float16).float().view(shape)
        ),
        "The bits are in the lower half now. bfloat16 is the upper half of a float32.": (
            lambda raw, shape: _ints(raw).view(torch.float32).view(shape)
        ),
        "By how many bits? The lower half of a float32 has 16.": (
            lambda raw, shape: (_ints(raw) << 8).view(torch.float32).view(shape)
        ),
        "You converted the value of the integer. Keep the bits and change what they mean: `.view`.": (
            lambda raw, shape: (_ints(raw) << 16).to(torch.float32).view(shape)
        ),
        "You converted the value of the 16-bit integer; it is a bit pattern, not a count.": (
            lambda raw, shape: _ints(raw).to(torch.float32).view(shape)
        ),
        "The two bytes of each number are the wrong way round: the file is little-endian.": (
            lambda raw, shape: _widen(_swapped(raw), shape)
        ),
        "The numbers are right; give them the shape.": lambda raw, shape: _widen(raw, (-1,)),
        "An int16 has 16 bits, so all of them are shifted out. Make room first: int32.": (
            lambda raw, shape: (
                (torch.frombuffer(raw, dtype=torch.int16) << 16)
                .to(torch.int32)
                .view(torch.float32)
                .view(shape)
            )
        ),
        "`.view` keeps the bytes: two int16 make one float32, and an int64 makes two. Give each number "
        "the 32 bits of an int32, and do it before the shift: an int16 has no room for 16 bits more.": (
            lambda raw, shape: (
                (torch.frombuffer(raw, dtype=torch.int16) << 16).view(torch.float32).view(shape)
            )
        ),
        "`.view` keeps the bytes: each int64 has become two float32. Use int32.": (
            lambda raw, shape: (_ints(raw).long() << 16).view(shape).view(torch.float32)
        ),
        "Here torch.bfloat16 does the work. Do it with the bits: where do the 16 bits of a number go?": (
            lambda raw, shape: torch.frombuffer(raw, dtype=torch.bfloat16).float().view(shape)
        ),
    },
    _try_by_hand,
)


# ---- 3. both directions ----

compare = Exercise(
    "both directions",
    toy_names.compare,
    (
        (toy_names.STORED, toy_names.WANTED, True),
        (toy_names.STORED, toy_names.WANTED, False),
        (toy_names.WANTED, toy_names.WANTED | {toy_names.HEAD: (7, 3)}, False),
        (toy_names.WANTED | {toy_names.HEAD: (7, 2)}, toy_names.WANTED | {toy_names.HEAD: (7, 3)}, False),
        (dict.fromkeys(toy_names.MANY, (3,)), toy_names.WANTED, True),
        (toy_names.WANTED, toy_names.WANTED | dict.fromkeys(toy_names.MANY, (3,)), True),
        (dict.fromkeys(toy_names.MANY, (3,)), dict.fromkeys(toy_names.MANY, (4,)), True),
    ),
    {
        "One direction only: a tensor that is stored and not wanted goes unnoticed.": toy_names.but(1),
        "One direction only: a tensor that is wanted and not stored would stay random.": toy_names.but(0),
        "And the shapes?": toy_names.but(2),
        "The first list is right. What about the other direction, and the shapes?": (
            lambda *case: (toy_names.compare(*case)[0], [], [])
        ),
        "The names are compared in both directions. Two things are left: the shapes, and the tied head.": (
            lambda stored, wanted, tied: (*toy_names.compare(stored, wanted, False)[:2], [])
        ),
        "[3, 4] and [4, 3] have the same number of elements, and are not the same shape.": (
            toy_names.sizes_only
        ),
        "A missing tensor has no shape: it belongs in the first list only.": toy_names.missing_as_misshaped,
        "With a tied embedding a stored lm_head.weight is all right.": (
            lambda stored, wanted, tied: toy_names.compare(stored, wanted, False)
        ),
        "Without a tied embedding an lm_head.weight that nobody wants is left over like any other.": (
            lambda stored, wanted, tied: toy_names.compare(stored, wanted, True)
        ),
        "What the file holds too much is `left over`, what the model lacks is `missing`: exchanged.": (
            lambda stored, wanted, tied: tuple(toy_names.compare(stored, wanted, tied)[i] for i in (1, 0, 2))
        ),
        "`missing` and `left over` are exchanged. Then there is the tied head, which may be left over.": (
            lambda stored, wanted, tied: tuple(toy_names.compare(stored, wanted, False)[i] for i in (1, 0, 2))
        ),
        "The names are right. Sort the lists: people will read them.": toy_names.unsorted,
        "Nearly: the lists are not sorted, and with a tied embedding a stored lm_head.weight is all right.": (
            lambda stored, wanted, tied: toy_names.unsorted(stored, wanted, False)
        ),
        "The names are right, but in sets, which have no order. Return lists, sorted.": (
            lambda *case: tuple(map(set, toy_names.compare(*case)))
        ),
    },
    toy_names.try_compare,
)


# ---- 4. shards ----

files_of = Exercise(
    "which files",
    toy_names.files,
    ((toy_names.MAP, 1), (toy_names.MAP, 3), (toy_names.MAP, 10), (toy_names.MAP, 4), (toy_names.SPREAD, 0)),
    {
        "Layer 1 is not layer 10: look at what follows the number.": (
            lambda m, layer: toy_names.files(m, layer, "")
        ),
        "Each file once.": toy_names.each_time,
        "A layer can lie in more than one file.": lambda m, layer: toy_names.files(m, layer)[:1],
        "Those are all files; only some hold this layer.": lambda m, layer: sorted(set(m.values())),
        "Those are the tensors of the layer. In which files are they?": toy_names.tensors,
        "A number in a name may also be that of an expert: look at what stands before it.": (
            lambda m, layer: sorted({file for name, file in m.items() if f".{layer}." in name})
        ),
        "The files are right. Sort them.": (
            lambda m, layer: list(dict.fromkeys(m[name] for name in m if name in toy_names.tensors(m, layer)))
        ),
        "The files are right, but in a set, which has no order. Return a list, sorted.": (
            lambda m, layer: set(toy_names.files(m, layer))
        ),
    },
    toy_names.try_files,
)


# ---- 5. find the bug ----

repaired_load = Exercise(
    "find the bug",
    toy_loads.load,
    (
        (toy_loads.OTHER, toy_loads.SHAPES),
        ({"q_proj.weight": torch.ones(3, 4)}, toy_loads.SHAPES),
        ({"up_proj.weight": torch.ones(5, 3)}, toy_loads.SHAPES),
        ({"embed_tokens.weight": torch.ones(3, 7)}, toy_loads.SHAPES),
    ),
    {
        "A square matrix fits both ways round, so its shape cannot tell you whether to turn it.": (
            lambda stored, shapes: toy_loads.load(stored, shapes, toy_loads.if_it_differs, check=False)
        ),
        "The error is there now. But a square matrix fits both ways round: its shape tells you nothing.": (
            lambda stored, shapes: toy_loads.load(stored, shapes, toy_loads.if_it_differs)
        ),
        "Right for good files. A tensor of a wrong shape still passes: raise ValueError.": (
            lambda stored, shapes: toy_loads.load(stored, shapes, check=False)
        ),
        "Do not guess from shapes. A projection that is [out, in] already breaks the promise: refuse it.": (
            lambda stored, shapes: toy_loads.load(stored, shapes, toy_loads.if_it_differs_or_is_square)
        ),
        "The embedding is stored as we need it: turn only the projections.": (
            lambda stored, shapes: toy_loads.load(stored, shapes, toy_loads.all_turned)
        ),
        "Every matrix is turned, the embedding too, and wrong shapes pass without an error.": (
            lambda stored, shapes: toy_loads.load(stored, shapes, toy_loads.all_turned, check=False)
        ),
        "`reshape` gives the shape and scrambles the numbers: rows must become columns.": (
            lambda stored, shapes: {name: tensor.reshape(shapes[name]) for name, tensor in stored.items()}
        ),
        "`reshape` makes any shape and scrambles the numbers; the check behind it can find nothing then.": (
            lambda stored, shapes: toy_loads.load(stored, shapes, toy_loads.reshaped_to_fit)
        ),
        "`reshape` makes any shape and scrambles the numbers, and where it cannot it raises another error.": (
            lambda stored, shapes: toy_loads.load(stored, shapes, toy_loads.reshaped_projection)
        ),
        "`reshape` makes any shape and scrambles the numbers. And turn only what the name says.": (
            lambda stored, shapes: toy_loads.load(stored, shapes, toy_loads.reshaped_or_refused)
        ),
        "The errors are right. But `reshape` scrambles the numbers: rows must become columns.": (
            lambda stored, shapes: toy_loads.load(stored, shapes, toy_loads.reshaped_backwards)
        ),
        "Do not guess from shapes: the name says what to turn. And wrong shapes pass without an error.": (
            lambda stored, shapes: toy_loads.load(
                stored, shapes, toy_loads.if_it_differs_or_is_square, check=False
            )
        ),
        "Nearly. A projection that is [out, in] already breaks the promise: refuse it, do not leave it.": (
            lambda stored, shapes: toy_loads.load(
                stored, shapes, toy_loads.if_a_projection_differs_or_is_square
            )
        ),
        "The name is not enough if the shape decides too: a square projection fits both ways round.": (
            lambda stored, shapes: toy_loads.load(stored, shapes, toy_loads.if_a_projection_differs)
        ),
        "A square projection is not turned, and wrong shapes pass without an error.": (
            lambda stored, shapes: toy_loads.load(
                stored, shapes, toy_loads.if_a_projection_differs, check=False
            )
        ),
        "A good file is refused, too: compare the shape after the turn, not before.": (
            toy_loads.check_before_turn
        ),
    },
)
