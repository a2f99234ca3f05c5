"""What this machine can do at most: bandwidths of its memories and its link, and what a block costs.

    python -m experiments.ceilings      # data/results/ceilings__<machine>.json

Bandwidths are measured three times. Block costs are the engine's own steps on made-up weights, for one token
and, on a GPU, for a prompt of 1,024. They give the simulated speed of a model whose layers are all resident.

On an H200 about 40 s: a repetition 2 s, block costs of six geometries 2 to 4 s each and twice.
"""

import argparse
import sys
from statistics import median

from experiments import offload_options
from experiments.offload_checks import row_table
from experiments.offload_options import progress
from experiments.offloaded import on_card
from experiments.results import Results, check, report
from minillm import ceilings, memory, schedule
from minillm.predict import decode

REPEATS = 3
SIZES = ("0.6B", "1.7B", "4B", "8B", "14B", "32B")
DEFAULTS = {
    "cuda": {"models": [f"random:Qwen3-{size}" for size in SIZES], "tokens": [1, 1024]},
    "cpu": {"models": ["tiny"], "tokens": [1]},
}
FIGURES = {
    "link_gb_s": "host to device over the link, GB/s",
    "device_copy_gb_s": "copy in device memory, GB/s read and written",
    "device_matvec_bfloat16_gb_s": "matrix-vector product on the device, GB/s of bfloat16 weights",
    "host_copy_gb_s": "copy in main memory, GB/s read and written",
    "host_matvec_bfloat16_gb_s": "matrix-vector product on the CPU, GB/s of bfloat16 weights",
}


def main(arguments: list[str] | None = None) -> int:
    """Measure; nothing is judged, so the status is 0."""
    options = read_options(arguments)
    settings = offload_options.settings(options, "models", "tokens")
    results = Results("ceilings", options.machine, options.out, settings, options.resume)
    for number in range(REPEATS):
        results.row(f"machine/{number}", lambda: ceilings.measure().as_dict())
    for model in options.models:
        for tokens in options.tokens:
            key = f"{model.removeprefix('random:')}/{tokens}"
            row = results.row(key, lambda model=model, tokens=tokens: blocks(options, model, tokens))
            progress(f"{key}: attention {row['attention_s'] * 1e3:.3f} ms, MLP {row['mlp_s'] * 1e3:.3f} ms")
    print(row_table([row for row in results.rows() if "simulated_tokens_per_s" in row]))
    checks = machine_checks(results.rows("machine/"))
    return report(results.finish(checks), checks)


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = offload_options.parser("ceilings", __doc__.split("\n")[0])
    parser.add_argument("--models", nargs="+", help="default: Qwen3's dense geometries, without a GPU tiny")
    parser.add_argument("--tokens", type=int, nargs="+", help="of a pass; default: 1 1024, without a GPU 1")
    return offload_options.complete(parser.parse_args(arguments), DEFAULTS)


def blocks(options: argparse.Namespace, model: str, tokens: int) -> dict:
    """Seconds a block, and what they come to with every layer resident and one token a pass."""
    options.model = model
    config, dtype = offload_options.config_of(options)
    times = offload_options.measure_blocks(options, tokens)
    placement = schedule.place(config.num_hidden_layers, config.num_hidden_layers, 1)
    needed = memory.plan(config, dtype.itemsize, 1).total
    made = {"model": model, "tokens": tokens, "layers": config.num_hidden_layers, **vars(times)}
    if tokens > 1:
        return made
    speed = decode(config, dtype.itemsize, "none", placement, times).tokens_per_s
    card = on_card(config, dtype.itemsize, "none", placement, needed)
    return made | {"simulated_tokens_per_s": speed, "rtx3070_tokens_per_s": card}


def machine_checks(rows: list[dict]) -> list[dict]:
    """Medians of what this machine has."""
    found = {name: [row[name] for row in rows if row[name] is not None] for name in FIGURES}
    return [check(FIGURES[name], median(values)) for name, values in found.items() if values]


if __name__ == "__main__":
    sys.exit(offload_options.run(main))
