"""Which experts work: how often each expert of `tiny-moe` is chosen on prompts of its domain.

    python -m experiments.routing      # data/results/routing__<machine>.json

Prompts and greedy answers go through our engine in float32. An expert is dead when it gets less than a tenth
of the share that it would have if all were used alike.
"""

import argparse
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from experiments.prompt_files import read_lines
from experiments.results import FOLDER, Results, check, report
from minillm import LLM, SamplingParams
from minillm.moe import MoE

MODEL = "tiny-moe"
ANSWER_TOKENS = 48
DEAD = 0.1  # of the share of an expert if all were used alike
DEAD_GOAL = 0.10  # of all experts
BUSIEST = 4  # experts of a layer: a quarter


def main(arguments: list[str] | None = None) -> int:
    """Count by category; exit status 1 if too many experts are dead."""
    options = read_options(arguments)
    settings = {"model": options.model, "prompts": options.prompts, "tokens": options.tokens}
    results = Results("routing", options.machine, options.out, settings, options.resume)
    torch.set_num_threads(1)
    with LLM(options.model, device="cpu", dtype="float32") as llm:
        for category, texts in by_category(options.prompts).items():
            results.row(category, lambda texts=texts: measure(llm, texts, options.tokens))
    checks = figures(results.rows())
    return report(results.finish(checks), checks)


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.routing")
    parser.add_argument("--model", default=MODEL, help=f"default: {MODEL}")
    parser.add_argument("--prompts", type=int, default=10, help="of each category at most; default: 10")
    parser.add_argument("--tokens", type=int, default=ANSWER_TOKENS, help="of an answer at most")
    parser.add_argument("--machine", help="name in the file name; default: cpu and its cores")
    parser.add_argument("--out", default=FOLDER, help="folder of the result; default: data/results")
    parser.add_argument("--resume", help="folder with the .partial.json of a run cut short; default: --out")
    return parser.parse_args(arguments)


def by_category(count: int) -> dict[str, list[str]]:
    """The first `count` prompts of each category of data/prompts_tiny.jsonl, as text."""
    found: dict[str, list[str]] = {}
    for row in read_lines("prompts_tiny.jsonl"):
        found.setdefault(row["category"], []).append(row["turns"][0])
    return {category: texts[:count] for category, texts in found.items()}


def measure(llm: LLM, texts: list[str], tokens: int) -> dict:
    """The row of some prompts: choices of each layer and expert, in prompts and in answers."""
    with choices(llm) as (prompt, answer):
        fed_before = llm.tokens_fed
        # One at a time, so that a pass over several tokens is a prompt's.
        outs = [llm.generate(text, SamplingParams(max_tokens=tokens))[0] for text in texts]
        fed = llm.tokens_fed - fed_before
    prompt_tokens = sum(len(out.prompt_token_ids) for out in outs)
    return {
        "prompts": len(texts),
        "prompt_tokens": prompt_tokens,
        "answer_tokens": fed - prompt_tokens,  # those that were fed; the last of an answer is not
        "prompt_choices": prompt.tolist(),
        "answer_choices": answer.tolist(),
    }


@contextmanager
def choices(llm: LLM) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Counts int64 [layers, experts] of prompts and of answers, which grow while the context is open."""
    blocks = [module for module in llm.model.modules() if isinstance(module, MoE)]
    prompt = torch.zeros(len(blocks), llm.config.num_experts, dtype=torch.int64)
    answer = torch.zeros_like(prompt)
    for layer, block in enumerate(blocks):
        block.route = _counting(block.route, prompt[layer], answer[layer])
    try:
        yield prompt, answer
    finally:
        for block in blocks:
            del block.route  # the class's own shows again


def _counting(route, prompt: torch.Tensor, answer: torch.Tensor):
    def counted(tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights, chosen = route(tokens)
        counts = answer if len(tokens) == 1 else prompt
        counts += chosen.flatten().bincount(minlength=len(counts)).cpu()
        return weights, chosen

    return counted


# ---- figures ----


def figures(rows: list[dict]) -> list[dict]:
    """Experts in use and skew over all rows; the busiest experts' share also within a category."""
    answers = [torch.tensor(row["answer_choices"]) for row in rows]
    shares = normalised(total(rows))
    alike = 1 / shares.shape[1]
    return [
        check("routing: experts", shares.numel()),
        check("routing: share of experts in use", (shares > 0).float().mean().item()),
        check(
            "routing: share of dead experts",
            (shares < DEAD * alike).float().mean().item(),
            DEAD_GOAL,
            "lower",
        ),
        check("routing: largest share over an even one", (shares.max() / alike).item()),
        check("routing: smallest share over an even one", (shares.min() / alike).item()),
        check("routing: entropy over the largest possible, mean of layers", entropy(shares).mean().item()),
        check("routing: entropy over the largest possible, lowest layer", entropy(shares).min().item()),
        check("routing: Gini coefficient, mean of layers", gini(shares).mean().item()),
        check(f"routing: share of a layer's {BUSIEST} busiest experts", busiest(shares)),
        check("routing: … within a category", mean_busiest([total([row]) for row in rows])),
        check("routing: … within a category's answers", mean_busiest(answers)),
    ]


def mean_busiest(counts: list[torch.Tensor]) -> float:
    """`busiest` of each category's counts [layers, experts], mean of categories."""
    return sum(busiest(normalised(each)) for each in counts) / len(counts)


def total(rows: list[dict]) -> torch.Tensor:
    """Choices [layers, experts] in prompts and answers of all rows."""
    return torch.tensor([[r["prompt_choices"], r["answer_choices"]] for r in rows]).sum((0, 1))


def normalised(counts: torch.Tensor) -> torch.Tensor:
    """Counts [layers, experts] as shares of each layer's choices."""
    return counts.double() / counts.sum(-1, keepdim=True)


def entropy(shares: torch.Tensor) -> torch.Tensor:
    """Entropy of each layer over the largest possible: 1 when all are used alike, 0 for one alone."""
    return torch.special.entr(shares).sum(-1) / math.log(shares.shape[-1])


def gini(shares: torch.Tensor) -> torch.Tensor:
    """Gini coefficient of each layer: 0 when all are used alike, near 1 for one alone."""
    count = shares.shape[-1]
    ranks = torch.arange(1, count + 1, dtype=shares.dtype)
    return (2 * ranks * shares.sort(-1).values).sum(-1) / count - (count + 1) / count


def busiest(shares: torch.Tensor) -> float:
    """Share of choices that go to the `BUSIEST` experts of their layer, mean of layers."""
    return shares.topk(BUSIEST, -1).values.sum(-1).mean().item()


if __name__ == "__main__":
    sys.exit(main())
