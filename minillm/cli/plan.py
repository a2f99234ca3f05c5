"""`plan`: what a model consists of and the memory it needs, from its configuration alone."""

import argparse
from itertools import product
from math import prod

from minillm import memory
from minillm.budget import PLANNED_TOKENS, Decision, Request, decide
from minillm.cli.options import given
from minillm.cli.parser import PLACEMENT, PLAN_OPTIONS
from minillm.cli.terminal import write
from minillm.config import DTYPES, ModelConfig
from minillm.errors import InputError
from minillm.geometry import PARTS
from minillm.hardware import PUBLISHED, USABLE, Hardware
from minillm.model_source import find_model
from minillm.options import check_placement
from minillm.predict import Prediction, Rates, blocks, decode, read_bytes
from minillm.quant.formats import Format
from minillm.quant.mix import quantised
from minillm.quant.stored import auto_dtype
from minillm.report import describe, stored_as
from minillm.units import GB, gib, short


def run(args: argparse.Namespace) -> int:
    """Print the plan of a model; returns the exit status."""
    options = given(args, PLAN_OPTIONS)
    config = quantised(find_model(args.model, config_only=True).config, options.get("quantize"))
    dtype, note = _dtype(options.get("dtype", "auto"), config, args.hardware)
    tokens = _context(options.get("max_model_len"), config)
    rows = [("model", f"{args.model}, {dtype}{note}"), *_geometry(config), *_memory(config, dtype, tokens)]
    placement = {name: options[name] for name in PLACEMENT if name in options}
    check_placement(dict.fromkeys(PLACEMENT) | {"offload": "auto"} | placement)
    if args.hardware:
        rows += _on(PUBLISHED[args.hardware], config, DTYPES[dtype], options.get("max_model_len"), placement)
    elif placement:
        raise InputError(f"{', '.join(placement)} without --hardware: name a machine, {', '.join(PUBLISHED)}")
    write("".join(f"{name:<18}{value}\n" for name, value in rows))
    return 0


def _dtype(asked: str, config: ModelConfig, hardware: str | None) -> tuple[str, str]:
    """The dtype to plan for; where no machine is named, also what "auto" is on a CPU if that is another."""
    if asked != "auto":
        return asked, ""
    on_cpu = hardware is not None and PUBLISHED[hardware].gpu_memory_bytes is None
    found, there = auto_dtype(config, on_cpu), auto_dtype(config, on_cpu=True)
    return found, "" if hardware or there == found else f" (on a CPU {there}: --dtype {there} plans that)"


def _context(asked: int | None, config: ModelConfig) -> int:
    limit = config.context_length
    if asked is not None and not 1 <= asked <= limit:
        raise InputError(f"max_model_len is {asked}: it must be from 1 to the model's context of {limit}")
    return asked or limit


def _geometry(config: ModelConfig) -> list[tuple[str, str]]:
    parameters = sum(prod(shape) for shape in config.parameter_shapes().values())
    heads = f"{config.num_attention_heads} query and {config.num_key_value_heads} key/value heads"
    moe = sum(config.is_moe_layer(i) for i in range(config.num_hidden_layers))
    rows = [
        ("layers", f"{config.num_hidden_layers} of width {config.hidden_size}"),
        ("attention", f"{heads} of {config.head_dim}"),
    ]
    if moe < config.num_hidden_layers:
        rows.append(("MLP", f"{config.intermediate_size} wide"))
    if moe:
        each = f"{config.num_experts} of {config.moe_intermediate_size}, {config.num_experts_per_tok} a token"
        rows.append(("experts", f"{each}, in {moe} layers"))
    return [*rows, ("vocabulary", f"{config.vocab_size:,}"), ("parameters", f"{parameters:,}")]


def _memory(config: ModelConfig, dtype: str, tokens: int) -> list[tuple[str, str]]:
    plan = memory.plan(config, DTYPES[dtype], tokens)
    left = memory.available_bytes()
    return [
        ("embedding", gib(plan.embedding)),
        ("one layer", _layers(plan)),
        *([("stored as", stored_as(config, DTYPES[dtype]))] if config.quantize else []),
        ("all layers", gib(plan.layers)),
        ("head", gib(plan.head) if plan.head else "tied: the embedding serves"),
        ("KV cache", f"{plan.kv_per_token:,} bytes a token, {gib(plan.kv)} for {tokens:,} tokens"),
        ("workspace", f"about {gib(plan.workspace)} for a prefill of {tokens:,} tokens"),
        ("needed, resident", gib(plan.total)),
        ("free here", "unknown" if left is None else f"{gib(left)} of main memory"),
    ]


def _on(
    machine: Hardware, config: ModelConfig, dtype_bytes: int, tokens: int | None, placement: dict
) -> list[tuple[str, str]]:
    """Placement, memory and speed on a machine, from its published figures."""
    if machine.gpu_memory_bytes is None:
        if placement:
            raise InputError(f"{machine.name} has nothing to offload from: leave {', '.join(placement)} out")
        return _on_cpu(machine, config, dtype_bytes)
    tokens = tokens or min(config.context_length, PLANNED_TOKENS)
    decision, made = on_card(machine, config, dtype_bytes, tokens, **placement)
    return [
        ("predicted for", f"{machine.name}, {gib(_free(machine))} of it free, {tokens:,} tokens"),
        ("placement", describe(decision)),
        ("GPU memory", gib(decision.device_bytes)),
        ("copied a token", gib(made.copied_bytes)),
        ("speed", f"{short(made.tokens_per_s)} tokens a second at most"),
    ]


def _on_cpu(machine: Hardware, config: ModelConfig, dtype_bytes: int) -> list[tuple[str, str]]:
    read = sum(read_bytes(config, block, dtype_bytes) for block in blocks(config))
    speed = short(machine.host_gb_s * GB / read)
    rows = [("predicted for", machine.name), ("speed", f"{speed} tokens a second at most")]
    if any(format.name != "int8" for format in _formats(config)):
        rows.append(("not reached", "on a CPU they are expanded for each product: slower than 16 bits"))
    return rows


def _formats(config: ModelConfig) -> set[Format]:
    places = product(range(config.num_hidden_layers), PARTS)
    return {format for place in places for format in config.formats(*place).values()}


def on_card(
    machine: Hardware, config: ModelConfig, dtype_bytes: int, tokens: int, **placement
) -> tuple[Decision, Prediction]:
    """Where layers lie on a machine with a GPU, and its speed, from published figures; keywords of `LLM`."""
    there = {"free": _free(machine), "total": machine.gpu_memory_bytes}
    decision = decide(Request(config=config, dtype_bytes=dtype_bytes, tokens=tokens, **there, **placement))
    rates = Rates(machine.link_gb_s, machine.gpu_gb_s)
    return decision, decode(config, dtype_bytes, decision.mode, decision.placement, rates)


def _free(machine: Hardware) -> int:
    return int(machine.gpu_memory_bytes * USABLE)


def _layers(plan: memory.MemoryPlan) -> str:
    """Bytes of each kind of layer that the model has."""
    kinds = sorted(set(zip(plan.attention_blocks, plan.mlp_blocks, strict=True)))
    sizes = (f"{gib(a + m)} (attention {gib(a)}, MLP {gib(m)})" for a, m in kinds)
    return " or ".join(sizes)
