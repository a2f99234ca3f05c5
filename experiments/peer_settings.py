"""Hugging Face's libraries as they come and without cuDNN's attention, and our fast path beside them.

    python -m experiments.peer_settings      # data/results/peer_settings__<machine>.json

On data-centre cards from Hopper on, PyTorch gives attention to cuDNN, which plans anew for each length of the
cache that its process has not met: tens of milliseconds of the host for a new token. Ours switches that off
for itself (`minillm/accelerators/cuda.py`), so peers are measured both ways, all in one command.

Rows: answers by ours and by `transformers` with both settings, all layers resident; answers by `accelerate`
with both, as many layers resident as in `experiments.offload_compare`. On a CPU the settings are the same.

Seconds on an H200: 1.7B 60 (4 × 64 tokens at 14 and 40 tok/s, three starts), 8B 90, `accelerate` 2 × 43.
"""

import argparse
import sys

from experiments import offload_compare, offload_options, peers, side_by_side
from experiments.offload_checks import row_table
from experiments.offload_options import short
from experiments.requests import spread
from experiments.results import Results, all_met, check, report
from experiments.vllm_checks import answers, failed_checks, of, ratio

SETTINGS = {"as installed": True, "without cuDNN": False}  # whether attention may be cuDNN's
DEFAULTS = {
    "cuda": {
        "models": ["random:Qwen3-1.7B", "random:Qwen3-8B"],
        "prompts": 4,
        "new_tokens": 64,
        "lengths": [128],
        "kv_tokens": 4608,
        "budget": offload_compare.BUDGET,
    },
    "cpu": {
        "models": ["tiny"],
        "prompts": 2,
        "new_tokens": 8,
        "lengths": [32],
        "kv_tokens": 2048,
        "budget": 4,
    },
}


def main(arguments: list[str] | None = None) -> int:
    """Measure what is missing; exit status 1 if something did not run."""
    options = read_options(arguments)
    names = ("models", "new_tokens", "lengths", "kv_tokens", "budget")
    settings = offload_options.settings(options, *names)
    results = Results("peer_settings", options.machine, options.out, settings, options.resume)
    for model in options.models:
        measure_resident(results, options, model)
    for setting, cudnn in SETTINGS.items():
        measure_accelerate(results, options, setting, cudnn)
    checks = [*timed_checks(results.rows(), options.models), *failed_checks(results.rows())]
    print(row_table([row for row in results.rows() if "ttft_s" in row]))
    report(results.finish(checks), checks)
    return 0 if all_met(checks) else 1


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line; `--model` is the one whose layers stream."""
    parser = offload_options.parser("peer_settings", __doc__.split("\n")[0])
    parser.add_argument("--models", nargs="+", help="resident ones; default: random:Qwen3-1.7B and -8B")
    parser.add_argument("--prompts", type=int, help="spread over data/prompts.jsonl; default: 4, or 2")
    parser.add_argument("--new-tokens", type=int, help="a prompt; default: 64, or 8")
    parser.add_argument("--lengths", type=int, nargs="+", help="tokens of prefills of ours; default: 128")
    parser.add_argument("--kv-tokens", type=int, help="tokens of our KV cache; default: 4608, or 2048")
    parser.add_argument("--budget", type=int, help="layers that accelerate may hold; default: 13, or 4")
    return offload_options.complete(parser.parse_args(arguments), DEFAULTS)


# ---- measuring ----


def measure_resident(results: Results, options: argparse.Namespace, model: str) -> None:
    """Ours, and `transformers` with each setting in a process of its own."""
    indices, tokens = spread(options.prompts), options.new_tokens
    requests = side_by_side.resident_requests(options, model, "minillm", indices, tokens)
    side_by_side.measure_resident(results, options, model, requests)
    for setting, cudnn in SETTINGS.items():
        told = {"setting": setting, "cudnn_attention": cudnn}
        side_by_side.measure_transformers(results, options, model, indices, tokens, **told)


def measure_accelerate(results: Results, options: argparse.Namespace, setting: str, cudnn: bool) -> None:
    """`accelerate` with one setting, some layers in host memory."""
    about = {"model": short(options.model), "engine": "accelerate", "mode": "offloaded", "path": setting}
    start = f"{about['model']}/accelerate/{setting.replace(' ', '-')}"

    def row() -> dict:
        return offload_compare.accelerate(options, cudnn_attention=cudnn) | about

    with peers.recorded(results, start, about):
        found = results.row(f"{start}/0", row)
        offload_options.progress(f"{start}/0: {found.get('tokens_per_s') or found.get('skipped')}")


# ---- judging ----


def timed_checks(rows: list[dict], models: list[str]) -> list[dict]:
    """What a peer gains without cuDNN's attention, and ours over it then; only reported."""
    checks = []
    for model in map(short, models):
        ours = answers(of(rows, model, "minillm", "resident"))
        slow, quick = both(answers(of(rows, model, "transformers", "resident")))
        name = f"{model} resident: decode tok/s, %s"
        checks.append(check(name % "transformers without cuDNN over as installed", ratio(quick, slow)))
        checks.append(check(name % "ours over transformers without cuDNN", ratio(ours, quick)))
    slow, quick = both(answers([row for row in rows if row["engine"] == "accelerate" and "ttft_s" in row]))
    return [*checks, check("accelerate: decode tok/s, without cuDNN over as installed", ratio(quick, slow))]


def both(rows: list[dict]) -> tuple[list[dict], ...]:
    """Rows as installed, and those without cuDNN."""
    return tuple([row for row in rows if row["path"] == setting] for setting in SETTINGS)


if __name__ == "__main__":
    sys.exit(offload_options.run(main))
