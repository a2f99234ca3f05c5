"""A model in fewer bits as a folder: quantised once, layer by layer, and loaded as it is from then on.

safetensors shards with an index. What is not quantised has its usual key; of a quantised matrix each part has
one of its own, `model.layers.0.mlp.up_proj.weight.packed`. The folder appears when it is whole: its files
are in `incomplete-…` before, beside it or inside an empty one, which only the run that made it touches.
"""

import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from minillm import flat, memory
from minillm.config import DTYPES, ModelConfig
from minillm.errors import InputError, RunError
from minillm.hub import TOKENIZER_FILES
from minillm.layer import DecoderLayer
from minillm.model_source import ModelSource
from minillm.progress import Progress
from minillm.quant.config_file import config_values
from minillm.quant.weight import PackedWeight
from minillm.units import GIB, gib
from minillm.weight_files import INDEX
from minillm.weights import Fill, named_weights

SHARD_BYTES = 1 * GIB  # of tensors that are held before they are written
COPIED = ("generation_config.json", *TOKENIZER_FILES)
Tensors = dict[str, torch.Tensor]


def save(source: ModelSource, config: ModelConfig, folder: Path, fill: Fill, device: torch.device) -> None:
    """Write `source` in the formats of `config.quantize` to `folder`, which must be new or empty.

    Quantises on `device`. Raises InputError for a folder that holds something and for weights that a format
    cannot store, RunError for a disk that is full; then nothing is left of it.
    """
    check_folder(folder)
    check_source(source)
    with _whole(folder) as made:
        _check_space(config, folder, made)
        _write_shards(_groups(config, fill, device), made)
        (made / "config.json").write_text(json.dumps(config_values(source, config), indent=2) + "\n")
        for name in COPIED if source.folder else ():
            if (source.folder / name).is_file():
                shutil.copyfile(source.folder / name, made / name)


def check_source(source: ModelSource) -> None:
    """Raise InputError for a model in a file of another kind."""
    if source.gguf is not None:
        raise InputError(f"{source.name} is a GGUF file: quantize reads folders, hub ids and random:NAME")


def check_folder(folder: Path) -> None:
    """Raise InputError unless a new folder can be made there, or an empty one is there."""
    try:
        taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as error:
        raise InputError(f"cannot look at {str(folder)!r}: {error.strerror}") from None
    if taken:
        raise InputError(f"{str(folder)!r} is there already: name a new or an empty folder")
    folder = folder.absolute()
    nearest = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not nearest.is_dir():
        what = "no folder" if nearest.exists() else "a link to nothing"
        raise InputError(f"cannot make {str(folder)!r}: {str(nearest)!r} is {what}, choose another place")


@contextmanager
def _whole(folder: Path) -> Iterator[Path]:
    """A new folder to write in, which becomes `folder` at the end; if anything fails it is removed."""
    folder = folder.absolute()
    place = folder if folder.exists() else folder.parent  # one that is there may be a disk of its own
    try:
        place.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="incomplete-", dir=place, ignore_cleanup_errors=True) as private:
            made = Path(private) / "model"
            made.mkdir()  # open to whom new folders are: `private` is ours alone
            yield made
            _move(made, folder)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"cannot write {str(folder)!r} ({reason}): choose another place") from None


def _move(made: Path, folder: Path) -> None:
    """One step where there was no such folder. An empty one may be where somebody stands, so it stays."""
    private = made.parent
    if private.parent != folder:
        made.rename(folder)  # fails if the folder has come into being meanwhile and holds something
        return
    if others := [path.name for path in folder.iterdir() if path != private]:
        raise RunError(f"{str(folder)!r} holds {others[0]!r} by now: name a new or an empty folder")
    for path in sorted(made.iterdir(), key=lambda path: path.name == "config.json"):
        path.replace(folder / path.name)  # the configuration last: without it there is no model


def _check_space(config: ModelConfig, folder: Path, made: Path) -> None:
    needed, free = memory.plan(config, DTYPES[config.dtype], 1).weights, shutil.disk_usage(made).free
    if needed > free:
        raise RunError(
            f"the model takes {gib(needed)} on disk, {gib(free)} are free for {str(folder)!r}: free some"
        )


# ---- tensors ----


def _groups(config: ModelConfig, fill: Fill, device: torch.device) -> Iterator[Tensors]:
    """All tensors of the model, a few at a time."""
    dtype = getattr(torch, config.dtype)
    shapes = config.parameter_shapes()
    for name, shape in shapes.items():
        if not name.startswith("model.layers."):
            tensor = torch.empty(shape, dtype=dtype)
            fill([(name, tensor)])
            yield {name: tensor}
    with Progress("quantising", config.num_hidden_layers, "layer") as progress:
        for index in range(config.num_hidden_layers):
            yield _layer(config, index, dtype, fill, device)
            progress.advance()


def _layer(config: ModelConfig, index: int, dtype: torch.dtype, fill: Fill, device: torch.device) -> Tensors:
    with torch.device("meta"):
        layer = DecoderLayer(config, index)
    layout = flat.layout_of(layer, dtype)
    flat.bind(layer, layout, flat.aligned_buffer(layout.num_bytes, "cpu"), dtype)
    named = list(named_weights(layer, device, f"model.layers.{index}."))
    fill(named)
    tensors: Tensors = {}
    for name, weight in named:
        if isinstance(weight, PackedWeight):
            tensors |= {f"{name}.{part}": tensor for part, tensor in weight.parts.items()}
        else:
            tensors[name] = weight.detach()
    return tensors


# ---- files ----


def _write_shards(groups: Iterator[Tensors], folder: Path) -> None:
    weight_map: dict[str, str] = {}
    total, numbers, mode = 0, count(1), _usual_mode(folder)
    for tensors in _gathered(groups):
        file = f"model-{next(numbers):05d}.safetensors"
        save_file(tensors, folder / file, metadata={"format": "pt"})
        (folder / file).chmod(mode)
        weight_map |= dict.fromkeys(tensors, file)
        total += sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n")


def _usual_mode(folder: Path) -> int:
    """Who may read a new file there, as the user's umask says; safetensors lets nobody else."""
    probe = folder / INDEX
    probe.touch()
    return stat.S_IMODE(probe.stat().st_mode)


def _gathered(groups: Iterator[Tensors]) -> Iterator[Tensors]:
    """Groups together, until they are large enough for a file."""
    held: Tensors = {}
    for tensors in groups:
        held |= tensors
        if sum(tensor.nbytes for tensor in held.values()) >= SHARD_BYTES:
            yield held
            held = {}
    if held:
        yield held
