"""`generate`: answer one prompt as the text comes, several in order, or all as JSON lines."""

import argparse
import json

from minillm.cli import prompts
from minillm.cli.options import llm_keywords, sampling_keywords
from minillm.cli.terminal import write

CUT = "the text so far is kept"


def run(args: argparse.Namespace) -> int:
    """Answer the prompts of `args`; returns the exit status."""
    asked = prompts.from_file(args.prompts) if args.prompts else [prompts.from_text(args.prompt)]
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
    chunks = llm.stream(prompt, params)  # a bad prompt is refused here, before anything is written
    try:
        for chunk in chunks:
            write(chunk.text if llm.tokenizer else " ".join(map(str, chunk.token_ids)) + " ")
    except KeyboardInterrupt:
        raise KeyboardInterrupt(CUT) from None
    finally:
        write("\n")


def _all(llm, inputs, params, show) -> None:
    cut = False
    try:
        outputs = llm.generate(inputs, params)
    except KeyboardInterrupt as stop:
        cut, outputs = True, getattr(stop, "outputs", [])
    for index, output in enumerate(outputs):
        show(index, len(inputs), output)
    if cut:
        raise KeyboardInterrupt(CUT)


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
