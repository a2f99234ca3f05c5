"""How fast and in how much memory does a checkpoint reach locked host memory?

    python -m experiments.loading_speed      # loading__<machine>.json, in data/results on a GPU machine

A sharded bf16 checkpoint with random weights is written into a temporary folder, so it is in the page cache.
A fresh process (`experiments.offload_load_probe`) loads it with all layers in the arena, once a repetition.

On an H200 about 80 s for the 16.4 GB of Qwen3-8B: made on the GPU and written at 2.5 GB/s 10 s, brought to
disk 7 s; each of 3 loads 10 s of starting, 2 to 5 s of touching and locking, 1 s of filling, 2 s of memcpy.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import torch

from experiments import machine
from experiments.loading import write_checkpoint
from experiments.machine import ROOT
from experiments.offload_options import progress
from experiments.results import FOLDER, Results, all_met, check, report, reported
from minillm.units import GB, GIB

MODELS = {"cuda": "Qwen3-8B", "cpu": "Qwen3-0.6B"}
# Without a GPU not to data/results: loading__….json there is what experiments.loading says.
FOLDERS = {"cuda": FOLDER, "cpu": ROOT / "build" / "results"}
REPEATS = 3
SHARD_BYTES = 2 * GIB
STEPS = {"touch_s": "touching", "pin_s": "locking", "fill_s": "filling", "seconds": "all of loading"}
PEAK_GOAL, SPEED_GOAL = 1.05, 0.7


def main(arguments: list[str] | None = None) -> int:
    """Write, load, delete; exit status 1 if a goal is missed."""
    options = read_options(arguments)
    machine.grow_host_memory(options.grow_host_gib)
    settings = {"model": options.model, "device": options.device}
    results = Results("loading", options.machine, options.out, settings, options.resume)
    measure(results, options)
    checks = model_checks(options.model, results.rows(f"{options.model}/"))
    checks = checks if options.judged else reported(checks)
    report(results.finish(checks), checks)
    return 0 if all_met(checks) else 1


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.loading_speed", description=__doc__)
    parser.add_argument("--device", choices=MODELS, help="cpu: emulated; default: cuda if there is one")
    parser.add_argument("--model", help="dense geometry; default: Qwen3-8B, without a GPU Qwen3-0.6B")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument(
        "--folder", help="where the checkpoint is written; default: the system's temporary one"
    )
    parser.add_argument("--grow-host-gib", type=float, default=0, help=machine.GROW_HELP)
    parser.add_argument("--no-goals", action="store_true", help="report figures, judge none")
    parser.add_argument("--machine", help="name in the file name; default: the GPU's, or cpu and its cores")
    parser.add_argument(
        "--out", help="folder of the result; default: data/results, without a GPU build/results"
    )
    parser.add_argument("--resume", help="folder with the .partial.json of a run cut short; default: --out")
    options = parser.parse_args(arguments)
    options.device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    options.model = options.model or MODELS[options.device]
    options.out = options.out or FOLDERS[options.device]
    options.judged = options.device == "cuda" and not options.no_goals
    return options


def measure(results: Results, options: argparse.Namespace) -> None:
    """A row a repetition."""
    keys = [f"{options.model}/offloaded/{number}" for number in range(options.repeats)]
    if {row["key"] for row in results.rows()} >= set(keys):
        return
    folder = Path(tempfile.mkdtemp(prefix="minillm-loading-", dir=options.folder))
    try:
        weight_bytes = write_checkpoint(options.model, folder, SHARD_BYTES, torch.device(options.device))
        os.sync()  # else writing goes on while loading is timed
        progress(f"{options.model}: {weight_bytes / GB:.1f} GB written")
        for key in keys:
            row = results.row(key, lambda: {"weight_bytes": weight_bytes, **probe(options.device, folder)})
            progress(f"{key}: filled in {row['fill_s']:.2f} s, loaded in {row['seconds']:.2f} s")
    finally:
        shutil.rmtree(folder)


def probe(device: str, folder: Path) -> dict:
    """What a fresh process measured; RuntimeError with its last words if it failed."""
    words = [sys.executable, "-m", "experiments.offload_load_probe", device, str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"loading {folder} failed: {done.stderr.strip()[-1000:]}")
    return {"way": "minillm, offloaded", **json.loads(done.stdout.splitlines()[-1])}


def model_checks(name: str, rows: list[dict]) -> list[dict]:
    """The largest peak; filling over a memcpy, and beside it all of the arena's steps, medians."""
    size = rows[0]["weight_bytes"]
    peak = max(row["peak_bytes"] for row in rows)
    whole_s = [row["touch_s"] + row["pin_s"] + row["fill_s"] for row in rows]
    filling = [size / row["fill_s"] / GB for row in rows]
    whole = [size / seconds / GB for seconds in whole_s]
    memcpy = [row["memcpy_gb_s"] for row in rows]
    checks = [
        check(f"{name}: peak memory over weights", peak / size, PEAK_GOAL, "lower"),
        check(f"{name}: filling locked memory over a memcpy", middle_ratio(filling, memcpy), SPEED_GOAL),
        check(f"{name}: touching, locking and filling over a memcpy", middle_ratio(whole, memcpy)),
        check(f"{name}: memcpy GB/s", median(memcpy)),
    ]
    for step in ("touch_s", "pin_s", "fill_s", "seconds"):
        middle = median(row[step] for row in rows)
        checks.append(check(f"{name}: seconds, {STEPS[step]}", middle, None, "lower"))
    return checks


def middle_ratio(values: list[float], others: list[float]) -> float:
    """Median of the ratios of each repetition."""
    return median(value / other for value, other in zip(values, others, strict=True))


if __name__ == "__main__":
    sys.exit(main())
