"""Copy-and-wait against copying ahead, and both against what `accelerate` does with the same resident layers.

    python -m experiments.offload_compare      # data/results/offload_compare__<machine>.json

Rows: the first prompts in each mode; the time to the first token of long prompts; `accelerate` in a process
of its own. A call can do one mode, and the next one continues its file: `--modes naive`, then `--modes
prefetch ttft accelerate --resume data/results`.

On an H200, Qwen3-8B with 13 of 36 layers, a token copies 24 × 0.39 GB: 0.17 s at 55 GB/s, naive 0.20 s. 10
prompts × 256 tokens: prefetch 435 s, naive 520 s, each with 15 s for loading; 12 prefills 10 s; `accelerate`
0.7 tokens a second: 10 tokens and 40 s of making its model, 60 s.
"""

import argparse
import json
import subprocess
import sys
from statistics import median

from experiments import offload_options, offload_ttft
from experiments.machine import ROOT
from experiments.offload_checks import locked_checks, over, pace, peak_checks, row_table, same_checks
from experiments.offload_options import progress
from experiments.offloaded import Offloaded
from experiments.prompt_files import read_lines
from experiments.results import Results, all_met, check, report, reported
from minillm import schedule

BUDGET = 13
DEFAULTS = {
    "cuda": {"prompts": 10, "new_tokens": 256, "lengths": [128, 1024, 4096]},
    "cpu": {"prompts": 3, "new_tokens": 12, "lengths": [128, 512]},
}
MODES = ("naive", "prefetch")
PARTS = (*MODES, "ttft", "accelerate")
PEER_TOKENS, PEER_GOAL = 8, 8.0
PEER_SECONDS = 300


def main(arguments: list[str] | None = None) -> int:
    """Measure the parts that were asked for; exit status 1 if a goal is missed."""
    options = read_options(arguments)
    settings = offload_options.settings(options, "budget", "new_tokens", "lengths")
    results = Results("offload_compare", options.machine, options.out, settings, options.resume)
    measure(results, options)
    rows = [row for mode in MODES for row in results.rows(f"{mode}/")]
    timed = timed_checks(results)
    checks = [*(timed if options.judged else reported(timed)), *same_checks(rows)]
    print(row_table([row for part in PARTS for row in results.rows(f"{part}/") if "ttft_s" in row]))
    report(results.finish(checks), checks)
    return 0 if all_met(checks) else 1


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = offload_options.parser("offload_compare", __doc__.split("\n")[0])
    parser.add_argument("--modes", nargs="+", choices=PARTS, default=PARTS, help="parts of it; default: all")
    parser.add_argument("--prompts", type=int, help="first prompts of data/prompts.jsonl; default: 10")
    parser.add_argument("--new-tokens", type=int, help="a prompt; default: 256, emulated 12")
    parser.add_argument("--budget", type=int, help="layers on the device; default: 13, or half of fewer")
    parser.add_argument("--lengths", type=int, nargs="+", help="tokens of the long prompts")
    options = offload_options.complete(parser.parse_args(arguments), DEFAULTS)
    layers = offload_options.config_of(options)[0].num_hidden_layers
    options.budget = options.budget or (BUDGET if layers > BUDGET else max(1, layers // 2))
    return options


# ---- measuring ----


def measure(results: Results, options: argparse.Namespace) -> None:
    """All parts in one order, whatever order they were asked in: what needs the cap comes first."""
    numbers = {mode: range(options.prompts) for mode in MODES} | {"ttft": options.lengths}
    wanted = {f"{part}/{n}" for part in numbers if part in options.modes for n in numbers[part]}
    if not wanted <= {row["key"] for row in results.rows()}:
        measure_offloaded(results, options)
    if "accelerate" in options.modes:
        row = results.row("accelerate/0", lambda: accelerate(options))
        progress(f"accelerate/0: {row.get('tokens_per_s') or row.get('skipped')}")


def measure_offloaded(results: Results, options: argparse.Namespace) -> None:
    """One model, loaded once, for all that minillm itself does."""
    link = offload_options.link_gb_s(results, offload_options.blocks(results, options))
    prompts = prompts_of(options)
    longest = max(len(ids) for _, ids in prompts) + options.new_tokens
    tokens = max(longest, *(length + 1 for length in options.lengths))
    offload_options.limit_memory(options.device, options.cap_gib)
    if "ttft" in options.modes:
        offload_ttft.choose_slots(results, options)
    with Offloaded(options, tokens, link, gpu_layer_budget=options.budget, slots=1) as offloaded:
        results.row("loaded", offloaded.loaded)
        for mode in MODES:
            if mode in options.modes:
                measure_mode(results, offloaded, mode, prompts)
        if "ttft" in options.modes:
            offload_ttft.measure(results, offloaded)


def prompts_of(options: argparse.Namespace) -> list[tuple[int, list[int]]]:
    """Number and token ids of the first shared prompts."""
    vocab = offload_options.config_of(options)[0].vocab_size
    lines = read_lines("prompts.jsonl")[: options.prompts]
    return [(line["question_id"], [each % vocab for each in line["token_ids"]]) for line in lines]


def measure_mode(results: Results, offloaded: Offloaded, mode: str, prompts: list) -> None:
    """A row a prompt, with one slot."""
    options = offloaded.options
    if len(results.rows(f"{mode}/")) >= len(prompts):
        return
    offloaded.place(mode, options.budget, slots=1 if mode == "prefetch" else None)
    offloaded.warm(prompts[0][1])
    for index, (question_id, ids) in enumerate(prompts):

        def row(question_id: int = question_id, ids: list[int] = ids) -> dict:
            made = offloaded.run(ids, options.new_tokens)
            made["pace"] = pace(made.pop("token_s"))
            about = {"question_id": question_id, **offloaded.placed(mode), "cap_gib": options.cap_gib}
            return about | made

        found = results.row(f"{mode}/{index}", row)
        progress(f"{mode}/{index}: {found['tokens_per_s']:.3f} tok/s")


# ---- the peer ----


def accelerate(options: argparse.Namespace, **more) -> dict:
    """`accelerate` on the first prompt in a process of its own, or why it was not run.

    `more`: what the process is told beside that.
    """
    if options.device != "cuda":
        return {"skipped": "accelerate has no emulated device"}
    config = offload_options.config_of(options)[0]
    placement = schedule.place(config.num_hidden_layers, options.budget, 1)
    question_id, ids = prompts_of(options)[0]
    asked = {"model": options.model, "prompt": ids, "new_tokens": PEER_TOKENS, "cap_gib": options.cap_gib}
    asked |= {"resident": placement.resident, "device": options.device, **more}
    return {"mode": "accelerate", "question_id": question_id, **run_peer(asked)}


def run_peer(asked: dict) -> dict:
    """What `tests/peers/accelerate_offload.py` measured; RuntimeError with its last words if it failed."""
    words = [sys.executable, "-m", "tests.peers.accelerate_offload", json.dumps(asked)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=PEER_SECONDS)
    if done.returncode:
        raise RuntimeError(f"accelerate failed: {done.stderr.strip()[-1000:]}")
    return json.loads(done.stdout.splitlines()[-1])


# ---- judging ----


def timed_checks(results: Results) -> list[dict]:
    """Speeds, ratios of the same prompt, first tokens, memory."""
    rows = {mode: results.rows(f"{mode}/") for mode in MODES}
    speed = {row["key"]: row.get("tokens_per_s") for row in results.rows() if "mode" in row}
    checks = [figure for mode in MODES if rows[mode] for figure in mode_checks(mode, rows[mode])]
    naive = [speed.get(row["key"].replace("prefetch", "naive")) for row in rows["prefetch"]]
    pairs = zip(rows["prefetch"], naive, strict=True)
    if ratios := [row["tokens_per_s"] / other for row, other in pairs if other]:
        checks.append(check("prefetch over naive, tok/s, median of prompts", median(ratios)))
    if results.rows("accelerate/") and rows["prefetch"]:
        ratio = over(speed.get("prefetch/0"), speed.get("accelerate/0"))
        name = "prefetch over accelerate, tok/s, same prompt and resident layers"
        checks.append(check(name, ratio, PEER_GOAL))
    return [*checks, *offload_ttft.checks(results), *locked_checks(results.rows("loaded"))]


def mode_checks(mode: str, rows: list[dict]) -> list[dict]:
    """Speed, speed over its limit, and memory of one mode's rows."""
    of_limit = [over(row["tokens_per_s"], row["limit_tokens_per_s"]) for row in rows]
    return [
        check(f"{mode}: tok/s, median of {len(rows)} prompts", median(row["tokens_per_s"] for row in rows)),
        check(f"{mode}: TTFT in s, median", median(row["ttft_s"] for row in rows), None, "lower"),
        check(f"{mode}: tok/s over the limit of the design, median", median(of_limit)),
        *peak_checks(mode, rows),
    ]


if __name__ == "__main__":
    sys.exit(offload_options.run(main))
