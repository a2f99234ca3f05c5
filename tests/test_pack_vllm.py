"""The packer: what it keeps of a GPU library, what it refuses, that the parts are the archive."""

import io
import struct
import tarfile
import zipfile

import pytest

from tests.peers import fatbin, pack_vllm
from tests.peers.fatbin import CODE, PTX

# ---- machine code of several generations ----


def entry(kind, arch, payload):
    """As the compiler writes it: a header of 64 bytes, the generation at byte 28."""
    head = bytearray(64)
    struct.pack_into("<HHIQ", head, 0, kind, 0x101, 64, len(payload))
    struct.pack_into("<I", head, 28, arch)
    return bytes(head) + payload


def container(*entries):
    body = b"".join(entries)
    return struct.pack("<IHHQ", fatbin.MAGIC, 1, 16, len(body)) + body


def library(*containers, section=b".nv_fatbin"):
    """A small ELF file: header, the section, names, the table of sections."""
    code, names = b"".join(containers), b"\0.names\0" + section + b"\0"
    begin, names_at = 64, 64 + len(code)
    table_at = names_at + len(names)
    header = bytearray(64)
    header[:4] = b"\x7fELF"
    struct.pack_into("<Q", header, 0x28, table_at)
    struct.pack_into("<HHH", header, 0x3A, 64, 2, 0)
    rows = [(1, names_at, len(names)), (8, begin, len(code))]
    table = b"".join(
        struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, at, size, 0, 0, 1, 0) for name, at, size in rows
    )
    return bytes(header) + code + names + table


def test_only_one_generation_stays_and_nothing_moves(tmp_path):
    old, new = entry(CODE, 80, b"\x08" * 400), entry(CODE, 90, b"\x09" * 200)
    second = container(entry(PTX, 75, b"a" * 80), entry(PTX, 80, b"b" * 80), entry(CODE, 100, b"c" * 8))
    path = tmp_path / "lib.so"
    path.write_bytes(library(container(old, new), second))
    before = path.read_bytes()
    kept, dropped = fatbin.shrink(path)
    after = path.read_bytes()
    assert len(after) == len(before)
    assert kept == len(new) + len(entry(PTX, 80, b"b" * 80))
    assert kept + dropped == sum(map(len, (old, new))) + len(second) - 16
    assert after[80 : 80 + len(new)] == new
    assert after[80 + len(new) : 80 + len(old) + len(new)] == bytes(len(old))
    assert struct.unpack_from("<Q", after, 64 + 8) == (len(new),)
    at = 64 + 16 + len(old) + len(new)
    assert struct.unpack_from("<I", after, at) == (fatbin.MAGIC,)  # the second one is where it was
    assert after[at + 16 :].startswith(entry(PTX, 80, b"b" * 80))


def test_a_library_without_gpu_code_is_refused(tmp_path):
    (tmp_path / "lib.so").write_bytes(library(container(entry(CODE, 90, b"x")), section=b".text"))
    with pytest.raises(SystemExit, match="no code for GPUs"):
        fatbin.shrink(tmp_path / "lib.so")


def test_code_that_this_gpu_cannot_run_only_fills_its_place():
    small, large = (CODE, 100, b"1"), (CODE, 100, b"12345")
    assert fatbin.needed([large, small, (PTX, 100, b"123")], 90) == [small]


# ---- files ----


def test_wheels_become_one_tree_without_scheme_folders(tmp_path):
    for name, files in {
        "a": {"a/__init__.py": "", "a-1.data/purelib/extra.py": "x", "a-1.data/scripts/run": "no"},
        "b": {"b.py": ""},
    }.items():
        with zipfile.ZipFile(tmp_path / f"{name}.whl", "w") as wheel:
            for path, text in files.items():
                wheel.writestr(path, text)
    tree = tmp_path / "tree"
    pack_vllm.unpack(sorted(tmp_path.glob("*.whl")), tree)
    found = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()}
    assert found == {"a/__init__.py", "extra.py", "b.py"}


def test_what_is_left_out_has_to_be_there(tmp_path):
    (tmp_path / "big").mkdir()
    (tmp_path / "big" / "x").write_text("x")
    (tmp_path / "y.a").write_text("y")
    (tmp_path / "kept").write_text("z")
    pack_vllm.remove(["big", "*.a"], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    with pytest.raises(SystemExit, match=r"nothing to leave out for \*\.a"):
        pack_vllm.remove(["*.a"], tmp_path)


def test_parts_in_order_are_the_archive_and_the_same_every_time(tmp_path):
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "x.py").write_text("import y\n" * 50)
    (tree / "a.py").write_bytes(bytes(range(256)))
    archive, out = tmp_path / "x.tar.xz", tmp_path / "out"
    out.mkdir()
    (out / "part-zz").write_text("of an older pack")
    pack_vllm.pack(tree, archive)
    parts = pack_vllm.split(archive, out, 100)
    assert parts == sorted(out.iterdir())
    assert all(part.stat().st_size <= 100 for part in parts)
    with tarfile.open(
        fileobj=io.BytesIO(b"".join(part.read_bytes() for part in parts)), mode="r:xz"
    ) as found:
        assert found.getnames() == ["a.py", "sub/x.py"]
        assert found.extractfile("a.py").read() == bytes(range(256))
    again = tmp_path / "again.tar.xz"
    (tree / "a.py").touch()
    pack_vllm.pack(tree, again)
    assert again.read_bytes() == archive.read_bytes()


def test_wheels_that_are_there_are_not_fetched(tmp_path, monkeypatch, capsys):
    (tmp_path / "pydantic_core-2.0-cp312-x.whl").write_text("")
    asked = []

    def fetched(words, **_):
        asked.append(words[-1])
        return type("Done", (), {"returncode": 1, "stderr": "ERROR: no such version"})

    monkeypatch.setattr(pack_vllm.subprocess, "run", fetched)
    with pytest.raises(SystemExit, match=r"no wheel for: lark==9\.9"):
        pack_vllm.download(["pydantic-core==2.0", "lark==9.9"], tmp_path)
    assert asked == ["lark==9.9"]
    assert "no such version" in capsys.readouterr().err


def test_every_package_is_pinned():
    assert "vllm==0.24.0" in pack_vllm.PACKAGES
    assert all(name.count("==") == 1 for name in pack_vllm.PACKAGES)
