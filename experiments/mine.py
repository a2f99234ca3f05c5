"""Measures the machine it runs on: ceilings, then a budget sweep and a comparison of naive and prefetch.

    python -m experiments.mine      # ceilings, budget_sweep, simulator, offload_compare in build/results

The model is the largest of Qwen3's sizes that fits free main memory; without a GPU `tiny` on the emulated
device, half a minute. Qwen3-8B over 25 GB/s of PCIe 4.0 takes 7 minutes: ceilings 1, the sweep's 27 tokens a
budget and mode 3, the comparison's 3 prompts and `accelerate` 3. Figures are reported, none is judged.
"""

import argparse
import sys
from collections.abc import Callable

import torch

from experiments import budget_sweep, ceilings, offload_compare
from experiments.machine import ROOT
from experiments.offload_options import progress
from minillm import memory
from minillm.errors import InputError, RunError
from minillm.units import GB, gib

# Main memory in 10⁹ bytes that a model in bfloat16 needs for its host copy, beside what a program takes.
NEEDED = {"random:Qwen3-8B": 18, "random:Qwen3-1.7B": 5, "random:Qwen3-0.6B": 3}
SHORTER = {
    "ceilings": [],
    "budget_sweep": ["--new-tokens", "24"],
    "offload_compare": ["--prompts", "3", "--new-tokens", "48", "--lengths", "128", "1024"],
}
COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "ceilings": ceilings.main,
    "budget_sweep": budget_sweep.main,
    "offload_compare": offload_compare.main,
}


def main(arguments: list[str] | None = None) -> int:
    """Run all three; exit status 1 if one could not be run here."""
    options = read_options(arguments)
    given = ["--device", options.device, "--out", str(options.out), "--no-goals"]
    given += ["--machine", options.machine] if options.machine else []
    status = 0
    for name, command in COMMANDS.items():
        model = ["--models" if name == "ceilings" else "--model", options.model]
        shorter = SHORTER[name] if options.device == "cuda" else []
        print(f"== {name}, {options.model}", flush=True)
        try:
            status = max(status, command([*given, *model, *shorter]))
        except (InputError, RunError) as error:
            progress(f"{name}: {error}")
            status = 1
    return status


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line, with a model for this machine."""
    parser = argparse.ArgumentParser(prog="python -m experiments.mine", description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: cuda if there is one")
    parser.add_argument("--model", help="default: the largest that fits main memory")
    parser.add_argument("--machine", help="name in the file names; default: the GPU's, or cpu and its cores")
    parser.add_argument("--out", default=ROOT / "build" / "results", help="default: build/results")
    options = parser.parse_args(arguments)
    options.device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    options.model = options.model or choose(options.device, memory.available_bytes())
    return options


def choose(device: str, free: int | None) -> str:
    """The largest model for `free` bytes of main memory (None: unknown)."""
    if device == "cpu":
        return "tiny"
    model = next((name for name, needed in NEEDED.items() if free is None or free >= needed * GB), "tiny")
    progress(f"{model} for {'unknown' if free is None else gib(free)} of free main memory")
    return model


if __name__ == "__main__":
    sys.exit(main())
