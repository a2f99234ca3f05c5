"""run_all.sh as a new user meets it, up to the point where it would install."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = ("notebooks", "student", "lab", "test", "parity", "mine", "offload-naive", "offload-prefetch")
COMMANDS += ("offload-compare", "budget-sweep", "baseline", "vllm-compare", "report")

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


# ---- with an environment that only writes down what it is asked ----

FAKE_PYTHON = """#!/bin/sh
echo "$*" >>"$(dirname "$0")/asked"
for last; do made=build/notebooks/${last##*/}; done
case "$*" in
    *execute*broken*) exit 1 ;;
    *execute*) printf '"cell_type": "code"\\n"cell_type": "code"\\n"image/png": ""' >"$made" ;;
    *parity*) printf 'a yes\\nb yes\\n' ;;
    *student*) mkdir -p build/student ;;
esac
"""


@pytest.fixture
def installed_copy(fresh_copy):
    """A checkout whose set-up is done, with notebooks 00, 02 and 05."""
    root = fresh_copy.parent
    (root / ".venv" / "bin").mkdir(parents=True)
    python = root / ".venv" / "bin" / "python"
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)
    lists = (root / name for name in ("requirements.txt", "pyproject.toml"))
    (root / ".venv" / "installed-for").write_text(f"{root}\n" + "".join(path.read_text() for path in lists))
    (root / "notebooks").mkdir()
    for name in ("00_a", "02_b", "05_broken"):
        (root / "notebooks" / f"{name}.ipynb").write_text("{}")
    return fresh_copy


def asked(script: Path) -> list[str]:
    return (script.parent / ".venv" / "bin" / "asked").read_text().splitlines()


def summary(stdout: str) -> set[str]:
    """The lines of a run's output, without the seconds that a step took."""
    lines = (" ".join(line.split()) for line in stdout.splitlines())
    return {re.sub(r" (ok|FAILED) \d+", r" \1", line) for line in lines}


def test_chosen_notebooks_run_and_the_summary_says_what_is_in_them(installed_copy):
    done = run_all("notebooks", "02", script=installed_copy)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(asked(installed_copy)) == 2
    assert asked(installed_copy)[0].endswith("/02_b.ipynb")
    lines = summary(done.stdout)
    assert "notebook 02_b ok 2 code cells, 1 figures" in lines
    assert "parity with transformers, quick ok 2 of 2 checks met" in lines


def test_a_failed_notebook_fails_the_job_and_not_the_others(installed_copy):
    stale = installed_copy.parent / "build" / "notebooks" / "05_broken.ipynb"
    stale.parent.mkdir(parents=True)
    stale.write_text('"cell_type": "code"')
    done = run_all(script=installed_copy)
    assert done.returncode == 1
    lines = summary(done.stdout)
    assert {"notebook 05_broken FAILED", "notebook 02_b ok 2 code cells, 1 figures"} <= lines
    assert not stale.exists()


def test_no_such_notebook(installed_copy):
    done = run_all("notebooks", "07", script=installed_copy)
    assert (done.returncode, one_line(done)) == (2, "run_all.sh: no notebook starts with: 07\n")


def test_lab_opens_the_notebooks_or_the_student_edition(installed_copy):
    root = installed_copy.parent
    for arguments in (["lab", "--port=1"], ["lab", "student", "--port=1"], ["lab", "student"]):
        assert run_all(*arguments, script=installed_copy).returncode == 0
    plain, made, student, again = asked(installed_copy)
    assert f"--ServerApp.root_dir={root}/notebooks " in plain
    assert made == "-m experiments.student"
    assert f"--ServerApp.root_dir={root}/build/student " in student
    assert student.endswith("--port=1")
    assert "student" not in again.split()


def test_student_passes_its_options_on(installed_copy):
    run_all("student", "--force", "02", script=installed_copy)
    assert asked(installed_copy) == ["-m experiments.student --force 02"]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("mine", ["experiments.mine"]),
        ("budget-sweep", ["experiments.budget_sweep", "--out", "build/results"]),
        ("offload-compare", ["experiments.offload_compare", "--out", "build/results"]),
        ("baseline", ["experiments.baseline", "--out", "build/results"]),
        ("vllm-compare", ["experiments.vllm_compare", "--out", "build/results"]),
        ("offload-naive", ["experiments.offload_compare", "--out", "build/results", "--modes", "naive"]),
        (
            "offload-prefetch",
            ["experiments.offload_compare", "--out", "build/results", "--modes", "prefetch"],
        ),
    ],
)
def test_offloading_writes_to_build_unless_told_otherwise(installed_copy, command, words):
    assert run_all(command, "--out", "elsewhere", script=installed_copy).returncode == 0
    (line,) = asked(installed_copy)
    assert line.split()[: len(words) + 1] == ["-m", *words]
    assert line.endswith(" --out elsewhere")  # the last one counts


def test_report_passes_its_options_on(installed_copy):
    assert run_all("report", "--as-stored", script=installed_copy).returncode == 0
    assert asked(installed_copy) == ["-m experiments.report --as-stored"]


def test_ci_runs_the_tests():
    text = (ROOT / ".ci" / "run").read_text()
    assert "run_all.sh test" in text
