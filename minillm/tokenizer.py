"""Text to token ids and back, and the chat template: transformers' tokenizer behind three methods."""

import threading
from pathlib import Path

from minillm.checks import shown
from minillm.errors import InputError

FILES = ("tokenizer.json", "tokenizer_config.json")
_IMPORTING = threading.Lock()  # transformers imports its parts when asked: of two threads one would fail


class Tokenizer:
    """The tokenizer of a model folder.

    Raises InputError when its files are damaged.
    """

    def __init__(self, folder: str | Path):
        # Here, because it takes seconds and prompts of token ids do not need it.
        with _IMPORTING:
            from transformers import AutoTokenizer, Qwen3Config

        try:
            # With a config of its kind at hand the library does not read, and complain about, the model's.
            self.backend = AutoTokenizer.from_pretrained(
                str(folder), config=Qwen3Config(), local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # transformers raises many kinds for a damaged file
            raise InputError(f"the tokenizer in {str(folder)!r} cannot be read: {_reason(error)}") from None

    @classmethod
    def from_gguf(cls, file) -> "Tokenizer | None":
        """The tokenizer inside a GGUF file, None when it has none."""
        from minillm.quant.gguf.tokenizer import read_tokenizer

        if file.get("tokenizer.ggml.model") is None:
            return None
        tokenizer = cls.__new__(cls)
        tokenizer.backend = read_tokenizer(file)
        return tokenizer

    @classmethod
    def find(cls, folder: str | Path) -> "Tokenizer | None":
        """The folder's tokenizer, None when it has none."""
        has_one = any((Path(folder) / name).is_file() for name in FILES)
        return cls(folder) if has_one else None

    def encode(self, text: str) -> list[int]:
        """Raw text to ids; special tokens written out in the text are recognised.

        Raises InputError for text that is not Unicode: half of a surrogate pair, as a shell can pass.
        """
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError(f"the text is not Unicode at character {error.start}: remove it") from None
        # Not verbose: a text beyond the context gets an error of ours, not the library's line as well.
        return self.backend(text, verbose=False)["input_ids"]

    def decode(self, token_ids: list[int]) -> str:
        """Ids to text; special tokens are left out, bytes that are no character become U+FFFD."""
        # Past transformers' wrapper: a stream decodes twice a token.
        return self.backend.backend_tokenizer.decode(token_ids, skip_special_tokens=True)

    def chat(
        self, messages: list[dict], tools: list | None = None, add_generation_prompt: bool = True
    ) -> str:
        """The model's own chat template applied.

        Raises InputError when it has none, for messages that are none, and for what the template refuses.
        """
        if not self.backend.chat_template:
            raise InputError("this model has no chat template: give a plain prompt, without --chat")
        check_messages(messages)
        try:
            return self.backend.apply_chat_template(
                messages, tools=tools, add_generation_prompt=add_generation_prompt, tokenize=False
            )
        except Exception as error:  # a template is a program of the model's makers: it may raise anything
            raise InputError(f"the chat template cannot render these messages: {_reason(error)}") from None


def check_messages(messages: list[dict]) -> None:
    """Raise InputError, with the message's place, unless each has a role and a text (or tool calls)."""
    if not isinstance(messages, list | tuple) or not messages:
        raise InputError(f"messages are {shown(messages)}: give a list of objects with role and content")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise InputError(f"message {index} is {shown(message)}: give an object with role and content")
        content = message.get("content")
        if not isinstance(content, str) and not (content is None and message.get("tool_calls")):
            raise InputError(f"message {index} has content {shown(content)}: it must be a text")


def _reason(error: Exception) -> str:
    """What a library's error says, on one line of bounded length."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
