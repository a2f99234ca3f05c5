"""Models of twice and four times the memory: as many layers as fit the same cap, the rest streams.

    python -m experiments.bigger_models      # data/results/bigger_models__<machine>.json

On an H200 about 3 minutes, most of it making weights: 8B, 14B and 32B are 16, 30 and 66 GB, made at about 2
GB/s and locked; a token then copies 8, 21 and 58 GB at 55 GB/s, so 27 tokens of 8B take 4 s and of 14B 10 s,
and 11 of 32B 12 s. The 32B model needs 70 GB of free main memory: a machine that shows less before it is used
is made to show it by `--grow-host-gib 72`, in half a minute.
"""

import argparse
import sys

from experiments import machine, offload_options
from experiments.offload_checks import copied_checks, locked_checks, over, peak_checks, row_table
from experiments.offload_options import progress
from experiments.offloaded import Offloaded
from experiments.results import Results, all_met, check, report, reported

PROMPT_TOKENS = 128
FEW, FEWER = 24, 8  # new tokens; fewer where a token takes a second
LAYERS = 48  # from here on fewer
DEFAULTS = {
    "cuda": {"models": ["random:Qwen3-8B", "random:Qwen3-14B", "random:Qwen3-32B"]},
    "cpu": {"models": ["tiny", "tiny-moe"], "cap_gib": 0.016},
}
GOALS = {"Qwen3-14B": 0.98}


def main(arguments: list[str] | None = None) -> int:
    """Measure every model; exit status 1 if a goal is missed."""
    options = read_options(arguments)
    machine.grow_host_memory(options.grow_host_gib)
    settings = offload_options.settings(options, "new_tokens")
    del settings["model"]  # models can be added to a file in another call
    results = Results("bigger_models", options.machine, options.out, settings, options.resume)
    for model in options.models:
        measure(results, options, model)
    rows = [row for row in results.rows() if "mode" in row]
    timed = [figure for row in rows for figure in model_checks(row)]
    checks = [*(timed if options.judged else reported(timed)), *copied_checks(rows)]
    print(row_table(rows))
    report(results.finish(checks), checks)
    return 0 if all_met(checks) else 1


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line; one model at a time takes the place of `--model`."""
    parser = offload_options.parser("bigger_models", __doc__.split("\n")[0])
    parser.add_argument("--models", nargs="+", help="default: 8B, 14B and 32B with random weights")
    parser.add_argument("--grow-host-gib", type=float, default=0, help=machine.GROW_HELP)
    parser.add_argument("--new-tokens", type=int, help="default: 24, of models with 48 layers or more 8")
    return offload_options.complete(parser.parse_args(arguments), DEFAULTS)


def measure(results: Results, options: argparse.Namespace, model: str) -> None:
    """Load with the largest budget that fits the cap; one row, where it is missing."""
    options.model, name = model, offload_options.short(model)
    if results.rows(f"{name}/prefetch"):
        return
    config = offload_options.config_of(options)[0]
    tokens = options.new_tokens or (FEWER if config.num_hidden_layers >= LAYERS else FEW)
    offload_options.limit_memory(options.device, options.cap_gib)
    times = offload_options.blocks(results, options, f"{name}/blocks")
    link = offload_options.link_gb_s(results, times)
    longest, cap = PROMPT_TOKENS + tokens, {"gpu_memory_gib": options.cap_gib}
    with Offloaded(options, longest, link, offload="prefetch", **cap) as offloaded:
        prompt = offload_options.joined_prompt(config, PROMPT_TOKENS)
        offloaded.warm(prompt)
        row = results.row(f"{name}/prefetch", lambda: one(offloaded, name, prompt, tokens))
        progress(f"{row['key']}: {row['tokens_per_s']:.3f} tok/s")


def one(offloaded: Offloaded, name: str, prompt: list[int], tokens: int) -> dict:
    """One generation, and what lies where in host memory."""
    about = {"model": name, **offloaded.placed("prefetch"), "cap_gib": offloaded.options.cap_gib}
    loaded = offloaded.loaded()
    return {**about, **offloaded.run(prompt, tokens), **loaded, "host_locked_bytes": loaded["locked_bytes"]}


def model_checks(row: dict) -> list[dict]:
    """Speed over the limit of the design, peak and locked memory."""
    name = row["model"]
    ratio = over(row["tokens_per_s"], row["limit_tokens_per_s"])
    return [
        check(f"{name}: tok/s over the limit of the design", ratio, GOALS.get(name)),
        check(f"{name}: tok/s", row["tokens_per_s"]),
        *peak_checks(name, [row]),
        *locked_checks([row]),
    ]


if __name__ == "__main__":
    sys.exit(offload_options.run(main))
