"""Tokens a second from bandwidth alone: the arithmetic that comes before any engine.

One new token reads every weight that takes part once; the slowest memory on the way sets the pace.
An upper bound: no time for computing, launching, the KV cache or the first token.
"""

from dataclasses import dataclass
from math import prod

from minillm.config import ModelConfig
from minillm.hardware import Hardware
from minillm.units import GIB

# Left free on a GPU for the KV cache, workspace and the desktop.
GPU_RESERVE_BYTES = 1 * GIB
# Left free in main memory for the system and the program.
HOST_RESERVE_BYTES = 4 * GIB


@dataclass(frozen=True)
class Estimate:
    """Where a model runs on a machine and the tokens a second that bandwidth allows (None: does not fit)."""

    placement: str  # "GPU", "GPU + link", "CPU" or "does not fit"
    tokens_per_s: float | None
    resident_layers: int = 0


def weight_bytes(config: ModelConfig, bits: int = 16) -> int:
    """Bytes of all stored parameters at `bits` each; scales of quantised formats are not counted."""
    return sum(prod(shape) for shape in config.parameter_shapes().values()) * bits // 8


def layer_bytes_read(config: ModelConfig, bits: int = 16) -> int:
    """Bytes of all decoder layers that one token reads: of the experts only those it is routed to."""
    return _layer_elements(config, active_only=True) * bits // 8


def bytes_per_token(config: ModelConfig, bits: int = 16) -> int:
    """Bytes read for one new token: the layers and the head; of the embedding one row, so nothing."""
    return layer_bytes_read(config, bits) + config.vocab_size * config.hidden_size * bits // 8


def estimate(config: ModelConfig, machine: Hardware, bits: int = 16) -> Estimate:
    """The best placement on `machine`: on the GPU if it fits; else the faster of streaming the layers
    that do not fit over the link, and the CPU alone."""
    choices = [_gpu(config, machine, bits), _cpu(config, machine, bits)]
    return max(choices, key=lambda choice: choice.tokens_per_s or 0.0)


def _gpu(config: ModelConfig, machine: Hardware, bits: int) -> Estimate:
    nothing = Estimate("does not fit", None)
    if machine.gpu_memory_bytes is None or machine.gpu_gb_s is None or machine.link_gb_s is None:
        return nothing
    layers = config.num_hidden_layers
    in_layers = _layer_elements(config) * bits // 8
    free = machine.gpu_memory_bytes - GPU_RESERVE_BYTES - (weight_bytes(config, bits) - in_layers)
    fitting = min(layers, free * layers // in_layers)
    if fitting == layers:
        return Estimate("GPU", machine.gpu_gb_s * 1e9 / bytes_per_token(config, bits), layers)
    if fitting < 1 or not _fits_host(config, machine, bits):
        return nothing
    resident = fitting - 1  # one layer's room is the slot that the others pass through
    streamed = layer_bytes_read(config, bits) * (layers - resident) / layers
    seconds = max(streamed / machine.link_gb_s, bytes_per_token(config, bits) / machine.gpu_gb_s) / 1e9
    return Estimate("GPU + link", 1 / seconds, resident)


def _cpu(config: ModelConfig, machine: Hardware, bits: int) -> Estimate:
    if not _fits_host(config, machine, bits):
        return Estimate("does not fit", None)
    return Estimate("CPU", machine.host_gb_s * 1e9 / bytes_per_token(config, bits))


def _fits_host(config: ModelConfig, machine: Hardware, bits: int) -> bool:
    return weight_bytes(config, bits) <= machine.host_memory_bytes - HOST_RESERVE_BYTES


def _layer_elements(config: ModelConfig, active_only: bool = False) -> int:
    total = 0
    for name, shape in config.parameter_shapes().items():
        if not name.startswith("model.layers."):
            continue
        size = prod(shape)
        if active_only and ".mlp.experts." in name:
            # Experts are of one size, so the routed share of each stands for the routed ones.
            size = size * config.num_experts_per_tok / config.num_experts
        total += size
    return round(total)
