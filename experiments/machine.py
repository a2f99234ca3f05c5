"""What a result says about the machine that it was measured on, read or measured in the same command."""

import os
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import torch
import transformers

from minillm import ceilings, hardware
from minillm.units import GIB

ROOT = Path(__file__).resolve().parent.parent


def describe() -> dict:
    """Date, GPU, driver, versions, commit, exact command; bandwidths of memory and link (GB/s)."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "driver": driver(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": sys.version.split()[0],
        "commit": commit(),
        "command": command(),
        "ceilings": ceilings.measure().as_dict(),
    }


def name() -> str:
    """Short name for file names: "h200" for an NVIDIA H200, "cpu2" for two cores and no GPU."""
    if not torch.cuda.is_available():
        return f"cpu{hardware.cores()}"
    words = re.sub(r"NVIDIA|GeForce|Laptop|GPU", " ", torch.cuda.get_device_name()).split()
    return re.sub(r"[^a-z0-9]", "", "".join(words).lower())


def driver() -> str | None:
    """Version of the NVIDIA driver, None without one."""
    return _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")


def commit() -> str | None:
    """Commit of the checkout, "+changes" where tracked files differ from it.

    A copy without `.git` takes the value of MINILLM_COMMIT, and is None without it.
    """
    head = _output("git", "-C", str(ROOT), "rev-parse", "HEAD")
    if head is None:
        return os.environ.get("MINILLM_COMMIT")
    return head + ("+changes" if _output("git", "-C", str(ROOT), "status", "--porcelain", "-uno") else "")


def command() -> str:
    """The command line as typed, without this machine's folders: relative to the checkout or to $OUT."""
    module = getattr(sys.modules["__main__"], "__spec__", None)
    start = ["python", "-m", module.name] if module else ["python", Path(sys.argv[0]).name]
    line = shlex.join(start + sys.argv[1:]).replace(f"{ROOT}/", "")
    return line.replace(os.environ["OUT"], "$OUT") if os.environ.get("OUT") else line


GROW_HELP = "touch so much main memory first: some virtual machines show theirs only once it is used"


def grow_host_memory(gib: float) -> None:
    """Use `gib` of main memory and let it go; a process that asks for more than there is gets killed."""
    torch.ones(int(gib * GIB), dtype=torch.uint8)


def _output(*words: str) -> str | None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
