"""Fewer bytes over the link: the same placements with weights in fewer bits, and what stays resident.

    python -m experiments.quant      # data/results/quant__<machine>.json

Rows: 8B with 2 layers on the device in each format, under the cap; 14B and 32B in four bits, as many layers
as fit the cap; 8B resident with the cap lifted, dense and quantised, by graph and eagerly. A call can do a
part, and the next one continues its file: `--parts streamed`, then `--parts bigger --resume data/results`.

On an H200 a token of 8B copies 13.5 GB at 55 GB/s, in int8 half of it, in four bits a quarter: 64 tokens take
16, 8 and 5 s; making and quantising 10 s each. 14B and 32B in four bits take 10 and 20 s to make, 64 tokens 5
and 15 s.
"""

import argparse
import sys

from experiments import machine, offload_options
from experiments.offload_checks import copied_checks, locked_checks, over, peak_checks, row_table
from experiments.offload_options import on, progress, short
from experiments.offloaded import Offloaded, limit
from experiments.results import Results, all_met, check, report, reported
from minillm.model_source import find_model

BUDGET = 2
FORMATS = ("int8", "fp8", "int4")
GOALS = {"int8": 1.9, "int4": 3.6}  # decode over the limit that dense weights have at the same budget
LIMIT_GOAL, RESIDENT_GOAL = 0.97, 1.6
DEFAULTS = {
    "cuda": {"prompt_tokens": 128, "new_tokens": 64, "bigger": ["random:Qwen3-14B", "random:Qwen3-32B"]},
    "cpu": {"prompt_tokens": 32, "new_tokens": 8, "bigger": []},
}


def main(arguments: list[str] | None = None) -> int:
    """Measure the parts that were asked for; exit status 1 if a goal is missed."""
    options = read_options(arguments)
    machine.grow_host_memory(options.grow_host_gib)
    settings = offload_options.settings(options, "prompt_tokens", "new_tokens")
    results = Results("quant", options.machine, options.out, settings, options.resume)
    link = offload_options.link_gb_s(results, offload_options.blocks(results, options))
    for part, measure in MEASURE.items():
        if part in options.parts:
            measure(results, options, link)
    rows = [row for row in results.rows() if "quantize" in row]
    timed = speed_checks(results)
    checks = [*(timed if options.judged else reported(timed)), *copied_checks(rows)]
    print(row_table(rows))
    report(results.finish(checks), checks)
    return 0 if all_met(checks) else 1


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = offload_options.parser("quant", __doc__.split("\n")[0])
    parser.add_argument("--parts", nargs="+", choices=MEASURE, default=list(MEASURE), help="default: all")
    parser.add_argument("--formats", nargs="+", default=FORMATS, help=f"default: {' '.join(FORMATS)}")
    parser.add_argument(
        "--bigger", nargs="*", help="models in four bits; default: 14B and 32B, emulated none"
    )
    parser.add_argument("--prompt-tokens", type=int)
    parser.add_argument("--new-tokens", type=int, help="default: 64, emulated 8")
    parser.add_argument("--grow-host-gib", type=float, default=0, help=machine.GROW_HELP)
    return offload_options.complete(parser.parse_args(arguments), DEFAULTS)


# ---- measuring ----


def measure_streamed(results: Results, options: argparse.Namespace, link: float) -> None:
    """Two layers on the device, each format in a model of its own."""
    offload_options.limit_memory(options.device, options.cap_gib)
    for quantize in (None, *options.formats):
        key = f"{short(options.model)}/{quantize or 'dense'}/{BUDGET}"
        placement = {"gpu_layer_budget": BUDGET, "slots": 1, "offload": "prefetch"}
        measure_one(results, options, link, key, quantize, **placement)


def measure_bigger(results: Results, options: argparse.Namespace, link: float) -> None:
    """As many layers as fit the cap, in four bits."""
    offload_options.limit_memory(options.device, options.cap_gib)
    for model in options.bigger:
        asked = on(options, model)
        placement = {"gpu_memory_gib": options.cap_gib, "offload": "prefetch"}
        measure_one(results, asked, link, f"{short(asked.model)}/int4/cap", "int4", **placement)


def measure_resident(results: Results, options: argparse.Namespace, link: float) -> None:
    """Nothing streams; without the cap, and on a GPU without the fast path, too."""
    offload_options.limit_memory(options.device, None)
    layers = find_model(options.model, config_only=True).config.num_hidden_layers
    for quantize in (None, *options.formats):
        for path in ({}, {"enforce_eager": True}) if options.device == "cuda" else ({},):
            end = "resident-eager" if path else "resident"
            key = f"{short(options.model)}/{quantize or 'dense'}/{end}"
            placement = {"gpu_layer_budget": layers, "offload": "prefetch", **path}
            measure_one(results, options, link, key, quantize, mode="resident", **placement)


# In one order, whatever order they were asked in: what needs the cap comes first.
MEASURE = {"streamed": measure_streamed, "bigger": measure_bigger, "resident": measure_resident}


def measure_one(
    results: Results,
    options: argparse.Namespace,
    link: float,
    key: str,
    quantize: str | None,
    mode: str = "prefetch",
    **placement,
) -> None:
    """Make a model, warm it up, measure one answer; a row, where it is missing."""
    if results.has(key):
        return
    tokens = options.prompt_tokens + options.new_tokens
    with Offloaded(options, tokens, link, quantize=quantize, **placement) as offloaded:
        prompt = offload_options.joined_prompt(offloaded.config, options.prompt_tokens)
        offloaded.warm(prompt)
        row = results.row(key, lambda: one(offloaded, options, quantize, mode, prompt))
    progress(f"{key}: {row['tokens_per_s']:.2f} tok/s")


def one(
    offloaded: Offloaded, options: argparse.Namespace, quantize: str | None, mode: str, prompt: list[int]
) -> dict:
    """One answer, and the limit that dense weights would have with as many layers on the device."""
    dense, dtype = offload_options.config_of(options)
    row = {"model": short(options.model), "quantize": quantize, **offloaded.placed(mode)}
    row["dense_limit_tokens_per_s"] = limit(dense, dtype.itemsize, row["budget"], offloaded.link_gb_s)
    row |= {"cap_gib": options.cap_gib, **offloaded.run(prompt, options.new_tokens), **offloaded.loaded()}
    return row | {"packed_bytes": row["asked_bytes"], "graph_replays": offloaded.llm.graph_replays}


# ---- judging ----


def speed_checks(results: Results) -> list[dict]:
    """Streamed over the dense limit, over their own limit, resident over dense, memory."""
    checks = []
    for row in [row for row in results.rows() if row.get("mode") == "prefetch"]:
        key, speed, fits = row["key"], row["tokens_per_s"], row["key"].endswith("/cap")
        if row["quantize"] and not fits:
            goal = GOALS.get(row["quantize"])
            ratio = over(speed, row["dense_limit_tokens_per_s"])
            checks.append(check(f"{key}: tok/s over the limit of dense weights", ratio, goal))
        ratio = over(speed, row["limit_tokens_per_s"])
        checks.append(check(f"{key}: tok/s over its limit", ratio, LIMIT_GOAL if fits else None))
        checks += [*peak_checks(key, [row]), *locked_checks([row])]
    return checks + resident_checks(results)


def resident_checks(results: Results) -> list[dict]:
    """Resident quantised over resident dense, by graph and eagerly."""
    rows = {row["key"]: row for row in results.rows() if row.get("mode") == "resident"}
    checks = []
    for key, row in rows.items():
        name, quantize, end = key.split("/")
        dense = rows.get(f"{name}/dense/{end}")
        if row["quantize"] and dense:
            goal = RESIDENT_GOAL if (quantize, end) == ("int4", "resident") else None
            ratio = over(row["tokens_per_s"], dense["tokens_per_s"])
            checks.append(check(f"{key}: tok/s over dense", ratio, goal))
    return checks


if __name__ == "__main__":
    sys.exit(offload_options.run(main))
