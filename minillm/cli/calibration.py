"""The text on which `quantize --budget-gib` measures."""

from pathlib import Path
from typing import TYPE_CHECKING

from minillm.cli.prompts import from_file
from minillm.errors import InputError
from minillm.model_source import shipped_folder, shipped_here

if TYPE_CHECKING:
    from minillm.cli.prompts import Prompt
    from minillm.llm import LLM

DATA = Path(__file__).parents[2] / "data"  # in a checkout; an installed copy has none
SHIPPED = DATA / "prompts.jsonl"
OF_SHIPPED_MODELS = DATA / "prompts_tiny.jsonl"  # of what they were trained on, one kind after the other
PROMPTS = 8
TOKENS = 256  # of a prompt; its logits are held, each as large as the vocabulary


def read(path: str | None, count: int | None, model: Path | None) -> list["Prompt"]:
    """`count` prompts: the first of a file; without one those for the model in the folder `model`.

    Raises InputError where there is none to read.
    """
    count, shipped = count or PROMPTS, path is None and _is_shipped(model)
    default = OF_SHIPPED_MODELS if shipped else SHIPPED
    if path is None and not default.is_file():
        raise InputError("this copy of minillm comes without calibration prompts: give --calibration FILE")
    prompts = from_file(path or default)
    return _spread(prompts, count) if shipped else prompts[:count]


def _is_shipped(model: Path | None) -> bool:
    shipped = (shipped_folder(name) for name in shipped_here())
    return model is not None and any(model.resolve() == each.resolve() for each in shipped)


def _spread(prompts: list["Prompt"], count: int) -> list["Prompt"]:
    """`count` of them at equal distances, so that each kind has its share."""
    count = min(count, len(prompts))
    return [prompts[(2 * place + 1) * len(prompts) // (2 * count)] for place in range(count)]


def encode(prompts: list["Prompt"], llm: "LLM") -> list[list[int]]:
    """Token ids of each, cut to `TOKENS`; InputError as for any prompt that the model cannot read."""
    return [prompt.for_model(llm, chat=False)[:TOKENS] for prompt in prompts]
