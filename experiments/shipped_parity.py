"""A model of `data/` through our engine and Hugging Face's: skills, float32 tokens, logits."""

from collections.abc import Callable
from functools import cache

import torch
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from experiments import grid_parity, reference, skill_accuracy
from experiments.greedy import Comparison, compare
from experiments.machine import ROOT
from experiments.prompt_files import read_lines
from experiments.results import check
from minillm import LLM, SamplingParams
from training.skills import SKILLS, held_out

CHUNK = 25  # prompts a row: what a run cut short loses at most
Row = Callable[[str, Callable[[], dict]], dict]  # stores or takes a row, as `Results.row` does


@cache
def programs(name: str, device: str) -> tuple[LLM, PreTrainedModel, PreTrainedTokenizerBase]:
    """Our engine, the reference and its tokenizer, in float32."""
    folder = ROOT / "data" / name
    model = reference.load(folder, torch.float32, device)
    return LLM(name, device=device, dtype="float32"), model, AutoTokenizer.from_pretrained(folder)


def skill_checks(row: Row, name: str, device: str, prefix: str, count: int) -> list[dict]:
    """Measure `count` held-out prompts of each skill in rows `prefix`/…; their checks."""
    checks = []
    for skill in SKILLS:
        samples = held_out(skill, count)
        parts = {begin: samples[begin : begin + CHUNK] for begin in range(0, count, CHUNK)}
        rows = [
            row(
                f"{prefix}/{skill}/{begin:03d}",
                lambda part=part: skill_accuracy.measure(*programs(name, device), part),
            )
            for begin, part in parts.items()
        ]
        checks += skill_accuracy.checks(skill, rows, name)
    return checks


def token_checks(row: Row, name: str, device: str, prefix: str, count: int, limit: int) -> list[dict]:
    """Measure greedy answers of `limit` tokens to `count` prompts in rows `prefix`/…; their checks."""
    llm, model, _ = programs(name, device)
    rows = [
        row(f"{prefix}/{index:02d}", lambda prompt=prompt: measure(llm, model, prompt, limit))
        for index, prompt in enumerate(prompts(llm, count))
    ]
    right = sum(not r["wrong"] for r in rows)
    error = max(r["max_logit_error"] for r in rows)
    checks = [
        check(f"{name} float32: prompts", len(rows), count),
        check(f"{name} float32: share of answers of {limit} tokens right", right / len(rows), 1.0),
        check(
            f"{name} float32: answers apart at a reference margin <= 1e-4", sum(len(r["ties"]) for r in rows)
        ),
        check(f"{name} float32: largest logit error", error, grid_parity.LOGIT_GOAL, "lower"),
        check(f"{name} float32: one token fed a step", grid_parity.one_a_step(rows), True),
    ]
    if llm.config.num_experts:
        ties = sum(r["compared_logits"] < r["prompt_tokens"] for r in rows)
        checks.append(check(f"{name} float32: prompts compared up to a routing tie only", ties))
    return checks


def prompts(llm: LLM, count: int) -> list[list[int]]:
    """Token ids of `count` prompts of the shipped models' own domain."""
    rows = read_lines("prompts_tiny.jsonl")
    spread = [rows[index * len(rows) // count] for index in range(count)]  # some of each category
    return [llm.tokenizer.encode(row["turns"][0]) for row in spread]


def measure(llm: LLM, model: PreTrainedModel, prompt: list[int], limit: int) -> dict:
    """The row of one prompt: the verdict on its answer, its largest logit error, tokens fed."""
    fed_before = llm.tokens_fed
    (out,) = llm.generate(prompt, SamplingParams(max_tokens=limit, ignore_eos=True))
    fed = llm.tokens_fed - fed_before
    answer = reference.greedy(model, prompt, limit)
    verdict = compare(prompt, out.token_ids, answer, lambda ids: reference.logits(model, ids), limit)
    return {
        "prompt_tokens": len(prompt),
        "tokens": len(out.token_ids),
        "min_margin": min(answer.margins),
        **grid_parity.judge([excused(verdict, model, prompt, out.token_ids)]),
        "max_logit_error": grid_parity.logit_error(llm, model, prompt),
        "compared_logits": reference.first_routing_tie(model, prompt),
        "tokens_fed": fed,
        "tokens_to_feed": len(prompt) + len(out.token_ids) - 1,
    }


def excused(verdict: Comparison, model: PreTrainedModel, prompt: list[int], ours: list[int]) -> Comparison:
    """`verdict`, but right where an earlier routing tie lets two correct programs go different ways."""
    if verdict.right:
        return verdict
    text = prompt + ours[: verdict.position]
    tie = reference.first_routing_tie(model, text)
    if tie == len(text):
        return verdict
    return Comparison(True, verdict.position, verdict.margin, f"after a routing tie at position {tie}")
