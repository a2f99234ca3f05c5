"""Whether a model runs by fused kernels and graphs, or eagerly, one operation after the other."""

import sys
from collections.abc import Callable
from itertools import product

import torch

from minillm.accelerators import Accelerator
from minillm.config import ModelConfig
from minillm.device import let_go
from minillm.errors import InputError, RunError
from minillm.geometry import ALIGNMENT, PARTS, block_shapes
from minillm.model import Qwen3
from minillm.quant import codec
from minillm.quant.layout import STACKED

ENFORCED = "enforce_eager"  # the reason that was asked for
KINDS = ("int8", "int4", "fp8")  # of formats that have kernels


def eager_because(accelerator: Accelerator, config: ModelConfig, dtype: torch.dtype) -> str | None:
    """Why not by fused kernels; None: by them."""
    if reason := accelerator.eager_because(dtype):
        return reason
    heads = (config.num_attention_heads, config.num_key_value_heads)
    rows = [count * config.head_dim for count in heads] + [config.intermediate_size]
    if config.attention_bias or config.mlp_bias:
        return "fused kernels know no biases"
    if not config.qk_norm:
        return "fused kernels know no attention without QK-norm"
    if config.quantize is not None and (reason := _formats_refused(config)):
        return reason
    if any(row * config.hidden_size * dtype.itemsize % ALIGNMENT for row in rows):
        return "projections do not lie side by side in memory"
    return None


def _formats_refused(config: ModelConfig) -> str | None:
    """Why not with these quantised matrices: an unknown format, or several in one stack of projections."""
    for index, part in product(range(config.num_hidden_layers), PARTS):
        formats = config.formats(index, part)
        if odd := sorted(each.name for each in formats.values() if not each.name.startswith(KINDS)):
            return f"fused kernels do not know the format {odd[0]}"
        for stack in STACKED:
            names = [name for name in block_shapes(config, index, part) if name.split(".")[-2] in stack]
            if len({formats.get(name) for name in names}) > 1:
                return "projections of one input are in different formats"
    return None


def scratch_bytes(accelerator: Accelerator, config: ModelConfig, dtype: torch.dtype) -> int:
    """Device memory that expanding quantised matrices takes: by a kernel, four bits need the piece alone."""
    if config.quantize is None:
        return 0
    blocks = product(range(config.num_hidden_layers), PARTS)
    names = {format.name for block in blocks for format in config.formats(*block).values()}
    by_kernel = all(name.startswith("int4") for name in names)
    if by_kernel and eager_because(accelerator, config, dtype) is None:
        return codec.scratch_bytes(accelerator.device, pieces_held=1)
    return codec.scratch_bytes(accelerator.device)


def graphed(accelerator: Accelerator, config: ModelConfig, dtype: torch.dtype) -> bool:
    """Whether a step of decoding can be a graph: a router's choice of experts is read by the host."""
    experts = any(config.is_moe_layer(index) for index in range(config.num_hidden_layers))
    return eager_because(accelerator, config, dtype) is None and not experts


def fuse(model: Qwen3, accelerator: Accelerator, dtype: torch.dtype) -> None:
    """Give the model its fused blocks, if it can have them; before its layers get a store."""
    if eager_because(accelerator, model.config, dtype) is None:
        from minillm import fused  # imports Triton

        fused.fuse(model)


def describe(accelerator: Accelerator, config: ModelConfig, dtype: torch.dtype) -> str:
    """How the model computes, in a few words."""
    if reason := eager_because(accelerator, config, dtype):
        return f"operation by operation ({reason})"
    return "fused kernels" + (", a decode step is one graph" if graphed(accelerator, config, dtype) else "")


def say_why_not(accelerator: Accelerator, config: ModelConfig, dtype: torch.dtype) -> None:
    """A note on stderr where a GPU could compute faster than it will."""
    reason = eager_because(accelerator, config, dtype)
    if accelerator.device.type == "cuda" and reason not in (None, ENFORCED):
        print(f"note: this model will be computed operation by operation: {reason}", file=sys.stderr)


def or_eagerly(load: Callable[[bool], None], device: torch.device, enforce_eager: bool) -> None:
    """`load(enforce_eager)`, and where kernels cannot be compiled on the user's machine `load(True)`."""
    before = sys.exception()
    try:
        load(enforce_eager)
    except (InputError, RunError):
        raise
    except Exception as error:
        if enforce_eager or device.type != "cuda":
            raise
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        print(f"note: fused kernels do not work here ({why}): continuing without them", file=sys.stderr)
        let_go(error, before)  # its frames hold the first model
        load(True)
