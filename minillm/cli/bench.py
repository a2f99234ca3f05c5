"""`bench`: load a model, measure it once, say where it lies."""

import argparse
import json

from minillm.cli.options import llm_keywords
from minillm.cli.terminal import write
from minillm.units import gib, short


def run(args: argparse.Namespace) -> int:
    """Measure the model of `args`; returns the exit status."""
    from minillm import LLM
    from minillm.bench import bench, check_batch

    check_batch(args.batch)
    with LLM(args.model, **llm_keywords(args)) as llm:
        found = bench(llm, args.prompt_tokens, args.max_new_tokens, args.batch)
        report = llm.report()
    if args.json:
        write(json.dumps({"model": args.model, **found.as_dict()}) + "\n")
        return 0
    rows = [
        ("requests", f"{found.batch} of {found.prompt_tokens} tokens and {found.new_tokens} new ones"),
        ("time to first token", f"{1000 * found.ttft_s:,.1f} ms"),
        ("decoding", f"{rate(found.tokens_per_s)} a request, {rate(found.batch_tokens_per_s)} in all"),
        ("predicted", rate(found.predicted_tokens_per_s)),
        ("peak memory", memory(found.peak_memory_bytes)),
    ]
    write("".join(f"{name:<21}{value}\n" for name, value in rows) + f"\n{report}\n")
    return 0


def rate(tokens_per_s: float | None) -> str:
    """A speed as text; "-" where it is undefined or nobody predicted it."""
    return "-" if tokens_per_s is None else f"{short(tokens_per_s)} tokens a second"


def memory(num_bytes: int | None) -> str:
    """A size as text; "-" where nothing counts it."""
    return "-" if num_bytes is None else gib(num_bytes)
