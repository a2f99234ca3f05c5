"""Where a loaded model lies and how much memory that takes, as text."""

from minillm import memory
from minillm.budget import Decision
from minillm.config import ModelConfig
from minillm.schedule import Placement
from minillm.units import gib


def report(
    config: ModelConfig, dtype_bytes: int, max_model_len: int, device: str, decision: Decision, pinned: int
) -> str:
    """One line a fact; sizes are exact except the workspace. `pinned`: locked bytes of host memory."""
    plan = memory.plan(config, dtype_bytes, max_model_len)
    streams = decision.mode != "none"
    lines = (
        *_layers(plan, device, decision, pinned),
        f"{'head and norm' if streams and plan.head else 'embedding, head and norm'} on {device}: "
        + gib(plan.weights - plan.layers - (plan.embedding if streams and plan.head else 0)),
        f"KV cache: {gib(plan.kv_per_token)} a token, {gib(plan.kv)} for a context of {max_model_len}",
        f"workspace of the longest prefill: about {gib(plan.workspace)}",
        f"predicted peak on {device}: {gib(decision.device_bytes)}",
    )
    return "\n".join(lines)


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


def _layers(plan: memory.MemoryPlan, device: str, decision: Decision, pinned: int) -> list[str]:
    sizes = [a + m for a, m in zip(plan.attention_blocks, plan.mlp_blocks, strict=True)]
    placement = decision.placement
    resident = sum(sizes[index] for index in placement.resident)
    lines = [f"{len(placement.resident)} of {len(sizes)} layers resident on {device}: {gib(resident)}"]
    if placement.streamed:
        streamed = [sizes[index] for index in placement.streamed]
        lines += [
            f"{len(streamed)} layers streamed ({decision.mode}): {gib(sum(streamed))} copied for each token",
            f"{_slots(placement)} of a layer on {device}: {gib(placement.slots * max(streamed))}",
            f"host memory: {gib(plan.layers + (plan.embedding if plan.head else 0))}, locked {gib(pinned)}",
        ]
    return lines
