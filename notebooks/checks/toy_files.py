"""Small safetensors files, and readers of their headers: the right one and wrong ones."""

import json
from collections.abc import Callable


def file_of(header: dict) -> bytes:
    """A whole file; its numbers are zeros."""
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    end = max(facts["data_offsets"][1] for name, facts in header.items() if name != "__metadata__")
    return len(text).to_bytes(8, "little") + text + bytes(end)


# The first header is plain letters and shorter than 128 bytes: its file can be decoded as a whole.
FILES = (
    file_of(
        {
            "b": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
            "a": {"dtype": "BF16", "shape": [5], "data_offsets": [24, 34]},
        }
    ),
    file_of(
        {
            "__metadata__": {"format": "pt"},
            "权重": {"dtype": "F16", "shape": [3], "data_offsets": [0, 6]},
            "__c": {"dtype": "F32", "shape": [], "data_offsets": [6, 10]},
        }
    ),
)

TOO_MUCH = "what was read as JSON is more than the header"
TOO_LITTLE = "what was read as JSON is less than the header"


def try_places(answer: Callable, data: bytes) -> object:
    """What is no JSON says whether it is too long or too short, however it was decoded."""
    try:
        return answer(data)
    except UnicodeDecodeError:
        return TOO_MUCH
    except json.JSONDecodeError as error:
        return TOO_MUCH if error.msg == "Extra data" else TOO_LITTLE


def places(data: bytes, begin: int | None = None, metadata: bool = False) -> dict:
    """The right answer, or with `begin` as where the data starts, or with the metadata taken for a tensor."""
    length = length_of(data)
    return _from(json.loads(data[8 : 8 + length]), 8 + length if begin is None else begin, metadata)


def length_of(data: bytes) -> int:
    return int.from_bytes(data[:8], "little")


def from_the_end(data: bytes) -> dict:
    length = int.from_bytes(data[:8], "big")
    return _from(json.loads(data[8 : 8 + length]), 8 + length)


def cut_short(data: bytes) -> dict:
    length = length_of(data)
    return _from(json.loads(data[8:length]), 8 + length)


def in_characters(data: bytes) -> dict:
    length = length_of(data)
    return _from(json.loads(data[8:].decode()[:length]), 8 + length)


def in_latin_letters(data: bytes) -> dict:
    length = length_of(data)
    return _from(json.loads(data[8 : 8 + length].decode("latin-1")), 8 + length)


def without_underscores(data: bytes, begin: int | None = None) -> dict:
    return {name: place for name, place in places(data, begin).items() if not name.startswith("_")}


def _from(header: dict, begin: int, metadata: bool = False) -> dict:
    found = {}
    for name, facts in header.items():
        if metadata or name != "__metadata__":
            first, last = facts["data_offsets"]
            found[name] = (facts["dtype"], facts["shape"], begin + first, begin + last)
    return found
