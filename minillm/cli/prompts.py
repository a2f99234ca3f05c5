"""Prompts as the command line takes them: one text, or a file of JSON lines."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minillm.checks import shown
from minillm.errors import InputError
from minillm.model_source import RANDOM, find_model
from minillm.prompts import read_one
from minillm.tokenizer import FILES


@dataclass(frozen=True)
class Prompt:
    """Text, token ids or both; never neither. `where` names it in errors."""

    where: str
    text: str | None
    token_ids: list[int] | None = None

    def for_model(self, llm, chat: bool) -> list[int]:
        """Checked token ids for `llm`: of the text if there is one and the model has a tokenizer.

        Ids belong to one vocabulary and the text to none, so the text is right for every model that can
        read it. With `chat` the text goes through the model's chat template. Raises InputError.
        """
        given = self.token_ids
        if chat:
            given = self._chat(llm)
        elif self.text is not None and (llm.tokenizer is not None or given is None):
            given = self.text
        return read_one(given, self.where, llm.tokenizer, llm.config.vocab_size, llm.max_model_len)

    def _chat(self, llm) -> list[int]:
        if self.text is None:
            raise InputError(f"{self.where} has token_ids alone: --chat needs turns, or leave --chat out")
        try:
            return llm.chat_prompt([{"role": "user", "content": self.text}])
        except InputError as error:
            raise InputError(f"{self.where}: {error}") from None


def needs_ids(model: str) -> bool:
    """Whether the model is seen to have no tokenizer without loading it: random weights, or a bare folder.

    Of a file, or a model that is yet to be downloaded, nothing is seen. Raises InputError as `find_model`.
    """
    if not model.startswith(RANDOM) and not os.path.isdir(model):
        return False
    source = find_model(model, config_only=True)
    has_one = source.folder is not None and any((source.folder / name).is_file() for name in FILES)
    return source.gguf is None and not has_one


def check_readable(prompts: list[Prompt], model: str, chat: bool) -> None:
    """Raise InputError for the first that `model` is seen to have no tokenizer for, before it is loaded."""
    texts = [prompt for prompt in prompts if prompt.text is not None and (chat or prompt.token_ids is None)]
    if texts and needs_ids(model):
        with_ids = texts[0].token_ids is not None
        remedy = "leave --chat out" if with_ids else "give token ids in a file, with --prompts"
        raise InputError(f"{texts[0].where} is text, but {model} has no tokenizer: {remedy}")


def from_text(text: str) -> Prompt:
    """The prompt of `--prompt`; InputError where the shell passed bytes that are not UTF-8."""
    return Prompt("--prompt", _encodable(text, "--prompt"))


def _encodable(text: str, where: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"{where} is not UTF-8 at character {error.start}: give it as UTF-8") from None
    return text


def from_file(path: str | Path) -> list[Prompt]:
    """The prompts of a file in MT-Bench's question format (`turns`), or with `token_ids`, in its order.

    Raises InputError for a file that cannot be read or holds none, and names the line that is wrong.
    """
    lines = enumerate(_text(path).split("\n"), start=1)
    prompts = [_prompt(line, f"{path} line {number}") for number, line in lines if line.strip()]
    if not prompts:
        raise InputError(f"{path} holds no prompts: it needs a JSON object a line")
    return prompts


def _text(path: str | Path) -> str:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the prompts file {shown(str(path))}: {error.strerror}") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path} line {line} is not UTF-8: save the file as UTF-8") from None


def _prompt(line: str, where: str) -> Prompt:
    try:
        row = json.loads(line)
    except RecursionError:
        raise InputError(f"{where} is not JSON (nested too deeply): write one object a line") from None
    except ValueError as error:
        reason = getattr(error, "msg", "a number of thousands of digits")
        raise InputError(f"{where} is not JSON ({reason}): write one object a line") from None
    if not isinstance(row, dict):
        raise InputError(f"{where} is not a JSON object: give one with turns or token_ids")
    turns, ids = row.get("turns"), row.get("token_ids")
    if turns is None and ids is None:
        raise InputError(f"{where} has neither turns nor token_ids: give one of them")
    return Prompt(where, _first_turn(turns, where), _token_ids(ids, where))


def _first_turn(turns: Any, where: str) -> str | None:
    if turns is None:
        return None
    if not isinstance(turns, list) or not turns or not isinstance(turns[0], str):
        raise InputError(f"{where}: turns must be a list of texts that is not empty")
    return _encodable(turns[0], f"{where}: turns")


def _token_ids(ids: Any, where: str) -> list[int] | None:
    if ids is None:
        return None
    if not isinstance(ids, list) or not ids or any(type(i) is not int for i in ids):
        raise InputError(f"{where}: token_ids must be a list of whole numbers that is not empty")
    return ids
