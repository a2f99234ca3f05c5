"""Where a quantised model is written: what is there stays, a place that cannot be is told before the work."""

import shutil
import tempfile
from pathlib import Path

import pytest
import torch
from command_line import fails, succeeds
from saved_models import logits

from minillm.__main__ import main
from minillm.errors import InputError
from minillm.quant import saving

INT8 = ("--quantize", "int8")


@pytest.fixture
def other_disk(tmp_path):
    """A folder on another disk than `tmp_path`."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second disk here")
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.fixture
def during(monkeypatch):
    """`during(act)`: `act()` is called while a run quantises."""

    def patch(act) -> None:
        layer = saving._layer

        def acting(config, index, *rest):
            if index == 1:
                act()
            return layer(config, index, *rest)

        monkeypatch.setattr(saving, "_layer", acting)

    return patch


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_that_holds_something_is_left_alone(small_model, tmp_path, capsys):
    folder = small_model()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("full", "file"):
        line = fails(capsys, 2, "quantize", folder, tmp_path / name, *INT8)
        assert f"{name}' is there already: name a new or an empty folder" in line
    assert names(tmp_path / "full") == ["mine.txt"]


def test_an_empty_folder_stays_the_same_one(small_model, tmp_path, capsys, monkeypatch):
    folder, empty = small_model(), tmp_path / "empty"
    empty.mkdir()
    same = empty.stat().st_ino
    monkeypatch.chdir(empty)  # a shell may stand in it
    succeeds(capsys, "quantize", folder, ".", *INT8)
    assert empty.stat().st_ino == same
    assert names(tmp_path) == ["empty", "model"]
    assert torch.equal(logits(empty), logits(folder, quantize="int8"))
    assert [path for path in empty.iterdir() if not path.is_file()] == []


def test_a_new_folder_is_as_open_as_any(small_model, tmp_path, capsys):
    (tmp_path / "any").mkdir()
    succeeds(capsys, "quantize", small_model(), tmp_path / "more" / "out", *INT8)
    assert (tmp_path / "more" / "out").stat().st_mode == (tmp_path / "any").stat().st_mode
    assert names(tmp_path / "more") == ["out"]


@pytest.mark.parametrize("stop", [None, KeyboardInterrupt, OSError(28, "No space left on device")])
@pytest.mark.parametrize("exists", [False, True])
def test_what_a_run_did_not_make_stays(small_model, tmp_path, capsys, during, stop, exists):
    folder, out = small_model(), tmp_path / "out"
    mine = [tmp_path / "out.incomplete" / "notes.txt", tmp_path / "incomplete-1" / "notes.txt"]
    for path in mine:
        path.parent.mkdir()
        path.write_text("mine")
    if exists:
        out.mkdir()

    def act() -> None:
        if stop:
            raise stop

    during(act)
    assert (main(["quantize", str(folder), str(out), *INT8]) == 0) == (stop is None)
    assert [path.read_text() for path in mine] == ["mine", "mine"]
    assert len(names(tmp_path)) == 3 + (exists or stop is None)
    assert not exists or bool(names(out)) == (stop is None)


@pytest.mark.parametrize("exists", [False, True])
def test_two_runs_to_one_folder(small_model, tmp_path, capsys, during, exists):
    """The first whole model stays whole; the other run says what is wrong."""
    folder, out = small_model(), tmp_path / "out"
    if exists:
        out.mkdir()

    def another_run() -> None:
        out.mkdir(exist_ok=True)
        (out / "config.json").write_text("of the other run")

    during(another_run)
    fails(capsys, 1, "quantize", folder, out, *INT8, says=(f"'{out}'", ": "))
    assert (out / "config.json").read_text() == "of the other run"
    assert (names(out), names(tmp_path)) == (["config.json"], ["model", "out"])


@pytest.mark.parametrize("link", [False, True])
def test_an_empty_folder_on_another_disk(small_model, tmp_path, capsys, monkeypatch, other_disk, link):
    """As one that is a disk of its own: no file of it can be renamed into it."""
    folder, out, looked = small_model(), other_disk, []
    if link:
        out = tmp_path / "out"
        out.symlink_to(other_disk)
    usage = shutil.disk_usage
    monkeypatch.setattr(shutil, "disk_usage", lambda path: looked.append(path.stat().st_dev) or usage(path))
    succeeds(capsys, "quantize", folder, out, *INT8)
    assert looked == [other_disk.stat().st_dev]
    assert torch.equal(logits(out), logits(folder, quantize="int8"))
    assert names(tmp_path) == ["model", "out"][: 1 + link]


@pytest.mark.parametrize(
    ("out", "line"),
    [
        ("nowhere", "nowhere' is a link to nothing, choose another place"),
        ("loop", "loop' is a link to nothing"),
        ("nowhere/out", "nowhere' is a link to nothing"),
        ("loop/deep/out", "loop' is a link to nothing"),
        ("file/out", "file' is no folder"),
        ("linked/out", "linked' is no folder"),
    ],
)
def test_a_place_that_cannot_be_is_told_first(small_model, tmp_path, capsys, during, out, line):
    folder = small_model()
    (tmp_path / "nowhere").symlink_to(tmp_path / "absent")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "linked").symlink_to("file")
    before = names(tmp_path)
    during(lambda: pytest.fail("the work began"))
    with pytest.raises(InputError, match="cannot make"):
        saving.check_folder(tmp_path / out)
    text = fails(capsys, 2, "quantize", folder, tmp_path / out, *INT8)
    assert line in text
    assert names(tmp_path) == before
