"""How much memory loading takes: peak of anonymous and shared memory over the bytes of the weights.

    python -m experiments.loading         # data/results/loading__<machine>.json

Each model is written as a sharded bf16 checkpoint into a temporary folder, then loaded in a fresh process
(`experiments.load_probe`) by `LLM` and, for comparison, by `transformers` and by reading all files first.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file

from experiments import random_reference
from experiments.machine import ROOT
from experiments.results import FOLDER, Results, check, report
from minillm import presets, units
from minillm.random_weights import fill_parameter

MODELS = ["Qwen3-0.6B", "Qwen3-1.7B"]
WAYS = {
    "minillm": "minillm",
    "transformers": "transformers, which leaves weights in mapped files",
    "naive": "a model made, all files read, then copied",
}
GOAL = 1.1
REPEATS = 3
SHARD_BYTES = 2**29


def main(arguments: list[str] | None = None) -> int:
    """Measure all models; exit status 1 if a peak misses its goal."""
    options = read_options(arguments)
    settings = {"models": options.models, "repeats": options.repeats}
    results = Results("loading", options.machine, options.out, settings, options.resume)
    for name in options.models:
        measure_model(results, name, options.repeats)
    checks = [figure for name in options.models for figure in model_checks(name, results.rows(f"{name}/"))]
    return report(results.finish(checks), checks)


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.loading")
    parser.add_argument("--models", nargs="+", default=MODELS, help="dense geometries, as Qwen3-0.6B")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="of ours; the others load once")
    parser.add_argument("--machine", help="name in the file name; default: cpu and its cores")
    parser.add_argument("--out", default=FOLDER, help="folder of the result; default: data/results")
    parser.add_argument("--resume", help="folder with the .partial.json of a run cut short; default: --out")
    return parser.parse_args(arguments)


def measure_model(results: Results, name: str, repeats: int) -> None:
    """Write the checkpoint once, load it with ours `repeats` times and once each other way, delete it."""
    keys = [(f"{name}/{way}/{n}", way) for way in WAYS for n in range(repeats if way == "minillm" else 1)]
    if len(results.rows(f"{name}/")) == len(keys):
        return
    folder = Path(tempfile.mkdtemp(prefix="minillm-loading-"))
    try:
        weight_bytes = write_checkpoint(name, folder)
        for key, way in keys:
            results.row(key, lambda way=way: {"way": way, "weight_bytes": weight_bytes, **probe(way, folder)})
    finally:
        shutil.rmtree(folder)


def write_checkpoint(
    name: str, folder: Path, shard_bytes: int = SHARD_BYTES, made_on: torch.device | None = None
) -> int:
    """A bf16 checkpoint with random weights, one shard in memory at a time; returns the weights' bytes.

    A GPU as `made_on` makes them sooner.
    """
    config = presets.load(name)
    random_reference.hf_config(config, dtype="bfloat16").save_pretrained(folder)
    weight_map, shard, total, number = {}, {}, 0, 0
    for key, shape in config.parameter_shapes().items():
        shard[key] = torch.empty(shape, dtype=torch.bfloat16)
        fill_parameter(key, shard[key], 0, made_on)
        if sum(t.nbytes for t in shard.values()) >= shard_bytes:
            total += _write_shard(folder, number, shard, weight_map)
            shard, number = {}, number + 1
    total += _write_shard(folder, number, shard, weight_map)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return total


def _write_shard(
    folder: Path, number: int, shard: dict[str, torch.Tensor], weight_map: dict[str, str]
) -> int:
    if not shard:
        return 0
    file = f"model-{number:05d}.safetensors"
    save_file(shard, folder / file, metadata={"format": "pt"})
    weight_map.update(dict.fromkeys(shard, file))
    return sum(t.nbytes for t in shard.values())


def probe(way: str, folder: Path) -> dict:
    """What a fresh process measured: bytes before, peak above them, seconds."""
    words = [sys.executable, "-m", "experiments.load_probe", way, str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"loading {folder} by {way} failed: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


def model_checks(name: str, rows: list[dict]) -> list[dict]:
    """Largest peak of any repetition over the weights, ours with its goal; and the fastest load."""
    checks = [check(f"{name}: weights, {units.gib(rows[0]['weight_bytes'])}", rows[0]["weight_bytes"])]
    for way, label in WAYS.items():
        mine = [r for r in rows if r["way"] == way]
        worst = max(r["peak_bytes"] / r["weight_bytes"] for r in mine)
        goal = GOAL if way == "minillm" else None
        checks.append(check(f"{name}: peak memory over weights, {label}", worst, goal, "lower"))
        checks.append(check(f"{name}: load seconds, {label}", min(r["seconds"] for r in mine), None, "lower"))
    return checks


if __name__ == "__main__":
    sys.exit(main())
