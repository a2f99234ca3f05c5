"""Text to token ids and back, and the chat template: transformers' tokenizer behind three methods."""

import logging
from pathlib import Path

from minillm.errors import InputError

FILES = ("tokenizer.json", "tokenizer_config.json")


class Tokenizer:
    """The tokenizer of a model folder.

    Raises InputError when its files are damaged.
    """

    def __init__(self, folder: str | Path):
        logging.getLogger("transformers").setLevel(logging.ERROR)
        from transformers import AutoTokenizer  # seconds to import, and not needed for token-id prompts

        try:
            self.backend = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        except Exception as error:  # transformers raises many kinds for a damaged file
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"the tokenizer in {str(folder)!r} cannot be read: {reason}") from None

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
        return self.backend(text)["input_ids"]

    def decode(self, token_ids: list[int]) -> str:
        """Ids to text; special tokens are left out, bytes that are no character become U+FFFD."""
        return self.backend.decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def chat(
        self, messages: list[dict], tools: list | None = None, add_generation_prompt: bool = True
    ) -> str:
        """The model's own chat template applied; InputError when it has none."""
        if not self.backend.chat_template:
            raise InputError("this model has no chat template: give a plain prompt, without --chat")
        return self.backend.apply_chat_template(
            messages, tools=tools, add_generation_prompt=add_generation_prompt, tokenize=False
        )
