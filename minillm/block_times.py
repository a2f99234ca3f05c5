"""What a block costs here: the engine's own steps, timed on a model of the same geometry before it is loaded.

Bandwidth alone does not say it: launching a block's operations takes the host some time, too, and on a fast
GPU that is the longer one. The weights are made up, and layers share memory wherever a cache could not tell.
"""

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import count, pairwise
from statistics import median

import torch
from torch.nn import Module

from minillm import flat, link_times
from minillm.accelerators import Accelerator
from minillm.config import ModelConfig
from minillm.device import explained_memory_errors
from minillm.engine import Engine
from minillm.fetch_times import fetch_s
from minillm.geometry import PARTS
from minillm.layer import DecoderLayer
from minillm.model import Qwen3
from minillm.rope import Rope
from minillm.sampling_params import SamplingParams
from minillm.schedule import HEAD, Block
from minillm.sequence import Sequence
from minillm.units import GB
from minillm.weights import allocate, blank, shorten_lookups

BEYOND_CACHES = 128 * 2**20  # bytes: what is read after so many others comes from memory
LAYERS = 8  # that are timed together, so that what one costs is told from noise
WARM, STEPS = 2, 64  # decode steps that are not counted, and that are at most


@dataclass(frozen=True)
class BlockTimes:
    """Seconds of each kind of block, and the link's rate in 10⁹ bytes a second."""

    link_gb_s: float
    attention_s: float
    mlp_s: float  # 0 where no layer is dense
    head_s: float  # all of a pass that is in no block: embedding, head, the token on the host
    moe_s: float = 0.0  # 0 without layers of experts
    fetch_s: float = 0.0  # that a layer takes longer which naive offloading fetches, copying not counted

    def as_dict(self) -> dict[str, float]:
        """For JSON."""
        return asdict(self)

    def copy_s(self, num_bytes: int) -> float:
        return num_bytes / (self.link_gb_s * GB)

    def compute_s(self, config: ModelConfig, block: Block, dtype_bytes: int = 0) -> float:
        return {"attention": self.attention_s, "mlp": self.mlp_s, "moe": self.moe_s, HEAD: self.head_s}[
            kind_of(config, block.layer, block.part)
        ]


def measure(
    config: ModelConfig,
    dtype: torch.dtype,
    accelerator: Accelerator,
    tokens: int = 1,
    context: int = 32,
    patience_s: float = 0.02,
    layers: int = LAYERS,
) -> BlockTimes:
    """Time a pass of `tokens` tokens (1: a decode step after `context`; more: a prefill) by kinds of block.

    More `patience_s` for a kind of block, or more `layers` timed together, make the figures steadier. Takes
    device memory for two layers, or some small ones, the head, the table and a cache, and host memory for a
    layer; raises RunError where that does not fit.
    """
    few = _shortened(config, layers)
    with explained_memory_errors(accelerator):
        model = _model(few, dtype, accelerator)
        blocks = list(model.model.layers)
        seconds, counts = {}, {}
        for kind in ("none", "attention", "mlp", "moe", "all"):
            model.model.layers = store = _Only(few, blocks, kind)
            shorten_lookups(model)
            engine = Engine(model, dtype, accelerator)
            if store.count or kind == "none":
                counts[kind] = store.count
                seconds[kind] = (
                    _decode_s(engine, context, patience_s) if tokens == 1 else _prefill_s(engine, tokens)
                )
        link, fetching_s = link_times.link_gb_s(accelerator), 0.0
        if tokens == 1:

            def longer_s() -> float:
                return _decode_s(Engine(model, dtype, accelerator), context, patience_s) - seconds["all"]

            fetching_s = fetch_s(model, blocks, dtype, accelerator, longer_s, link)
        return BlockTimes(link_gb_s=link, fetch_s=fetching_s, **_shares(seconds, counts))


def _shares(seconds: dict[str, float], counts: dict[str, int]) -> dict[str, float]:
    """What a block of each kind costs in a whole pass: apart they show their proportion, together their sum.

    Together they can be quicker: while the device is busy with one, the host asks for the next.
    """
    head_s, whole = seconds.pop("none"), seconds.pop("all")
    apart = {kind: max(0.0, each - head_s) for kind, each in seconds.items()}
    scale = max(0.0, whole - head_s) / max(sum(apart.values()), 1e-9)
    return {"mlp_s": 0.0, "head_s": head_s} | {
        f"{kind}_s": scale * each / counts[kind] for kind, each in apart.items()
    }


def _shortened(config: ModelConfig, layers: int) -> ModelConfig:
    """The first layers, enough to hold each kind of block that there is."""
    moe = [config.is_moe_layer(index) for index in range(config.num_hidden_layers)]
    needed = max(moe.index(kind) + 1 for kind in set(moe))
    return replace(config, num_hidden_layers=min(len(moe), max(layers, needed)))


def kind_of(config: ModelConfig, index: int, part: str) -> str:
    """ "moe" for an MLP of experts, else the part."""
    return "moe" if part == "mlp" and config.is_moe_layer(index) else part


def _model(config: ModelConfig, dtype: torch.dtype, accelerator: Accelerator) -> Qwen3:
    """The geometry with made-up weights, and as few layers in memory as no cache can hold."""
    device, pools = accelerator.device, {}

    def layer(num_bytes: int) -> torch.Tensor:
        pool, turn = pools.setdefault(num_bytes, ([], count()))
        number = next(turn) % max(1, BEYOND_CACHES // num_bytes)
        if number == len(pool):
            pool.append(other(num_bytes))
        return pool[number]

    def other(num_bytes: int) -> torch.Tensor:
        buffer = flat.aligned_buffer(num_bytes, device)
        # As it was found it may hold numbers that are slow to compute with. Zeros are zeros in any format.
        buffer.view(dtype).fill_(0.01 if config.quantize is None else 0.0)
        return buffer

    def table(num_bytes: int) -> torch.Tensor:
        return torch.zeros(num_bytes, dtype=torch.uint8, device="cpu")

    model = blank(config, dtype, accelerator)
    with torch.inference_mode():
        allocate(model, dtype, layers=layer, embed=other if model.lm_head is None else table, rest=other)
    model.rope = Rope(config.rope, config.head_dim, device)
    return model.eval()


class _Only(Module):
    """A store whose blocks of one kind compute; the others let the hidden state through."""

    streaming = False

    def __init__(self, config: ModelConfig, layers: list[DecoderLayer], kind: str):
        super().__init__()
        self.ready = {}
        for index, layer in enumerate(layers):
            for part in PARTS:
                chosen = kind in ("all", kind_of(config, index, part))
                self.ready[index, part] = nullcontext(layer.block(part) if chosen else _through)
        self.count = sum(kind in ("all", kind_of(config, *key)) for key in self.ready)

    def use(self, index: int, part: str) -> AbstractContextManager[Callable]:
        return self.ready[index, part]

    def capturing(self) -> AbstractContextManager:
        return nullcontext()

    def replay(self, graph: Callable[[], None]) -> None:
        graph()


def _through(hidden: torch.Tensor, *_: object) -> torch.Tensor:
    return hidden


def _decode_s(engine: Engine, context: int, patience_s: float) -> float:
    """Median seconds of a decode step, as many as `patience_s` allows, at least one."""
    times, stop = [], math.inf
    for _ in engine.run([_sequence(context, 1 + WARM + STEPS)]):
        now = time.perf_counter()
        times.append(now)
        if len(times) == 1 + WARM:
            stop = now + patience_s
        if now > stop:
            break
    gaps = [b - a for a, b in pairwise(times)]
    return median(gaps[WARM:])


def _prefill_s(engine: Engine, tokens: int) -> float:
    """The better of two prefills after one to warm up."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        for _ in engine.run([_sequence(tokens, 1)]):
            times.append(time.perf_counter() - began)
    return min(times[1:])


def _sequence(tokens: int, new: int) -> Sequence:
    params = SamplingParams(max_tokens=new, ignore_eos=True)
    return Sequence([0] * tokens, params, seed=0, end_ids=frozenset(), max_model_len=tokens + new)
