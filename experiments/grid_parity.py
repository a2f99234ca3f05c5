"""One configuration of `tests/grid.py` through our engine and Hugging Face: tokens, logits, counter."""

import tempfile
from pathlib import Path

from transformers import PreTrainedModel

from experiments import reference
from experiments.greedy import Comparison, compare
from experiments.results import check
from minillm import LLM, SamplingParams
from tests import grid

LONG, SHORT = 256, 48  # new tokens of the first prompt, and of each of the others
LOGIT_GOAL = 1e-4


def measure(case: grid.Case, device: str = "cpu", long: int = LONG, short: int = SHORT) -> dict:
    """The row of one configuration: every prompt's verdict, the largest logit error, tokens fed."""
    with tempfile.TemporaryDirectory() as folder:
        model, eos = grid.build(case, Path(folder))
        with LLM(folder, device=device, dtype="float32") as llm:
            return compare_engine(llm, model.to(device), case, eos, long, short)


def compare_engine(
    llm: LLM, model: PreTrainedModel, case: grid.Case, eos: tuple[int, ...], long: int, short: int
) -> dict:
    """`llm` against `model` on the prompts of `case`; `eos` ends all answers but the first."""
    prompts = grid.prompts(case)
    fed_before = llm.tokens_fed
    outs = llm.generate(prompts[0], SamplingParams(max_tokens=long, ignore_eos=True))
    outs += llm.generate(prompts[1:], SamplingParams(max_tokens=short))
    fed = llm.tokens_fed - fed_before
    limits = [(long, ())] + [(short, eos)] * (len(prompts) - 1)
    answers = [reference.greedy(model, p, *limit) for p, limit in zip(prompts, limits, strict=True)]
    verdicts = [
        compare(p, out.token_ids, answer, lambda ids: reference.logits(model, ids), *limit)
        for p, out, answer, limit in zip(prompts, outs, answers, limits, strict=True)
    ]
    return {
        "case": case.describe(),
        "tokens": sum(len(out.token_ids) for out in outs),
        "ended_early": sum(out.finish_reason == "stop" for out in outs),
        "distinct": len(set(outs[0].token_ids)),
        "min_margin": min(min(answer.margins) for answer in answers),
        **judge(verdicts),
        "max_logit_error": max(logit_error(llm, model, p) for p in prompts),
        "compared_logits": [reference.first_routing_tie(model, p) for p in prompts],
        "prompt_tokens": [len(p) for p in prompts],
        "tokens_fed": fed,
        "tokens_to_feed": sum(len(p) + len(out.token_ids) - 1 for p, out in zip(prompts, outs, strict=True)),
    }


def judge(verdicts: list[Comparison]) -> dict:
    """Verdicts as a row's fields: how many are equal, which are ties, which are wrong."""
    listed = [
        {"prompt": i, "position": v.position, "margin": v.margin, "note": v.note}
        for i, v in enumerate(verdicts)
        if v.position is not None
    ]
    return {
        "answers": len(verdicts),
        "equal": sum(v.position is None for v in verdicts),
        "ties": [d for d in listed if verdicts[d["prompt"]].right],
        "wrong": [d for d in listed if not verdicts[d["prompt"]].right],
    }


def logit_error(llm: LLM, model: PreTrainedModel, token_ids: list[int]) -> float:
    """Largest difference of teacher-forced logits up to a routing tie; NaN on a side is an infinite error."""
    clear = reference.first_routing_tie(model, token_ids)
    if clear == 0:
        return 0.0
    ours, theirs = llm.logits(token_ids)[:clear], reference.logits(model, token_ids)[:clear]
    difference = (ours - theirs).abs().max().item()
    return difference if difference == difference else float("inf")


def checks(rows: list[dict], goal_count: int = 40) -> list[dict]:
    """The grid's figures; a tie counts as right and is listed in its row."""
    answers = sum(row["answers"] for row in rows)
    right = answers - sum(len(row["wrong"]) for row in rows)
    return [
        check("grid: configurations", len(rows), goal_count),
        check("grid: share of greedy answers right in float32", right / answers, 1.0),
        check("grid: answers apart at a reference margin <= 1e-4", sum(len(row["ties"]) for row in rows)),
        check("grid: largest logit error", max(_error(row) for row in rows), LOGIT_GOAL, "lower"),
        check("grid: prompts compared up to a routing tie only", sum(routing_ties(row) for row in rows)),
        check("grid: one token fed a step", one_a_step(rows), True),
    ]


def routing_ties(row: dict) -> int:
    """How many prompts of a row meet a routing tie."""
    pairs = zip(row["compared_logits"], row["prompt_tokens"], strict=True)
    return sum(compared < tokens for compared, tokens in pairs)


def one_a_step(rows: list[dict]) -> bool:
    """Whether each row's counter shows a prompt fed once and then exactly one token a step."""
    return all(row["tokens_fed"] == row["tokens_to_feed"] for row in rows)


def _error(row: dict) -> float:
    return float("inf") if row["max_logit_error"] is None else row["max_logit_error"]
