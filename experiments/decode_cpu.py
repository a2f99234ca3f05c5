"""Decode on the CPU against `transformers`: the same weights, prompt and threads, taking turns.

    python -m experiments.decode_cpu      # data/results/decode_cpu__<machine>.json

Speed is (n - 1) / (total - time to first token) for both. `transformers` runs as its documentation asks for
speed: `generate` with the KV cache, its default attention (SDPA), inference mode; its first token is timed by
a stopping criterion, which it calls after each token. Needs a quiet machine: both programs meet the same
minutes, but busy cores slow them unequally.
"""

import argparse
import hashlib
import statistics
import sys
import time

import torch
from transformers import PreTrainedModel, StoppingCriteria
from transformers.utils import logging

from experiments import random_reference, reference
from experiments.machine import ROOT
from experiments.prompt_files import read_lines
from experiments.results import FOLDER, Results, check, report
from minillm import LLM, SamplingParams

GOALS = {"tiny": 2.0, "random:Qwen3-0.6B": 1.0}  # our speed over theirs
DTYPES = {"tiny": torch.float32, "random:Qwen3-0.6B": torch.bfloat16}
NEW_TOKENS = {"tiny": 256, "random:Qwen3-0.6B": 64}
PROMPT_TOKENS = 64
REPEATS = 7


def main(arguments: list[str] | None = None) -> int:
    """Measure both models; exit status 1 if a ratio misses its goal."""
    options = read_options(arguments)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    settings = {"models": options.models, "repeats": options.repeats, "prompt_tokens": PROMPT_TOKENS}
    results = Results("decode_cpu", options.machine, options.out, settings, options.resume)
    for name in options.models:
        measure_model(results, name, options.repeats)
    checks = [figure for name in options.models for figure in model_checks(name, results.rows(f"{name}/"))]
    return report(results.finish(checks), checks)


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.decode_cpu")
    parser.add_argument("--models", nargs="+", choices=list(GOALS), default=list(GOALS))
    parser.add_argument("--repeats", type=int, default=REPEATS, help="of each program and model")
    parser.add_argument("--machine", help="name in the file name; default: cpu and its cores")
    parser.add_argument("--out", default=FOLDER, help="folder of the result; default: data/results")
    parser.add_argument("--resume", help="folder with the .partial.json of a run cut short; default: --out")
    return parser.parse_args(arguments)


def measure_model(results: Results, name: str, repeats: int) -> None:
    """Alternate: ours, theirs, ours, theirs; the first pair warms up and is not stored."""
    if len(results.rows(f"{name}/")) == 2 * repeats:
        return
    tokens = NEW_TOKENS[name]
    with LLM(name, device="cpu", dtype=str(DTYPES[name]).removeprefix("torch.")) as llm:
        model, prompt = reference_of(name), prompt_of(llm)
        programs = {
            "minillm": lambda: ours(llm, prompt, tokens),
            "transformers": lambda: theirs(model, prompt, tokens),
        }
        for program in programs.values():
            program()
        for repeat in range(repeats):
            for program, run in programs.items():
                results.row(
                    f"{name}/{repeat}/{program}", lambda program=program, run=run: row(program, run())
                )


def reference_of(name: str) -> PreTrainedModel:
    """The `transformers` model with the weights that our `name` has."""
    if name.startswith("random:"):
        return random_reference.make(name, DTYPES[name])
    return reference.load(ROOT / "data" / name, DTYPES[name])


def prompt_of(llm: LLM) -> list[int]:
    """64 token ids: of the shared prompts for Qwen3's vocabulary, of their own domain for shipped models."""
    if llm.tokenizer is None:
        prompts = [line["token_ids"] for line in read_lines("prompts.jsonl")]
    else:
        prompts = [llm.tokenizer.encode(line["turns"][0]) for line in read_lines("prompts_tiny.jsonl")]
    return next(ids for ids in prompts if len(ids) >= PROMPT_TOKENS)[:PROMPT_TOKENS]


def row(program: str, run: tuple[list[int], float, float]) -> dict:
    """A repetition's row from its token ids, time to first token and total time in seconds."""
    token_ids, ttft, total = run
    return {
        "program": program,
        "threads": torch.get_num_threads(),
        "tokens": len(token_ids),
        "ttft_s": ttft,
        "total_s": total,
        "decode_tokens_per_s": (len(token_ids) - 1) / (total - ttft),
        "answer": hashlib.sha256(str(token_ids).encode()).hexdigest()[:16],
    }


def ours(llm: LLM, prompt: list[int], tokens: int) -> tuple[list[int], float, float]:
    """Greedy token ids, time to first token and total, from outside, as for `transformers`."""
    began = time.perf_counter()
    first = None
    token_ids = []
    for chunk in llm.stream(prompt, SamplingParams(max_tokens=tokens, ignore_eos=True)):
        first = first or time.perf_counter()
        token_ids += chunk.token_ids
    return token_ids, first - began, time.perf_counter() - began


class Stopwatch(StoppingCriteria):
    """Called by `generate` after each token; stops nothing, notes when the first one was there."""

    first: float | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs) -> torch.Tensor:
        if self.first is None and input_ids.is_cuda:
            torch.cuda.synchronize()  # until then the token is only asked for
        self.first = self.first or time.perf_counter()
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)


@torch.inference_mode()
def theirs(
    model: PreTrainedModel, prompt: list[int], tokens: int, device: str = "cpu"
) -> tuple[list[int], float, float]:
    """The same through `generate`; `device`: where the model computes."""
    ids = torch.tensor([prompt], device=device)
    watch = Stopwatch()
    began = time.perf_counter()
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        generation_config=reference.generation_settings(tokens, use_cache=True),
        stopping_criteria=[watch],
    )
    return out[0, len(prompt) :].tolist(), watch.first - began, time.perf_counter() - began


def model_checks(name: str, rows: list[dict]) -> list[dict]:
    """The ratio of median speeds, both medians, and whether the two wrote the same tokens."""
    speeds = {
        program: statistics.median(r["decode_tokens_per_s"] for r in rows if r["program"] == program)
        for program in ("minillm", "transformers")
    }
    same = len({r["answer"] for r in rows}) == 1
    return [
        check(
            f"{name}: decode, ours over transformers", speeds["minillm"] / speeds["transformers"], GOALS[name]
        ),
        check(f"{name}: decode tok/s, ours", speeds["minillm"]),
        check(f"{name}: decode tok/s, transformers", speeds["transformers"]),
        check(f"{name}: all repetitions wrote the same tokens", same, True if name == "tiny" else None),
    ]


if __name__ == "__main__":
    sys.exit(main())
