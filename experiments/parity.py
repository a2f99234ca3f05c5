"""Are our tokens Hugging Face's? Skills and float32 tokens of shipped models, a grid, bf16 on a GPU.

    python -m experiments.parity                    # data/results/parity__<machine>.json: all but bf16
    python -m experiments.parity --bf16             # the same file of a machine with a GPU: bf16
    python -m experiments.parity --quick            # a short version, into build/results/

Exit status 1 if a figure misses its goal. Cut short, the same command continues.
"""

import argparse
import sys
from collections.abc import Callable
from functools import cache, partial

import torch
from transformers.utils import logging

from experiments import bf16_margin, grid_parity, shipped_parity
from experiments.machine import ROOT
from experiments.prompt_files import read_lines
from experiments.results import FOLDER, Results, report
from minillm import memory
from minillm.units import gib
from tests import grid

FULL = {"skill_prompts": 300, "tiny_prompts": 20, "tiny_tokens": 256}
FULL |= {"moe_skill_prompts": 100, "moe_prompts": 20, "moe_tokens": 256, "configurations": grid.COUNT}
QUICK = {"skill_prompts": 25, "tiny_prompts": 5, "tiny_tokens": 64}
QUICK |= {"moe_skill_prompts": 4, "moe_prompts": 4, "moe_tokens": 32, "configurations": 8}
BF16 = {"models": ["random:Qwen3-1.7B", "random:Qwen3-8B"], "prompts": 20, "tokens": 64}
BF16_QUICK = {"models": ["random:Qwen3-0.6B"], "prompts": 3, "tokens": 8}
BF16_QUICK_BYTES = 8 << 30  # the model in bfloat16 twice and in float32, and room to work


def main(arguments: list[str] | None = None) -> int:
    """Run the parts that were asked for; returns the exit status."""
    options = read_options(arguments)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    counts = QUICK if options.quick else FULL
    if "bf16" in options.parts:
        given = {name: getattr(options, name) for name in BF16}
        counts |= {name: given[name] or (BF16_QUICK if options.quick else BF16)[name] for name in BF16}
    settings = {"parts": options.parts, "device": options.device, "threads": options.threads, **counts}
    results = Results("parity", options.machine, options.out, settings, options.resume)
    torch.set_num_threads(options.threads)
    checks = [figure for part in options.parts for figure in PARTS[part](results, settings)]
    return report(results.finish(checks), checks, short=options.quick)


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line, with defaults that depend on each other filled in."""
    parser = argparse.ArgumentParser(prog="python -m experiments.parity", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer prompts and models, into build/results")
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="default: all but bf16; with --quick all")
    parser.add_argument("--bf16", dest="parts", action="store_const", const=["bf16"], help="--parts bf16")
    parser.add_argument("--models", nargs="+", help="of bf16; default: " + " ".join(BF16["models"]))
    parser.add_argument("--prompts", type=int, help="of bf16; default: 20")
    parser.add_argument("--tokens", type=int, help="new tokens of each prompt of bf16; default: 64")
    # One, because the threads of small products wait for each other, on a busy machine for minutes.
    parser.add_argument("--threads", type=int, default=1, help="on the CPU; default: 1")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--machine", help="name in the file name; default: the GPU's, or cpu and its cores")
    parser.add_argument("--out", help="folder of the result; default: data/results")
    parser.add_argument("--resume", help="folder with the .partial.json of a run cut short; default: --out")
    options = parser.parse_args(arguments)
    options.parts = options.parts or _default_parts(options.quick)
    options.out = options.out or (ROOT / "build" / "results" if options.quick else FOLDER)
    return options


def _default_parts(quick: bool) -> list[str]:
    """The quick run shows every part, bf16 on a smaller model, where memory allows it."""
    parts = ["skills", "tiny", "tiny-moe", "grid"]
    available = memory.available_bytes()
    if not quick:
        return parts
    if available is None or available >= BF16_QUICK_BYTES:
        return [*parts, "bf16"]
    print(f"bf16 is left out: it needs {gib(BF16_QUICK_BYTES)} of memory, {gib(available)} are available")
    return parts


# ---- parts: each measures what is missing and returns its checks ----


def skills(results: Results, settings: dict) -> list[dict]:
    """Held-out prompts of each skill, whole answers right, through both programs."""
    row = partial(_row, results)
    return shipped_parity.skill_checks(row, "tiny", settings["device"], "skills", settings["skill_prompts"])


def tiny(results: Results, settings: dict) -> list[dict]:
    """Greedy float32 tokens of `tiny` on its own prompts, past end tokens."""
    counts = settings["tiny_prompts"], settings["tiny_tokens"]
    return shipped_parity.token_checks(partial(_row, results), "tiny", settings["device"], "tiny", *counts)


def tiny_moe(results: Results, settings: dict) -> list[dict]:
    """Both for `tiny-moe`."""
    model = partial(_row, results), "tiny-moe", settings["device"]
    counts = settings["moe_prompts"], settings["moe_tokens"]
    return [
        *shipped_parity.skill_checks(*model, "tiny-moe/skills", settings["moe_skill_prompts"]),
        *shipped_parity.token_checks(*model, "tiny-moe/tokens", *counts),
    ]


def grid_part(results: Results, settings: dict) -> list[dict]:
    """Every configuration of the grid in float32."""
    count = settings["configurations"]
    for case in grid.cases(count):
        _row(results, f"grid/{case.name}", lambda case=case: grid_parity.measure(case, settings["device"]))
    return grid_parity.checks(results.rows("grid/"), min(count, 40))


def bf16(results: Results, settings: dict) -> list[dict]:
    """bfloat16 against the reference in bfloat16 and float32, with published shapes and random weights."""
    checks = []
    for name in settings["models"]:
        # Made when a row is missing: a finished model costs a continued run nothing.
        trio = cache(lambda name=name: bf16_margin.Trio(name, settings["device"]))
        for index, prompt in enumerate(shared_prompts(settings["prompts"])):
            key = f"bf16/{name}/{index:02d}"
            _row(results, key, lambda p=prompt, trio=trio: trio().measure(p, settings["tokens"]))
        if trio.cache_info().currsize:
            trio().close()
        trio.cache_clear()
        checks += bf16_margin.checks(name, results.rows(f"bf16/{name}/"))
    return checks


PARTS: dict[str, Callable] = {
    "skills": skills,
    "tiny": tiny,
    "tiny-moe": tiny_moe,
    "grid": grid_part,
    "bf16": bf16,
}


# ---- helpers ----


def shared_prompts(count: int) -> list[list[int]]:
    """Token ids of the first prompts that every engine is given, by Qwen3's own tokenizer."""
    return [row["token_ids"] for row in read_lines("prompts.jsonl")[:count]]


def _row(results: Results, key: str, measure: Callable[[], dict]) -> dict:
    """Measure, or take from the run that was cut short; the line counts up on a terminal."""
    row = results.row(key, measure)
    if sys.stderr.isatty():
        print(f"\r\033[K{key}", end="", file=sys.stderr, flush=True)
    return row


if __name__ == "__main__":
    sys.exit(main())
