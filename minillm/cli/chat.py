"""`chat`: messages in turn, the answers as they come."""

import argparse
import sys

from minillm.cli.options import llm_keywords, sampling_keywords
from minillm.cli.prompts import needs_ids
from minillm.cli.terminal import complain, write
from minillm.errors import InputError

EXIT, CLEAR = "/exit", "/clear"


def run(args: argparse.Namespace) -> int:
    """Talk until /exit or the end of the input; /clear starts anew, Ctrl-C cuts an answer.

    Returns the exit status.
    """
    from minillm import LLM, SamplingParams

    params = SamplingParams(**sampling_keywords(args))
    lacking = InputError(f"{args.model} has no tokenizer: chat needs one, choose another model")
    if needs_ids(args.model):
        raise lacking
    with LLM(args.model, **llm_keywords(args)) as llm:
        if llm.tokenizer is None:
            raise lacking
        start = [{"role": "system", "content": args.system}] if args.system else []
        messages = start
        while (text := _next_message()) is not None:
            messages = start if text == CLEAR else _turn(llm, params, messages, text)
    return 0


def _next_message() -> str | None:
    """The next line that is not empty; None at the end."""
    while True:
        shown = sys.stdin.isatty()
        try:
            text = input("> " if shown else "").strip()
        except EOFError:
            write("\n" if shown else "")  # the shell's prompt comes next
            return None
        if text:
            return None if text == EXIT else text


def _turn(llm, params, messages: list[dict], text: str) -> list[dict]:
    """The conversation with `text` and its answer; as it was if the message cannot be answered."""
    asked = [*messages, {"role": "user", "content": text}]
    try:
        answer = _answer(llm, params, _prompt(llm, asked))
    except InputError as error:
        if not sys.stdin.isatty():
            raise
        complain("error", error)
        return messages
    return [*asked, {"role": "assistant", "content": answer}]


def _prompt(llm, messages: list[dict]) -> list[int]:
    prompt = llm.chat_prompt(messages)
    if len(prompt) > llm.max_model_len:
        raise InputError(
            f"the conversation has {len(prompt)} tokens, more than the context of {llm.max_model_len}: "
            f"shorten the message, or forget what was said with {CLEAR}"
        )
    return prompt


def _answer(llm, params, prompt: list[int]) -> str:
    answer = ""
    try:
        for chunk in llm.stream(prompt, params):
            answer += chunk.text
            write(chunk.text)
    except KeyboardInterrupt as stop:
        for output in getattr(stop, "outputs", []):  # what was held back as a possible stop string
            write(output.text[len(answer) :])
            answer = output.text
        write(" …")
    write("\n")
    return answer
