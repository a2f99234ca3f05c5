"""One offloaded load in a process of its own: `… DEVICE FOLDER` prints one JSON object.

All layers go to the locked arena of host memory. Its three steps are timed where they happen: `touch_s`, the
system finds the memory; `pin_s`, CUDA locks it; `fill_s`, weights come from the checkpoint's mapped files.
Beside them a memcpy of as many bytes by the same threads, between blocks of memory that were used before.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from experiments.load_probe import MemoryPeak
from minillm import LLM, loader
from minillm.arena import HostArena
from minillm.model import Qwen3  # noqa: F401 - so that importing is not part of loading
from minillm.tokenizer import Tokenizer  # noqa: F401
from minillm.units import GB, GIB

IO = Path("/proc/self/io")
BLOCK = 2 * GIB  # of the memcpy: far beyond any cache


def main(device: str, folder: str) -> dict:
    """Load, report in bytes and seconds, then copy."""
    torch.zeros(1, device=device)  # what a GPU's libraries take is no part of loading
    seconds: dict[str, float] = {}
    read = disk_bytes()
    with timed(seconds), MemoryPeak() as memory:
        began = time.perf_counter()
        llm = LLM(folder, device=device, offload="prefetch", gpu_layer_budget=1, slots=1, max_model_len=64)
        total = time.perf_counter() - began
    read = None if read is None else disk_bytes() - read
    arena = llm.residency.arena
    sizes = {"arena_bytes": arena.size, "locked_bytes": arena.pinned_bytes or None, "disk_bytes": read}
    llm.close()
    del llm, arena
    return {
        "peak_bytes": memory.held,
        "peak_mapped_bytes": memory.mapped,
        **sizes,
        **seconds,
        "seconds": total,
        "threads": torch.get_num_threads(),
        "memcpy_gb_s": memcpy_gb_s(sizes["arena_bytes"]),
    }


@contextmanager
def timed(seconds: dict[str, float]) -> Iterator[None]:
    """Note how long the arena's steps and the filling take while the context is open."""
    touch, pin, fill_from = HostArena.touch, HostArena.pin, loader.fill_from_checkpoint

    def watched(name: str, step: Callable) -> Callable:
        def run(*arguments: object) -> None:
            began = time.perf_counter()
            step(*arguments)
            seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - began

        return run

    seconds.update(touch_s=0.0, pin_s=0.0, fill_s=0.0)
    HostArena.touch, HostArena.pin = watched("touch_s", touch), watched("pin_s", pin)
    loader.fill_from_checkpoint = lambda *arguments: watched("fill_s", fill_from(*arguments))
    try:
        yield
    finally:
        HostArena.touch, HostArena.pin, loader.fill_from_checkpoint = touch, pin, fill_from


def memcpy_gb_s(num_bytes: int) -> float:
    """10⁹ bytes a second (each counted once) of copying `num_bytes`, one copy to warm up not counted."""
    source = torch.ones(min(num_bytes, BLOCK), dtype=torch.uint8)
    target = torch.ones_like(source)
    target.copy_(source)
    count = max(1, num_bytes // len(source))
    began = time.perf_counter()
    for _ in range(count):
        target.copy_(source)
    return count * len(source) / (time.perf_counter() - began) / GB


def disk_bytes() -> int | None:
    """What this process has made the system read from a disk: nothing while files are in the page cache."""
    if not IO.is_file():
        return None
    return next(int(line.split()[1]) for line in IO.read_text().splitlines() if line.startswith("read_bytes"))


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
