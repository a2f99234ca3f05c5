"""A shipped model's skills: whole answers right on held-out prompts, in our engine and Hugging Face's."""

import time
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from experiments.reference import generation_settings
from experiments.results import check
from minillm import LLM, SamplingParams

GOALS = {"arithmetic": 0.98, "recall": 0.97, "json": 0.98, "tools": 0.98}
SPARE = 8  # new tokens beyond the longest answer: room to be wrong in


def measure(llm: LLM, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, samples: Sequence) -> dict:
    """The row of some held-out samples, each with `.prompt` and `.answer`, both text."""
    limit = max(len(tokenizer.encode(sample.answer)) for sample in samples) + SPARE
    began = time.perf_counter()
    ours = our_answers(llm, samples, limit)
    between = time.perf_counter()
    theirs = reference_answers(model, tokenizer, samples, limit, llm.config.eos_token_ids)
    ended = time.perf_counter()
    return {
        "prompts": len(samples),
        "longest_prompt_tokens": max(len(tokenizer.encode(sample.prompt)) for sample in samples),
        "right": sum(a == s.answer for a, s in zip(ours, samples, strict=True)),
        "right_reference": sum(a == s.answer for a, s in zip(theirs, samples, strict=True)),
        "same": sum(a == b for a, b in zip(ours, theirs, strict=True)),
        "wrong": [(s.answer, a, b) for s, a, b in zip(samples, ours, theirs, strict=True) if a != s.answer],
        "seconds_ours": round(between - began, 3),
        "seconds_reference": round(ended - between, 3),
    }


def our_answers(llm: LLM, samples: Sequence, limit: int) -> list[str | None]:
    """Greedy answers in one batch; None where the model did not end its answer."""
    outs = llm.generate([sample.prompt for sample in samples], SamplingParams(max_tokens=limit))
    return [out.text if out.finish_reason == "stop" else None for out in outs]


@torch.inference_mode()
def reference_answers(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    samples: Sequence,
    limit: int,
    eos: tuple[int, ...],
) -> list[str | None]:
    """The same through `generate`, padded on the left as it asks for."""
    prompts = [sample.prompt for sample in samples]
    batch = tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left").to(model.device)
    out = model.generate(**batch, generation_config=generation_settings(limit, eos))
    new = out[:, batch.input_ids.shape[1] :].tolist()
    return [_text(tokenizer, ids, eos) for ids in new]


def _text(tokenizer: PreTrainedTokenizerBase, token_ids: list[int], eos: tuple[int, ...]) -> str | None:
    end = next((i for i, token in enumerate(token_ids) if token in eos), None)
    return None if end is None else tokenizer.decode(token_ids[:end], skip_special_tokens=True)


def checks(skill: str, rows: list[dict], model: str = "tiny") -> list[dict]:
    """Accuracy of both, and the share of answers that are the same text."""
    total = sum(row["prompts"] for row in rows)
    share = {k: sum(row[k] for row in rows) / total for k in ("right", "right_reference", "same")}
    return [
        check(f"{model} {skill}: whole answer right", share["right"], GOALS[skill]),
        check(f"{model} {skill}: … through transformers", share["right_reference"], GOALS[skill]),
        check(f"{model} {skill}: same answer as transformers", share["same"]),
        check(f"{model} {skill}: held-out prompts", total),
    ]
