"""One load in a process of its own: `python -m experiments.load_probe WAY FOLDER` prints one JSON object.

Counted is memory that cannot be dropped: RssAnon (the heap) and RssShmem (shared and pinned memory). Pages of
mapped checkpoint files (RssFile) are reported beside it: the system takes them back when it needs them, and
reads them again. A program that computes with mapped weights, as `transformers` may, holds little else.
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import Qwen3ForCausalLM

from minillm import LLM
from minillm.model import Qwen3  # noqa: F401 - so that importing is not part of loading
from minillm.tokenizer import Tokenizer  # noqa: F401

STATUS = Path("/proc/self/status")
INTERVAL = 0.005  # seconds between samples


class MemoryPeak:
    """Samples this process's memory in a thread while the context is open.

    `held` and `mapped`: bytes at the peak above those before, of memory that is held and of mapped files.
    """

    def __enter__(self) -> "MemoryPeak":
        self.before = memory_bytes()
        self.held = self.mapped = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._done.set()
        self._thread.join()
        self._look()

    def _sample(self) -> None:
        while not self._done.wait(INTERVAL):
            self._look()

    def _look(self) -> None:
        held, mapped = memory_bytes()
        self.held = max(self.held, held - self.before[0])
        self.mapped = max(self.mapped, mapped - self.before[1])


def memory_bytes() -> tuple[int, int]:
    """(RssAnon + RssShmem, RssFile) of this process."""
    lines = STATUS.read_text().splitlines()
    kib = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith("Rss")}
    return 1024 * (kib["RssAnon"] + kib["RssShmem"]), 1024 * kib["RssFile"]


def load_ours(folder: str) -> object:
    """Through `LLM`."""
    return LLM(folder, device="cpu")


def load_reference(folder: str) -> object:
    """Through `from_pretrained`, in the stored dtype."""
    return Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)


def load_naive(folder: str) -> object:
    """As a first attempt does it: a model with initial weights, all files read, one copied to the other."""
    from transformers import AutoConfig

    model = Qwen3ForCausalLM._from_config(AutoConfig.from_pretrained(folder), dtype=torch.bfloat16)
    tensors = {
        k: v.clone()
        for path in sorted(Path(folder).glob("*.safetensors"))
        for k, v in load_file(path).items()
    }
    model.load_state_dict(tensors, strict=False)
    return model


WAYS: dict[str, Callable[[str], object]] = {
    "minillm": load_ours,
    "transformers": load_reference,
    "naive": load_naive,
}


def main(way: str, folder: str) -> dict:
    """Load and report in bytes and seconds; the model is kept until the last sample."""
    with MemoryPeak() as memory:
        began = time.perf_counter()
        model = WAYS[way](folder)
        seconds = time.perf_counter() - began
    after = memory_bytes()[0]
    del model
    return {
        "before_bytes": memory.before[0],
        "peak_bytes": memory.held,
        "peak_mapped_bytes": memory.mapped,
        "after_bytes": after - memory.before[0],
        "seconds": round(seconds, 3),
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
