"""Predicted speed of decoding: a schedule timed with what a machine needs for its steps. No torch.

From published figures alone, two bandwidths (`Rates`): decoding reads every weight that takes part once, so a
block takes its bytes over the bandwidth of where it lies. Or from what was measured (`block_times.py`).
"""

from dataclasses import dataclass
from math import prod
from typing import Protocol

from minillm.config import ModelConfig
from minillm.geometry import PARTS, block_shapes
from minillm.memory import block_bytes
from minillm.schedule import HEAD, Block, Placement, naive, prefetch
from minillm.simulate import Timeline, simulate
from minillm.units import GB


class Machine(Protocol):
    """What one copy and one block cost."""

    fetch_s: float  # seconds that naive offloading adds to a layer's copies: waiting, asking anew

    def copy_s(self, num_bytes: int) -> float:
        """Seconds of a copy over the link."""

    def compute_s(self, config: ModelConfig, block: Block, dtype_bytes: int) -> float:
        """Seconds that the device is busy with a block, or with the head, for one token."""


@dataclass(frozen=True)
class Rates:
    """Bandwidths in 10⁹ bytes a second: a block takes as long as reading its weights."""

    link_gb_s: float  # host memory to device memory
    device_gb_s: float  # device memory, read
    fetch_s: float = 0.0

    def copy_s(self, num_bytes: int) -> float:
        return num_bytes / (self.link_gb_s * GB)

    def compute_s(self, config: ModelConfig, block: Block, dtype_bytes: int) -> float:
        return read_bytes(config, block, dtype_bytes) / (self.device_gb_s * GB)


@dataclass(frozen=True)
class Prediction:
    """Of one token, batch 1, short context."""

    seconds: float
    copied_bytes: int  # over the link
    read_bytes: int  # from device memory

    @property
    def tokens_per_s(self) -> float:
        return 1 / self.seconds


def decode(
    config: ModelConfig, dtype_bytes: int, mode: str, placement: Placement, rates: Machine
) -> Prediction:
    """`mode` "none", "naive" or "prefetch"; what streams and through how many slots says `placement`."""
    seconds = timeline(config, dtype_bytes, mode, placement, rates).seconds_a_pass
    streamed = (Block(index, part) for index in placement.streamed for part in PARTS)
    copied = sum(block_bytes(config, block.layer, block.part, dtype_bytes) for block in streamed)
    return Prediction(seconds, copied, sum(read_bytes(config, each, dtype_bytes) for each in blocks(config)))


def timeline(
    config: ModelConfig, dtype_bytes: int, mode: str, placement: Placement, rates: Machine, passes: int = 4
) -> Timeline:
    """Some passes of one token each, simulated; arguments as of `decode`."""

    def copy_s(block: Block) -> float:
        fetching = rates.fetch_s if mode == "naive" and block.part == PARTS[0] else 0.0
        return fetching + rates.copy_s(block_bytes(config, block.layer, block.part, dtype_bytes))

    costs = {block: rates.compute_s(config, block, dtype_bytes) for block in blocks(config)}
    return simulate(
        (naive if mode == "naive" else prefetch)(placement),
        copy_s=copy_s,
        compute_s=lambda block, _: costs[block],
        passes=passes,
    )


def blocks(config: ModelConfig) -> list[Block]:
    """All that a pass computes, in order, the head last."""
    layers = config.num_hidden_layers
    return [*(Block(index, part) for index in range(layers) for part in PARTS), Block(layers, HEAD)]


def read_bytes(config: ModelConfig, block: Block, dtype_bytes: int) -> int:
    """Weights of a block, or of the head, that one token reads: of the experts only those it is routed to."""
    if block.part == HEAD:
        return (config.vocab_size + 1) * config.hidden_size * dtype_bytes
    total = 0.0
    formats = config.formats(block.layer, block.part)
    for name, shape in block_shapes(config, block.layer, block.part).items():
        share = config.num_experts_per_tok / config.num_experts if ".experts." in name else 1.0
        stored = formats[name].packed_bytes(*shape) if name in formats else prod(shape) * dtype_bytes
        total += stored * share
    return round(total)
