"""CUDA libraries hold machine code for several generations of GPUs; this drops all but one's."""

import struct
import sys
from pathlib import Path

MAGIC = 0xBA55ED50
PTX, CODE = 1, 2  # kinds of an entry

Entry = tuple[int, int, bytes]  # kind, generation (90: sm_90), bytes


def shrink(path: Path, arch: int = 90) -> tuple[int, int]:
    """Drop the kernels of other generations from an ELF library, in place; bytes kept and dropped.

    Section .nv_fatbin is a row of containers. Each stays at its address, since the host code points to it:
    its kept entries move to the front and the rest becomes zeros, so that the file keeps its length and packs
    into far less.
    """
    data = bytearray(path.read_bytes())
    kept = dropped = 0
    for begin, end in sections(data, b".nv_fatbin"):
        at = begin
        while at < end - 16:
            magic, _, header, size = struct.unpack_from("<IHHQ", data, at)
            if magic != MAGIC:
                at += 8
                continue
            first, stop = at + header, at + header + size
            body = b"".join(entry[2] for entry in needed(entries(data, first, stop, path), arch))
            struct.pack_into("<Q", data, at + 8, len(body))
            data[first:stop] = body + bytes(size - len(body))
            kept, dropped, at = kept + len(body), dropped + size - len(body), stop
    if not kept:
        sys.exit(f"{path}: no code for GPUs found")
    path.write_bytes(data)
    return kept, dropped


def sections(data: bytearray, wanted: bytes) -> list[tuple[int, int]]:
    """Begin and end of the sections of this name in a 64-bit ELF file."""
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", data, 0x3A)
    found = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]
    names = found[names_index][4]

    def name(section: tuple) -> bytes:
        start = names + section[0]
        return bytes(data[start : data.index(b"\0", start)])

    return [(each[4], each[4] + each[5]) for each in found if name(each) == wanted]


def entries(data: bytearray, at: int, stop: int, path: Path) -> list[Entry]:
    """The entries of one container: header <kind u16, version u16, its size u32, payload size u64, …>."""
    found = []
    while at < stop:
        kind, _, head, payload = struct.unpack_from("<HHIQ", data, at)
        (arch,) = struct.unpack_from("<I", data, at + 28)
        found.append((kind, arch, bytes(data[at : at + head + payload])))
        at += head + payload
    if at != stop:
        sys.exit(f"{path}: a container of GPU code has another layout than is known here")
    return found


def needed(found: list[Entry], arch: int) -> list[Entry]:
    """Code for `arch`; else the newest PTX that it can run; else the smallest entry, to fill the place."""
    if code := [each for each in found if each[0] == CODE and each[1] == arch]:
        return code
    if ptx := [each for each in found if each[0] == PTX and each[1] <= arch]:
        newest = max(each[1] for each in ptx)
        return [each for each in ptx if each[1] == newest]
    return [min(found, key=lambda each: len(each[2]))]
