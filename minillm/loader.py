"""Filling a model from a checkpoint: a strict two-way match of names and shapes, then one copy each.

Matrices that the file holds quantised are copied as they are (`quant/sources.py`).

Exceptions: a stored `lm_head.weight` beside tied embeddings is accepted and not allocated, and
`rotary_emb.inv_freq` (a buffer that old exporters wrote) and GPTQ's biases of zeros are ignored. Experts may
be stored one by one or fused, as `experts.gate_up_proj` [E, 2·width, hidden] and `experts.down_proj`
[E, hidden, width].
"""

import re
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from minillm.checkpoint import FLOATS, Checkpoint
from minillm.checks import some
from minillm.config import ModelConfig
from minillm.errors import InputError
from minillm.progress import Progress
from minillm.quant.sources import Int4Source, PackedSource, is_no_bias, packed_sources
from minillm.quant.weight import PackedWeight

_EXPERT = re.compile(r"(?P<experts>.*\.mlp\.experts)\.(?P<index>\d+)\.(?P<name>gate|up|down)_proj\.weight")


@dataclass(frozen=True)
class Source:
    """Where a parameter comes from: a stored tensor, or a part of a fused one."""

    key: str
    part: tuple[int | slice, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key,)

    def read(self, checkpoint: Checkpoint) -> torch.Tensor:
        """A view into the file."""
        return checkpoint.tensor(self.key)[self.part]

    def check(self, shape: tuple[int, ...], checkpoint: Checkpoint) -> None:
        """Raise InputError for a tensor of another type or shape."""
        stored = checkpoint.tensors[self.key]
        where = f"{checkpoint.folder}: {self.key}"
        if stored.dtype not in FLOATS:
            raise InputError(f"{where} is stored as {stored.dtype}: minillm reads {', '.join(FLOATS)}")
        # On the meta device indexing costs nothing and fails where the fused tensor is too small.
        try:
            part = torch.empty(stored.shape, device="meta")[self.part].shape
        except IndexError:
            part = stored.shape
        if tuple(part) != shape:
            raise InputError(f"{where} has shape {list(stored.shape)}, config.json asks for {list(shape)}")


def fill_from_checkpoint(folder: str | Path, config: ModelConfig) -> Callable:
    """Check the checkpoint against `config` now; return the function that copies it into parameters.

    Raises InputError before any memory is taken: missing, extra or mis-shaped tensors, unknown dtypes.
    """
    with Checkpoint(folder) as checkpoint:
        sources = match(config, checkpoint)

    def fill(parameters: Iterable[tuple[str, torch.Tensor | PackedWeight]]) -> None:
        def put(name: str, parameter: torch.Tensor | PackedWeight) -> None:
            stored = sources[name].read(checkpoint)
            (parameter.copy_ if isinstance(stored, torch.Tensor) else parameter.store)(stored)

        with Checkpoint(folder) as checkpoint, Progress("loading", len(sources), "tensor") as progress:
            put_each(parameters, put, progress.advance)

    return fill


def put_each(
    parameters: Iterable[tuple[str, torch.Tensor | PackedWeight]], put: Callable, advance: Callable
) -> None:
    """`put(name, parameter)` for each, and `advance()`, here, once it is done; after an exception no more.

    Mapped files reach a GPU slowly: a thread does that, and the processor fills host memory meanwhile. Each
    tensor is read in its turn, since unpacked ones in a queue would be a second copy of the model.
    """
    beside, named = ThreadPoolExecutor(1), list(parameters)
    try:
        far = deque(beside.submit(put, *each) for each in named if not each[1].is_cpu)
        near = [each for each in named if each[1].is_cpu]
        for each in near:
            put(*each)
            advance()
            while far and far[0].done():
                far.popleft().result()
                advance()
        while far:
            far.popleft().result()
            advance()
    finally:  # waits for the one that has begun, which reads the files
        beside.shutdown(cancel_futures=True)


def match(config: ModelConfig, checkpoint: Checkpoint) -> dict[str, Source | PackedSource | Int4Source]:
    """Each parameter's source; InputError names what is missing, left over or of another shape."""
    shapes = config.parameter_shapes()
    sources = {name: find(name, shape, checkpoint) for name, shape in shapes.items()}
    sources |= packed_sources(config, checkpoint)
    used = {key: None for source in sources.values() for key in source.keys}
    missing = [key for key in used if key not in checkpoint.tensors]
    if missing:
        raise InputError(f"{checkpoint.folder}: {some(missing)} missing; the checkpoint is of another model")
    extra = [key for key in checkpoint.tensors if key not in used and not may_be_left(key, config)]
    extra = [key for key in extra if not is_no_bias(key, config, checkpoint)]
    if extra:
        raise InputError(
            f"{checkpoint.folder}: {some(extra)} unknown to {config.model_type}; wrong config.json?"
        )
    for name, source in sources.items():
        source.check(shapes[name], checkpoint)
    return sources


def find(name: str, shape: tuple[int, ...], checkpoint: Checkpoint) -> Source:
    """The tensor of that name, there or not, or the rows of a fused expert tensor."""
    expert = _EXPERT.fullmatch(name)
    if name in checkpoint.tensors or not expert:
        return Source(name)
    index, width = int(expert["index"]), shape[0]
    rows = {"gate": slice(0, width), "up": slice(width, 2 * width), "down": slice(None)}[expert["name"]]
    key = f"{expert['experts']}.{'down_proj' if expert['name'] == 'down' else 'gate_up_proj'}"
    return Source(key, (index, rows)) if key in checkpoint.tensors else Source(name)


def may_be_left(key: str, config: ModelConfig) -> bool:
    """Whether a stored tensor may stay unused."""
    return key.endswith("rotary_emb.inv_freq") or (key == "lm_head.weight" and config.tie_word_embeddings)
