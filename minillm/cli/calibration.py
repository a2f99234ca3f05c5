"""The text on which `quantize --budget-gib` measures."""

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from minillm.cli.prompts import from_file
from minillm.errors import InputError

if TYPE_CHECKING:
    from minillm.cli.prompts import Prompt
    from minillm.llm import LLM

SHIPPED = Path(__file__).parents[2] / "data" / "prompts.jsonl"  # in a checkout; an installed copy has none
PROMPTS = 8
TOKENS = 256  # of a prompt; its logits are held, each as large as the vocabulary


def read(path: str | None, count: int | None) -> list["Prompt"]:
    """The first `count` prompts of a file, or of the shipped one. InputError where there is none to read."""
    if path is None and not SHIPPED.is_file():
        raise InputError("this copy of minillm comes without calibration prompts: give --calibration FILE")
    return list(islice(from_file(path or SHIPPED), count or PROMPTS))


def encode(prompts: list["Prompt"], llm: "LLM") -> list[list[int]]:
    """Token ids of each, cut to `TOKENS`; InputError as for any prompt that the model cannot read."""
    return [prompt.for_model(llm, chat=False)[:TOKENS] for prompt in prompts]
