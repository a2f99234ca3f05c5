"""Predicted speed of decoding: a schedule timed with two bandwidths and nothing fitted. No torch.

Decoding reads every weight that takes part once, so a block takes its bytes over the bandwidth of where it
lies: the link while it is copied, the device's memory while it is computed.
"""

from dataclasses import dataclass
from math import prod

from minillm.config import ModelConfig
from minillm.geometry import PARTS, block_shapes
from minillm.memory import block_bytes
from minillm.schedule import HEAD, Block, Placement, naive, prefetch
from minillm.simulate import simulate
from minillm.units import GB


@dataclass(frozen=True)
class Rates:
    """Bandwidths in 10⁹ bytes a second."""

    link_gb_s: float  # host memory to device memory
    device_gb_s: float  # device memory, read


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
    config: ModelConfig, dtype_bytes: int, mode: str, placement: Placement, rates: Rates
) -> Prediction:
    """`mode` "none", "naive" or "prefetch"; what streams and through how many slots says `placement`."""
    layers, streamed = range(placement.layers), placement.streamed
    read = {Block(i, part): _read(config, i, part, dtype_bytes) for i in layers for part in PARTS}
    read[Block(placement.layers, HEAD)] = (config.vocab_size + 1) * config.hidden_size * dtype_bytes
    copied = {Block(i, part): block_bytes(config, i, part, dtype_bytes) for i in streamed for part in PARTS}
    schedule = (naive if mode == "naive" else prefetch)(placement)
    timeline = simulate(
        schedule,
        copy_s=lambda block: copied[block] / (rates.link_gb_s * GB),
        compute_s=lambda block, _: read[block] / (rates.device_gb_s * GB),
    )
    return Prediction(timeline.seconds_a_pass, sum(copied.values()), sum(read.values()))


def _read(config: ModelConfig, index: int, part: str, dtype_bytes: int) -> int:
    """Bytes of a block that one token reads: of the experts only those it is routed to."""
    total = 0.0
    for name, shape in block_shapes(config, index, part).items():
        share = config.num_experts_per_tok / config.num_experts if ".experts." in name else 1.0
        total += prod(shape) * dtype_bytes * share
    return round(total)
