"""Filling a model from a checkpoint: a strict two-way match of names and shapes, then one copy each.

Two exceptions: a stored `lm_head.weight` beside tied embeddings is accepted and not allocated, and
`rotary_emb.inv_freq` (a buffer that old exporters wrote) is ignored. Experts may be stored one by one or
fused, as `experts.gate_up_proj` [E, 2·width, hidden] and `experts.down_proj` [E, hidden, width].
"""

import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from minillm.checkpoint import FLOATS, Checkpoint
from minillm.config import ModelConfig
from minillm.errors import InputError
from minillm.progress import Progress

_EXPERT = re.compile(r"(?P<experts>.*\.mlp\.experts)\.(?P<index>\d+)\.(?P<name>gate|up|down)_proj\.weight")


@dataclass(frozen=True)
class Source:
    """Where a parameter comes from: a stored tensor, or a part of a fused one."""

    key: str
    part: tuple[int | slice, ...] = ()


def fill_from_checkpoint(folder: str | Path, config: ModelConfig) -> Callable:
    """Check the checkpoint against `config` now; return the function that copies it into parameters.

    Raises InputError before any memory is taken: missing, extra or mis-shaped tensors, unknown dtypes.
    """
    with Checkpoint(folder) as checkpoint:
        sources = match(config, checkpoint)

    def fill(parameters: Iterable[tuple[str, torch.Tensor]]) -> None:
        with (
            Checkpoint(folder) as checkpoint,
            Progress("loading", len(sources), "tensor") as progress,
            ThreadPoolExecutor(1) as beside,
        ):
            # Mapped files reach a GPU slowly; meanwhile the processor is free to fill host memory.
            order = sorted(parameters, key=lambda named: named[1].is_cpu)  # what is the GPU's comes first
            copies = []
            for name, parameter in order:
                stored = checkpoint.tensor(sources[name].key)[sources[name].part]
                if parameter.is_cpu:
                    parameter.copy_(stored)
                else:
                    copies.append(beside.submit(parameter.copy_, stored))
                progress.advance()
            for copy in copies:
                copy.result()

    return fill


def match(config: ModelConfig, checkpoint: Checkpoint) -> dict[str, Source]:
    """Each parameter's source; InputError names what is missing, left over or of another shape."""
    shapes = config.parameter_shapes()
    sources = {name: find(name, shape, checkpoint) for name, shape in shapes.items()}
    missing = [name for name, source in sources.items() if source is None]
    if missing:
        raise InputError(f"{checkpoint.folder}: {_some(missing)} missing; the checkpoint is of another model")
    used = {source.key for source in sources.values()}
    extra = [key for key in checkpoint.tensors if key not in used and not may_be_left(key, config)]
    if extra:
        raise InputError(
            f"{checkpoint.folder}: {_some(extra)} unknown to {config.model_type}; wrong config.json?"
        )
    for name, source in sources.items():
        _check_stored(source, shapes[name], checkpoint)
    return sources


def find(name: str, shape: tuple[int, ...], checkpoint: Checkpoint) -> Source | None:
    """The tensor of that name, or the rows of a fused expert tensor; None when there is neither."""
    if name in checkpoint.tensors:
        return Source(name)
    expert = _EXPERT.fullmatch(name)
    if not expert:
        return None
    index, width = int(expert["index"]), shape[0]
    rows = {"gate": slice(0, width), "up": slice(width, 2 * width), "down": slice(None)}[expert["name"]]
    key = f"{expert['experts']}.{'down_proj' if expert['name'] == 'down' else 'gate_up_proj'}"
    return Source(key, (index, rows)) if key in checkpoint.tensors else None


def may_be_left(key: str, config: ModelConfig) -> bool:
    """Whether a stored tensor may stay unused."""
    return key.endswith("rotary_emb.inv_freq") or (key == "lm_head.weight" and config.tie_word_embeddings)


def _check_stored(source: Source, shape: tuple[int, ...], checkpoint: Checkpoint) -> None:
    stored = checkpoint.tensors[source.key]
    where = f"{checkpoint.folder}: {source.key}"
    if stored.dtype not in FLOATS:
        raise InputError(f"{where} is stored as {stored.dtype}: minillm reads {', '.join(FLOATS)}")
    # On the meta device indexing costs nothing and fails where the fused tensor is too small.
    try:
        part = torch.empty(stored.shape, device="meta")[source.part].shape
    except IndexError:
        part = stored.shape
    if tuple(part) != shape:
        raise InputError(f"{where} has shape {list(stored.shape)}, config.json asks for {list(shape)}")


def _some(names: list[str]) -> str:
    """The first names of a list and how many more there are."""
    more = f" and {len(names) - 3} more are" if len(names) > 3 else (" are" if len(names) > 1 else " is")
    return ", ".join(names[:3]) + more
