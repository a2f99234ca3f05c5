"""What each step of the fast path gives: eager, small operations fused, one graph, row products fused.

    python -m experiments.fast_path      # data/results/fast_path__<machine>.json

Rows: one answer a model and step, resident; the first tokens of three prompts, eager and fast; the seconds
that compiling and capturing take, with an empty kernel cache and a full one; where a step's time goes, by
kernel. On a GPU only.

On an H200 1.7B takes 25 s and 8B 40 s: making each model twice, 4 × 128 tokens, prefills; the two starts in
processes of their own 20 s each.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise, product
from os import environ
from statistics import median

import torch

from experiments import offload_options
from experiments.machine import ROOT
from experiments.offload_checks import over, row_table
from experiments.results import Results, all_met, check, report, reported
from minillm import LLM, SamplingParams, fused
from minillm.errors import RunError
from minillm.kernels import gemv

MODELS = ("random:Qwen3-1.7B", "random:Qwen3-8B")
LENGTHS, REPEATS = (128, 1024, 4096), 5
COLD_GOAL_S, WARM_GOAL_S = 60, 15
DEFAULTS = {"cuda": {"models": list(MODELS), "new_tokens": 128}, "cpu": {}}
EAGER = "eager"
# The fused steps: whether products of a row are by our kernels, too, and whether a graph asks for them.
FUSED = {
    "small operations fused": (False, False),
    "one graph": (False, True),
    "row products fused": (True, True),
}
STEPS = (EAGER, *FUSED)
GEMVS = ((2048, 4096), (False, True), (False, True))  # inputs, norm, silu


def main(arguments: list[str] | None = None) -> int:
    """Measure; exit status 1 if a goal is missed."""
    options = read_options(arguments)
    if options.device != "cuda":
        raise RunError("the fast path is for CUDA: there is no device to measure it on")
    results = Results(
        "fast_path", options.machine, options.out, {"new_tokens": options.new_tokens}, options.resume
    )
    for model in options.models:
        measure_model(results, model, options.new_tokens)
    results.row("starts", lambda: starts(options.models[-1]))
    checks = judged(results)
    checks = checks if options.judged else reported(checks)
    print(row_table([row for row in results.rows() if "step" in row]))
    report(results.finish(checks), checks)
    return 0 if all_met(checks) else 1


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = offload_options.parser("fast_path", __doc__.split("\n")[0])
    parser.add_argument("--models", nargs="+", help=f"default: {' '.join(MODELS)}")
    parser.add_argument("--new-tokens", type=int, help="of an answer; default: 128")
    return offload_options.complete(parser.parse_args(arguments), DEFAULTS)


# ---- measuring ----


def measure_model(results: Results, model: str, tokens: int) -> None:
    """All steps of one model: it is made once eagerly and once for the others."""
    name = offload_options.short(model)
    kept = {"device": "cuda", "max_model_len": max(LENGTHS) + tokens}
    if not results.has(f"{name}/prefill/eager"):
        with LLM(model, enforce_eager=True, **kept) as llm:
            results.row(f"{name}/{EAGER}", lambda: step(llm, name, EAGER, tokens))
            results.row(f"{name}/prefill/eager", lambda: prefills(llm))
    if results.has(f"{name}/kernels"):
        return
    with LLM(model, **kept) as llm:
        if llm._engine.graphs is None:
            raise RunError(f"{name} does not take the fast path here: {llm.report().splitlines()[-1]}")
        for key, (rows, graph) in FUSED.items():
            with computing(llm, rows, graph):
                results.row(f"{name}/{key}", lambda key=key: step(llm, name, key, tokens))
        results.row(f"{name}/prefill/fast", lambda: prefills(llm))
        results.row(f"{name}/kernels", lambda: kernels(llm))


@contextmanager
def computing(llm: LLM, rows: bool, graph: bool) -> Iterator[None]:
    """Let a model on the fast path leave out some of it."""
    engine, is_row = llm._engine, fused.is_row
    graphs, engine.graphs = engine.graphs, engine.graphs if graph else None
    fused.is_row = is_row if rows else lambda hidden: False
    graphs.forget()  # a step that was captured computes as it did then
    try:
        yield
    finally:
        engine.graphs, fused.is_row = graphs, is_row
        graphs.forget()


def step(llm: LLM, name: str, key: str, tokens: int) -> dict:
    """One answer after one that is not counted."""
    prompt = offload_options.joined_prompt(llm.config, LENGTHS[0])
    for _ in range(2):
        replays = llm.graph_replays
        out = llm.generate(prompt, SamplingParams(max_tokens=tokens, ignore_eos=True))[0].metrics
    return {
        "model": name,
        "step": key,
        "prompt_tokens": len(prompt),
        "new_tokens": tokens,
        "ttft_s": out.ttft_s,
        "tokens_per_s": out.decode_tokens_per_s,
        "peak_bytes": out.peak_memory_bytes,
        "graph_replays": llm.graph_replays - replays,
    }


def prefills(llm: LLM) -> dict:
    """Median seconds to the first token by prompt length, and all of them."""
    found = {}
    for length in LENGTHS:
        prompt = offload_options.joined_prompt(llm.config, length)
        one = SamplingParams(max_tokens=1, ignore_eos=True)
        times = [llm.generate(prompt, one)[0].metrics.ttft_s for _ in range(REPEATS + 1)][1:]
        found[str(length)] = {"ttft_s": median(times), "ttfts_s": times}
    return {"prefill": found}


def kernels(llm: LLM, replays: int = 5) -> dict:
    """Microseconds of a replayed step by kernel, how often each runs in it, and the step's length."""
    llm.generate([0], SamplingParams(max_tokens=3, ignore_eos=True))
    graph = next(iter(llm._engine.graphs.steps.values())).graph
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(replays):
        graph()
    end.record()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(replays):
            graph()
        torch.cuda.synchronize()
    found = [each for each in profile.key_averages() if each.device_time_total]
    return {
        "step_s": begin.elapsed_time(end) / 1e3 / replays,
        "kernels": [
            {"name": each.key, "times": each.count / replays, "us": each.device_time_total / replays}
            for each in sorted(found, key=lambda each: -each.device_time_total)
        ],
        "gemv": {str(shape): gemv.tile(*shape)._asdict() for shape in product(*GEMVS)},
    }


def starts(model: str) -> dict:
    """Seconds of compiling and capturing in a new process, first without a kernel cache."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "experiments.fast_path", "--start", model]
        own = {**environ, "TRITON_CACHE_DIR": folder}
        runs = [subprocess.run(words, cwd=ROOT, env=own, capture_output=True, text=True) for _ in range(2)]
    for done in runs:
        if done.returncode:
            raise RuntimeError(f"a start failed: {done.stderr.strip()[-1000:]}")
    cold, warm = (json.loads(done.stdout.splitlines()[-1]) for done in runs)
    return {"model": offload_options.short(model), "cold_s": cold, "warm_s": warm}


def start(model: str) -> None:
    """Print the seconds that an LLM's warm-up took."""
    with LLM(model, device="cuda", max_model_len=1024) as llm:
        print(json.dumps(llm._engine.warm_up_s))


# ---- judging ----


def judged(results: Results) -> list[dict]:
    """Each step over the one before; bytes read a second; replays; seconds of starting."""
    checks = []
    for model in dict.fromkeys(row["model"] for row in results.rows() if "step" in row):
        rows = [row for row in results.rows(f"{model}/") if "step" in row]
        for before, row in pairwise(rows):
            ratio = over(row["tokens_per_s"], before["tokens_per_s"])
            checks.append(check(f"{model}: {row['step']}, tok/s over the step before", ratio))
        last = rows[-1]
        checks.append(check(f"{model}: fast over eager", over(last["tokens_per_s"], rows[0]["tokens_per_s"])))
        share = last["graph_replays"] / (last["new_tokens"] - 1)
        checks.append(check(f"{model}: graph replays over tokens − 1", share, 1))
    for row in results.rows("starts"):
        name = f"{row['model']}: compiling and capturing, s"
        checks.append(check(f"{name}, first time", row["cold_s"], COLD_GOAL_S, "lower"))
        checks.append(check(f"{name}, from the cache", row["warm_s"], WARM_GOAL_S, "lower"))
    return checks


if __name__ == "__main__":
    if sys.argv[1:2] == ["--start"]:
        sys.exit(start(sys.argv[2]))
    sys.exit(offload_options.run(main))
