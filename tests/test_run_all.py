"""run_all.sh as a new user meets it, up to the point where it would install."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = ("notebooks", "test", "parity", "lab")

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")


def run_all(*arguments: str, script: Path = ROOT / "run_all.sh", cwd: Path | None = None, **environment: str):
    return subprocess.run(
        ["bash", str(script), *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def one_line(done: subprocess.CompletedProcess) -> str:
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_names_every_command(option, tmp_path):
    done = run_all(option, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(f"\n  {name} " in done.stdout or f", {name} " in done.stdout for name in COMMANDS)


def test_unknown_command(tmp_path):
    done = run_all("benchmark", cwd=tmp_path)
    line = one_line(done)
    assert done.returncode == 2
    assert "'benchmark'" in line
    assert all(name in line for name in COMMANDS)


def test_unknown_argument():
    done = run_all("test", "quickly")
    assert done.returncode == 2
    assert "quickly" in one_line(done)


@pytest.fixture
def fresh_copy(tmp_path) -> Path:
    """A checkout without .venv, as far as set-up reads it."""
    for name in ("run_all.sh", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path / "run_all.sh"


def test_without_a_suitable_python(fresh_copy):
    done = run_all("test", script=fresh_copy, PYTHON="no-such-python")
    line = one_line(done)
    assert done.returncode == 1
    assert "3.11, 3.12 or 3.13" in line
    assert "no-such-python" in line
    assert not (fresh_copy.parent / ".venv").exists()


def test_python_of_another_version_is_refused(fresh_copy):
    old = fresh_copy.parent / "old-python"
    old.write_text("#!/bin/sh\nexit 1\n")  # how a Python of another version answers the question
    old.chmod(0o755)
    done = run_all("test", script=fresh_copy, PYTHON=str(old))
    assert done.returncode == 1
    assert "old-python" in one_line(done)


def test_ci_runs_the_tests():
    text = (ROOT / ".ci" / "run").read_text()
    assert "run_all.sh test" in text
