"""What `LLM(model)` may be given: a folder, a GGUF file, a hub id, a shipped name, smollm2 or random:NAME."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from minillm import presets, smollm2
from minillm.checks import shown
from minillm.config import ModelConfig
from minillm.errors import InputError

if TYPE_CHECKING:
    import torch

    from minillm.quant.gguf.file import GGUFFile
    from minillm.tokenizer import Tokenizer

# Names that a hub id never takes; shipped_here() are those of this copy.
SHIPPED = ("tiny", "tiny-moe", "tiny-draft")
RANDOM = "random:"


@dataclass(frozen=True)
class ModelSource:
    """A model found but not loaded."""

    name: str
    config: ModelConfig
    folder: Path | None  # None for random weights
    gguf: "GGUFFile | None" = None  # open, where the model is one

    def tokenizer(self) -> "Tokenizer | None":
        """The model's own; None where it brings none."""
        from minillm.tokenizer import Tokenizer

        if self.gguf is not None:
            return Tokenizer.from_gguf(self.gguf)
        return Tokenizer.find(self.folder) if self.folder else None

    def filler(self, seed: int, made_on: "torch.device | None" = None) -> Callable:
        """The function that writes the weights; a checkpoint's names and shapes are checked here."""
        if self.gguf is not None:
            from minillm.quant.gguf.loader import fill_from_gguf

            return fill_from_gguf(self.gguf, self.config)
        if self.folder is None:
            from minillm.random_weights import fill_random

            return partial(fill_random, seed=seed, made_on=made_on)
        from minillm.loader import fill_from_checkpoint

        return fill_from_checkpoint(self.folder, self.config)


def find_model(model: str | Path, config_only: bool = False) -> ModelSource:
    """Resolve `model`; downloads a hub id (its configuration alone with `config_only`).

    A `pathlib.Path` is always a folder or a GGUF file. Of a str, the shipped names come first (`./tiny` is
    the folder of that name), then `random:`, smollm2 and names of GGUF files, then a folder that exists, then
    a hub id. Raises InputError for an unknown name, a missing folder, another file or a bad configuration,
    RunError when a download fails.
    """
    if not isinstance(model, str | Path) or not str(model):
        raise InputError(f"model is {model!r}: give a folder, a hub id, tiny or random:NAME")
    name = str(model)
    if isinstance(model, str) and name.startswith(RANDOM):
        return ModelSource(name, presets.load(name.removeprefix(RANDOM)), None)
    if model == smollm2.NAME:
        return replace(_gguf(str(smollm2.find())), name=name)
    if name.endswith(".gguf"):
        return _gguf(name)
    folder = _existing(model) if isinstance(model, Path) else _folder(name, config_only)
    return ModelSource(name, ModelConfig.from_folder(folder), folder)


def _gguf(path: str) -> ModelSource:
    from minillm.quant.gguf.config import read_config
    from minillm.quant.gguf.file import GGUFFile
    from minillm.quant.gguf.loader import formats_of

    file = GGUFFile(path)
    config = ModelConfig.from_dict(read_config(file), path)
    return ModelSource(path, replace(config, quantize=formats_of(file)), None, file)


def _folder(name: str, config_only: bool) -> Path:
    if name in SHIPPED:
        return shipped_folder(name)
    from minillm import hub

    folder = _existing(Path(name))
    if folder.is_dir() or not hub.is_hub_id(name):
        return folder
    return hub.download(name, config_only=config_only)


def _existing(folder: Path) -> Path:
    """`folder`, there or not; InputError for a file, and for what the system refuses to look at."""
    try:
        is_file = folder.exists() and not folder.is_dir()
    except OSError as error:
        raise InputError(f"cannot look for a folder {shown(str(folder))}: {error.strerror}") from None
    if is_file:
        raise InputError(f"{str(folder)!r} is a file: give its folder")
    return folder


def shipped_folder(name: str) -> Path:
    """Where a shipped model lies; InputError when this copy of minillm has no such model."""
    place = _place(name)
    if place is None:
        here = ", ".join(shipped_here()) or "no model"
        raise InputError(f"the model {name!r} does not come with this copy of minillm: {here} does")
    return place


def shipped_here() -> tuple[str, ...]:
    """The names of the models that come with this copy of minillm."""
    return tuple(name for name in SHIPPED if _place(name))


def _place(name: str) -> Path | None:
    """The folder of a shipped model: beside the package in a checkout, inside it when installed."""
    package = Path(__file__).parent
    places = (package.parent / "data" / name, package / "shipped" / name)
    return next((place for place in places if (place / "config.json").is_file()), None)
