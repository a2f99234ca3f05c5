"""Where a loaded model lies and how much memory that takes, as text."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from minillm import memory
from minillm.budget import Decision, slot_bytes
from minillm.config import ModelConfig
from minillm.geometry import PARTS
from minillm.schedule import Placement
from minillm.units import gib, short

if TYPE_CHECKING:
    from minillm.arena import HostArena


def report(
    config: ModelConfig,
    dtype_bytes: int,
    max_model_len: int,
    decision: Decision,
    *,
    device: str,
    arena: HostArena | None,
    peak: int | None,
    path: str | None,
) -> str:
    """One line a fact; sizes are exact except the workspace. `peak`: bytes, measured in the latest run.

    `path`: how it computes.
    """
    plan = memory.plan(config, dtype_bytes, max_model_len)
    lines = [
        *_layers(plan, device, decision, arena),
        *([f"stored as {stored_as(config, dtype_bytes)}"] if config.quantize else []),
        _outside_the_layers(plan, device, streams=decision.mode != "none"),
        f"KV cache: {gib(plan.kv_per_token)} a token, {gib(plan.kv)} for a context of {max_model_len}",
        f"workspace of the longest prefill: about {gib(plan.workspace)}",
        f"peak on {device}: {gib(decision.device_bytes)} predicted for {decision.tokens} tokens"
        + ("" if peak is None else f", {gib(peak)} in the latest run"),
    ]
    if decision.tokens_per_s is not None:
        lines.append(f"speed: {short(decision.tokens_per_s)} tokens a second predicted")
    if path is not None:
        lines.append(f"computing: {path}")
    return "\n".join(lines)


def _outside_the_layers(plan: memory.MemoryPlan, device: str, streams: bool) -> str:
    outside = plan.weights - plan.layers
    if streams and plan.head:
        return f"head and norm on {device}: {gib(outside - plan.embedding)}"
    return f"embedding, head and norm on {device}: {gib(outside)}"


def stored_as(config: ModelConfig, dtype_bytes: int) -> str:
    """The formats of a quantised model's layers and what they save, in a few words."""
    packed, dense = (
        [
            sum(memory.block_bytes(each, index, part, dtype_bytes) for part in PARTS)
            for index in range(config.num_hidden_layers)
        ]
        for each in (config, replace(config, quantize=None))
    )
    return f"{config.quantize}: {_range(packed)} a layer instead of {_range(dense)}"


def _range(sizes: list[int]) -> str:
    least, most = gib(min(sizes)), gib(max(sizes))
    return most if least == most else f"{least} to {most}"


def describe(decision: Decision) -> str:
    """A placement in a few words."""
    placement, layers = decision.placement, decision.placement.layers
    if not placement.streamed:
        return f"all {layers} layers resident"
    slots = _slots(placement)
    resident, streamed = len(placement.resident), len(placement.streamed)
    return f"{resident} of {layers} layers resident, {streamed} streamed through {slots} ({decision.mode})"


def _slots(placement: Placement) -> str:
    return "1 slot" if placement.slots == 1 else f"{placement.slots} slots"


def _layers(plan: memory.MemoryPlan, device: str, decision: Decision, arena: HostArena | None) -> list[str]:
    sizes = [a + m for a, m in zip(plan.attention_blocks, plan.mlp_blocks, strict=True)]
    placement = decision.placement
    resident = sum(sizes[index] for index in placement.resident)
    lines = [f"{len(placement.resident)} of {len(sizes)} layers resident on {device}: {gib(resident)}"]
    if placement.streamed:
        streamed = [sizes[index] for index in placement.streamed]
        slots = placement.slots * slot_bytes(plan, placement)
        lines += [
            f"{len(streamed)} layers streamed ({decision.mode}): {gib(sum(streamed))} copied for each token",
            f"{_slots(placement)} of a layer on {device}: {gib(slots)}",
            _host(plan, decision, arena),
        ]
    return lines


def _host(plan: memory.MemoryPlan, decision: Decision, arena: HostArena | None) -> str:
    kept = "every layer" if len(decision.host_layers) == decision.placement.layers else "the streamed layers"
    what = f"{kept} and the embedding" if plan.head else kept
    asked, locked = (arena.size, arena.pinned_bytes) if arena else (0, 0)
    return f"host memory, of {what}: {gib(asked)}, " + (f"{gib(locked)} locked" if locked else "not locked")
