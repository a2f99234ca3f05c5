"""Everything resident: our fast path, our eager path, Hugging Face and vLLM on the same prompts.

    python -m experiments.baseline      # data/results/baseline__<machine>.json

Rows: answers of 256 tokens (ours and vLLM to 20 prompts, our eager path and Hugging Face to 4 of them), the
latency of reading prompts of three lengths, most memory. A call can do a part, and the next one continues
its file: `--parts fast eager`, then `--parts transformers vllm --resume data/results`. vLLM's rows come from
`experiments.vllm_compare` where `--vllm-from` names the folder of its result, same machine and commit.

Seconds on an H200, Qwen3-1.7B: start of the command 12; fast 20 and 20 × 256 / 490 = 10; eager 5 and
4 × 256 / 75 = 14; Hugging Face 15 and 4 × 256 / 14 = 73; vLLM 73 to load and compile and 10. In all 240.
"""

import argparse
import json
import sys
from pathlib import Path

from experiments import offload_options, side_by_side
from experiments.offload_options import short
from experiments.requests import spread
from experiments.results import Results, check, reported
from experiments.side_by_side import resident_requests
from experiments.vllm_checks import (
    answers,
    of,
    own_checks,
    ratio,
    resident_checks,
    speeds,
    start_checks,
)
from minillm.errors import InputError

DEFAULTS = {
    "cuda": {
        "model": "random:Qwen3-1.7B",
        "prompts": 20,
        "few": 4,
        "new_tokens": 256,
        "lengths": [128, 1024, 4096],
        "kv_tokens": 4608,
    },
    "cpu": {"prompts": 3, "few": 2, "new_tokens": 16, "lengths": [32, 128], "kv_tokens": 2048},
}
PARTS = ("fast", "eager", "transformers", "vllm")
SAME = ("new_tokens", "lengths", "kv_tokens")  # settings that rows of two experiments have to share


def main(arguments: list[str] | None = None) -> int:
    """Measure the parts that were asked for; exit status 1 if a goal is missed."""
    options = read_options(arguments)
    settings = offload_options.settings(options, *SAME)
    results = Results("baseline", options.machine, options.out, settings, options.resume)
    for part in PARTS:
        if part in options.parts:
            measure(results, options, part)
    return side_by_side.conclude(results, options, timed_checks)


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = offload_options.parser("baseline", __doc__.split("\n")[0], DEFAULTS["cuda"]["model"])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="default: all")
    parser.add_argument("--prompts", type=int, help="spread over data/prompts.jsonl; default: 20, or 3")
    parser.add_argument("--few", type=int, help="prompts of eager and Hugging Face; default: 4, or 2")
    parser.add_argument("--new-tokens", type=int, help="a prompt; default: 256, or 16")
    parser.add_argument("--lengths", type=int, nargs="+", help="tokens of the prefills")
    parser.add_argument("--kv-tokens", type=int, help="tokens of every KV cache; default: 4608, or 2048")
    parser.add_argument("--vllm-from", help="folder with vllm__<machine>.json, for its rows of this model")
    return offload_options.complete(parser.parse_args(arguments), DEFAULTS)


# ---- measuring ----


def measure(results: Results, options: argparse.Namespace, part: str) -> None:
    """The missing rows of one part. Without a GPU our only path is the eager one."""
    model, every, few = options.model, spread(options.prompts), spread(options.few)
    if part == "fast" and options.device == "cuda":
        requests = resident_requests(options, model, "minillm", every, options.new_tokens)
        side_by_side.measure_resident(results, options, model, requests)
    elif part == "eager":
        suffix, indices = ("-eager", few) if options.device == "cuda" else ("", every)
        requests = resident_requests(options, model, "minillm", indices, options.new_tokens, suffix)
        side_by_side.measure_resident(results, options, model, requests, eager=bool(suffix))
    elif part == "transformers":
        side_by_side.measure_transformers(results, options, model, few, options.new_tokens)
    elif part == "vllm" and options.vllm_from:
        take(results, options)
    elif part == "vllm":
        requests = resident_requests(options, model, "vllm", every, options.new_tokens)
        side_by_side.measure_vllm(results, options, model, "resident", requests)


def take(results: Results, options: argparse.Namespace) -> None:
    """vLLM's rows from another experiment; InputError unless machine, commit and settings are the same."""
    path = Path(options.vllm_from) / f"vllm__{results.machine_name}.json"
    if not path.is_file():
        raise InputError(f"{path} is not there: run experiments.vllm_compare, or leave out --vllm-from")
    found, own = json.loads(path.read_text(encoding="utf-8")), results.content
    differ = [name for name in ("machine", "commit") if found[name] != own[name]]
    differ += [name for name in SAME if found["settings"][name] != own["settings"][name]]
    if differ:
        raise InputError(f"{path} has another {', '.join(differ)}: run experiments.vllm_compare again")
    for row in found["rows"]:
        resident = row["mode"] in ("resident", "resident-process")
        if resident and (row["model"], row["engine"]) == (short(options.model), "vllm"):
            results.row(row["key"], lambda row=row: {**row, "from": path.name})


# ---- judging ----


def timed_checks(rows: list[dict], model: str) -> list[dict]:
    """Ours, fast over eager, ours over Hugging Face (only reported) and over vLLM."""
    return [
        *own_checks(rows, model),
        *eager_checks(rows, model),
        *reported(resident_checks(rows, model, "transformers")),
        *resident_checks(rows, model),
        *resident_checks(rows, model, mode="resident-process"),
        *start_checks(rows),
    ]


def eager_checks(rows: list[dict], model: str) -> list[dict]:
    """What the fast path gave, of the same prompts."""
    found = answers(of(rows, model, "minillm", "resident"))
    fast, eager = ([row for row in found if row["path"] == path] for path in ("fast", "eager"))
    if not fast or not eager:
        return []
    name = f"{model} resident: decode tok/s, fast over eager"
    return [*speeds(f"{model} resident, ours eager", eager), check(name, ratio(fast, eager))]


if __name__ == "__main__":
    sys.exit(offload_options.run(main))
