"""`generate`: answer one prompt as the text comes, several in order, or all as JSON lines."""

import argparse
import json
from dataclasses import replace

from minillm.cli import prompts
from minillm.cli.options import llm_keywords, sampling_keywords
from minillm.cli.terminal import write
from minillm.sampling_params import MAX_SEED

CUT = "the text so far is kept"


def run(args: argparse.Namespace) -> int:
    """Answer the prompts of `args`; returns the exit status."""
    asked = prompts.from_file(args.prompts) if args.prompts is not None else [prompts.from_text(args.prompt)]
    prompts.check_readable(asked, args.model, args.chat)
    from minillm import LLM, SamplingParams  # after the file is known to be good: LLM imports torch

    params = SamplingParams(**sampling_keywords(args))
    with LLM(args.model, **llm_keywords(args)) as llm:
        inputs = [prompt.for_model(llm, args.chat) for prompt in asked]
        if args.json:
            _all(llm, inputs, params, _print_json)
        elif len(inputs) == 1:
            _stream(llm, inputs[0], params)
        else:
            _all(llm, inputs, params, _print_text)
    return 0


def _stream(llm, prompt, params) -> None:
    text = tokens = 0  # characters and tokens shown
    try:
        for chunk in llm.stream(prompt, params):
            write(chunk.text if llm.tokenizer else _spaced(chunk.token_ids))
            text, tokens = text + len(chunk.text), tokens + len(chunk.token_ids)
    except KeyboardInterrupt as stop:
        for output in getattr(stop, "outputs", []):  # what was held back as a possible stop string
            write(output.text[text:] if llm.tokenizer else _spaced(output.token_ids[tokens:]))
        raise KeyboardInterrupt(CUT) from None
    finally:
        write("\n")


def _spaced(token_ids: list[int]) -> str:
    return "".join(f"{token_id} " for token_id in token_ids)


def _all(llm, inputs, params, show) -> None:
    """Answer group after group and print each as it is done: an error later loses no answer."""
    from minillm.engine import MAX_GROUP

    for start in range(0, len(inputs), MAX_GROUP):
        group = inputs[start : start + MAX_GROUP]
        # The seeds that one call with all prompts would give.
        seeds = [(llm.seed + start + place) & MAX_SEED for place in range(len(group))]
        outputs, cut = _answers(llm, group, [replace(params, seed=seed) for seed in seeds])
        for place, output in enumerate(outputs, start):
            show(place, len(inputs), output)
        if cut:
            raise KeyboardInterrupt(CUT)


def _answers(llm, group, params) -> tuple[list, bool]:
    """The answers, and whether Ctrl-C cut them."""
    try:
        return llm.generate(group, params), False
    except KeyboardInterrupt as stop:
        return getattr(stop, "outputs", []), True


def _print_json(index: int, _: int, output) -> None:
    row = {
        "index": index,
        "prompt_token_ids": output.prompt_token_ids,
        "token_ids": output.token_ids,
        "text": output.text,
        "finish_reason": output.finish_reason,
        "metrics": output.metrics.as_dict(),
    }
    write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")


def _print_text(index: int, count: int, output) -> None:
    answer = " ".join(map(str, output.token_ids)) if output.text is None else output.text
    write(f"[{index + 1}/{count}] {output.finish_reason}, {len(output.token_ids)} tokens\n{answer}\n\n")
