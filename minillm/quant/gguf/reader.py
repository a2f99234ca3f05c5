"""The gguf library's reader with lists left packed: it makes two arrays an entry, 7 s for Qwen3's vocabulary.

Only how a list is read is replaced; the rest of the format stays the library's business.
"""

import struct
from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFValueType


class Reader(GGUFReader):
    """As `GGUFReader`; a field that is a list of numbers or texts has one packed part and no `data`."""

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> tuple[int, list, list[int], list]:
        kind, count, begin = None, 0, orig_offs + 12
        if raw_type == GGUFValueType.ARRAY:
            raw_kind, count = struct.unpack_from("<IQ", memoryview(self.data), orig_offs)
            kind = GGUFValueType(raw_kind)
        if kind == GGUFValueType.STRING:
            packed = self.data[begin : self._end_of_texts(begin, count)]
        elif kind in self.gguf_scalar_to_np:
            packed = self._get(begin, self.gguf_scalar_to_np[kind], count)
            if len(packed) < count:
                raise ValueError(f"a list of {count} entries is cut short")
        else:
            return super()._get_field_parts(orig_offs, raw_type)
        return begin + packed.nbytes - orig_offs, [packed], [], [GGUFValueType.ARRAY, kind]

    def _end_of_texts(self, begin: int, count: int) -> int:
        """Where `count` texts, each behind its length, end; struct.error beyond the end of the file."""
        view = memoryview(self.data)
        for _ in range(count):
            begin += 8 + struct.unpack_from("<Q", view, begin)[0]
        return begin


def contents(field: Any) -> Any:
    """The value of a field: a number, a truth value, a text or a list of those."""
    if field.data or field.types[0] != GGUFValueType.ARRAY:
        return field.contents()
    packed: np.ndarray = field.parts[-1]
    if field.types[-1] != GGUFValueType.STRING:
        return packed.tolist()
    view, texts, begin = packed.tobytes(), [], 0
    while begin < len(view):
        end = begin + 8 + struct.unpack_from("<Q", view, begin)[0]
        texts.append(str(view[begin + 8 : end], encoding="utf-8"))
        begin = end
    return texts
