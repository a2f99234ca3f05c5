"""Notebook 04: from a file into modules."""

import json
from collections.abc import Callable
from math import prod

import torch

from checks.exercise import Exercise

HEAD = "lm_head.weight"


# ---- 1. the header ----


def _file(header: dict) -> bytes:
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    end = max(facts["data_offsets"][1] for name, facts in header.items() if name != "__metadata__")
    return len(text).to_bytes(8, "little") + text + bytes(end)


def _places(data: bytes, begin: int | None = None, metadata: bool = False) -> dict:
    """The right answer, or with `begin` as where the data starts, or with the metadata taken for a tensor."""
    length = int.from_bytes(data[:8], "little")
    return _from(json.loads(data[8 : 8 + length]), 8 + length if begin is None else begin, metadata)


def _from(header: dict, begin: int, metadata: bool = False) -> dict:
    found = {}
    for name, facts in header.items():
        if metadata or name != "__metadata__":
            first, last = facts["data_offsets"]
            found[name] = (facts["dtype"], facts["shape"], begin + first, begin + last)
    return found


def _try_places(answer: Callable, data: bytes) -> object:
    """An error in the JSON says where it is, which tells one mistake from another."""
    try:
        return answer(data)
    except ValueError as error:
        return "the JSON text cannot be read", str(error)


def _in_characters(data: bytes) -> dict:
    length = int.from_bytes(data[:8], "little")
    return _from(json.loads(data[8:].decode("utf-8", "replace")[:length]), 8 + length)


def _from_the_end(data: bytes) -> dict:
    length = int.from_bytes(data[:8], "big")
    return _from(json.loads(data[8 : 8 + length]), 8 + length)


FILES = (
    (
        _file(
            {
                "b": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
                "a": {"dtype": "BF16", "shape": [5], "data_offsets": [24, 34]},
            }
        ),
    ),
    (
        _file(
            {
                "__metadata__": {"format": "pt"},
                "权重": {"dtype": "F16", "shape": [3], "data_offsets": [0, 6]},
                "c": {"dtype": "F32", "shape": [], "data_offsets": [6, 10]},
            }
        ),
    ),
)

places = Exercise(
    "the header",
    _places,
    FILES,
    {
        "`data_offsets` count from where the data begins. Where is that in the file?": (
            lambda data: _places(data, begin=0)
        ),
        "Nearly: the 8 bytes of the length come before the header, and they count too.": (
            lambda data: _places(data, begin=int.from_bytes(data[:8], "little"))
        ),
        "That length is far too large: its first byte is the smallest one (little-endian).": _from_the_end,
        "The length counts bytes; a letter such as 权 takes three. Cut first, then decode.": _in_characters,
        "`__metadata__` is no tensor: it has no dtype.": lambda data: _places(data, metadata=True),
    },
    _try_places,
)


# ---- 2. bfloat16 ----


def _widen(raw: bytearray, shape: tuple[int, ...]) -> torch.Tensor:
    return (_ints(raw) << 16).view(torch.float32).view(shape)


def _ints(raw: bytearray) -> torch.Tensor:
    return torch.frombuffer(raw, dtype=torch.int16).to(torch.int32)


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
    },
)


# ---- 3. both directions ----

Shapes = dict[str, tuple[int, ...]]


def _compare(stored: Shapes, wanted: Shapes, tied: bool) -> tuple[list[str], list[str], list[str]]:
    missing = sorted(wanted.keys() - stored.keys())
    extra = sorted(stored.keys() - wanted.keys() - ({HEAD} if tied else set()))
    return missing, extra, sorted(n for n in stored.keys() & wanted.keys() if stored[n] != wanted[n])


def _sizes_only(stored: Shapes, wanted: Shapes, tied: bool) -> tuple:
    missing, extra, _ = _compare(stored, wanted, tied)
    both = stored.keys() & wanted.keys()
    return missing, extra, sorted(name for name in both if prod(stored[name]) != prod(wanted[name]))


def _missing_as_misshaped(stored: Shapes, wanted: Shapes, tied: bool) -> tuple:
    return *_compare(stored, wanted, tied)[:2], sorted(n for n in wanted if stored.get(n) != wanted[n])


def _but(place: int) -> object:
    """The right answer with nothing at `place`."""

    def answer(*case: object) -> tuple:
        return tuple([] if number == place else names for number, names in enumerate(_compare(*case)))

    return answer


_WANTED = {"embed": (7, 3), "norm": (3,), "q_proj": (4, 3), "up_proj": (5, 3)}
_STORED = {"embed": (7, 3), "q_proj": (3, 4), "up_proj": (5, 2), HEAD: (7, 3), "q_prj": (4, 3)}

compare = Exercise(
    "both directions",
    _compare,
    (
        (_STORED, _WANTED, True),
        (_STORED, _WANTED, False),
        (_WANTED, _WANTED | {HEAD: (7, 3)}, False),
        (_WANTED | {HEAD: (7, 2)}, _WANTED | {HEAD: (7, 3)}, False),
    ),
    {
        "One direction only: a tensor that is stored and not wanted goes unnoticed.": _but(1),
        "One direction only: a tensor that is wanted and not stored would stay random.": _but(0),
        "And the shapes?": _but(2),
        "The first list is right. What about the other direction, and the shapes?": (
            lambda *case: (_compare(*case)[0], [], [])
        ),
        "The names are compared in both directions. Two things are left: the shapes, and the tied head.": (
            lambda stored, wanted, tied: (*_compare(stored, wanted, False)[:2], [])
        ),
        "[3, 4] and [4, 3] have the same number of elements, and are not the same shape.": _sizes_only,
        "A missing tensor has no shape: it belongs in the first list only.": _missing_as_misshaped,
        "With a tied embedding a stored lm_head.weight is all right.": (
            lambda stored, wanted, tied: _compare(stored, wanted, False)
        ),
        "Without a tied embedding an lm_head.weight that nobody wants is left over like any other.": (
            lambda stored, wanted, tied: _compare(stored, wanted, True)
        ),
        "What the file holds too much is `left over`, what the model lacks is `missing`: exchanged.": (
            lambda stored, wanted, tied: tuple(_compare(stored, wanted, tied)[i] for i in (1, 0, 2))
        ),
    },
)


# ---- 4. shards ----


def _files(weight_map: dict[str, str], layer: int, behind: str = ".") -> list[str]:
    prefix = f"model.layers.{layer}{behind}"
    return sorted({file for name, file in weight_map.items() if name.startswith(prefix)})


def _each_time(weight_map: dict[str, str], layer: int) -> list[str]:
    return sorted(file for name, file in weight_map.items() if name.startswith(f"model.layers.{layer}."))


_MAP = {"model.embed_tokens.weight": "e"} | {
    f"model.layers.{layer}.{name}.weight": f"{(2 * layer + place) // 3:02}"
    for layer in range(12)
    for place, name in enumerate(("self_attn.q_proj", "mlp.up_proj"))
}

files_of = Exercise(
    "which files",
    _files,
    ((_MAP, 1), (_MAP, 3), (_MAP, 10), (_MAP, 4)),
    {
        "Layer 1 is not layer 10: look at what follows the number.": lambda m, layer: _files(m, layer, ""),
        "Each file once.": _each_time,
        "A layer can lie in more than one file.": lambda m, layer: _files(m, layer)[:1],
        "Those are all files; only some hold this layer.": lambda m, layer: sorted(set(m.values())),
    },
)


# ---- 5. find the bug ----

Tensors = dict[str, torch.Tensor]


def _load(stored: Tensors, shapes: Shapes, turn: object = None, check: bool = True) -> Tensors:
    loaded = {}
    for name, tensor in stored.items():
        if turn is not None:
            loaded[name] = turn(name, tensor, shapes[name])
        else:
            loaded[name] = tensor.T if name.endswith("_proj.weight") else tensor
        if check and tuple(loaded[name].shape) != shapes[name]:
            raise ValueError(name)
    return loaded


def _if_it_differs(name: str, tensor: torch.Tensor, shape: tuple) -> torch.Tensor:
    return tensor if tuple(tensor.shape) == shape else tensor.T


def _if_it_differs_or_is_square(name: str, tensor: torch.Tensor, shape: tuple) -> torch.Tensor:
    square = tensor.dim() == 2 and tensor.shape[0] == tensor.shape[1]
    return tensor.T if square else _if_it_differs(name, tensor, shape)


def _all_turned(name: str, tensor: torch.Tensor, shape: tuple) -> torch.Tensor:
    return tensor.T if tensor.dim() == 2 else tensor


_SHAPES = {
    "embed_tokens.weight": (7, 3),
    "q_proj.weight": (3, 3),
    "up_proj.weight": (5, 3),
    "norm.weight": (3,),
}
_OTHER = {
    "embed_tokens.weight": torch.arange(21.0).view(7, 3),
    "q_proj.weight": torch.arange(9.0).view(3, 3),
    "up_proj.weight": torch.arange(15.0).view(3, 5),
    "norm.weight": torch.ones(3),
}

repaired_load = Exercise(
    "find the bug",
    _load,
    (
        (_OTHER, _SHAPES),
        ({"q_proj.weight": torch.ones(3, 4)}, _SHAPES),
        ({"up_proj.weight": torch.ones(5, 3)}, _SHAPES),
        ({"embed_tokens.weight": torch.ones(3, 7)}, _SHAPES),
    ),
    {
        "A square matrix fits both ways round, so its shape cannot tell you whether to turn it.": (
            lambda stored, shapes: _load(stored, shapes, _if_it_differs, check=False)
        ),
        "The error is there now. But a square matrix fits both ways round: its shape tells you nothing.": (
            lambda stored, shapes: _load(stored, shapes, _if_it_differs)
        ),
        "Right for good files. A tensor of a wrong shape still passes: raise ValueError.": (
            lambda stored, shapes: _load(stored, shapes, check=False)
        ),
        "Do not guess from shapes. A projection that is [out, in] already breaks the promise: refuse it.": (
            lambda stored, shapes: _load(stored, shapes, _if_it_differs_or_is_square)
        ),
        "The embedding is stored as we need it: turn only the projections.": (
            lambda stored, shapes: _load(stored, shapes, _all_turned)
        ),
        "Every matrix is turned, the embedding too, and wrong shapes pass without an error.": (
            lambda stored, shapes: _load(stored, shapes, _all_turned, check=False)
        ),
        "`reshape` gives the shape and scrambles the numbers: rows must become columns.": (
            lambda stored, shapes: {name: tensor.reshape(shapes[name]) for name, tensor in stored.items()}
        ),
    },
)
