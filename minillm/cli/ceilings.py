"""`ceilings`: what this machine's memories and link can do, and what a model's blocks cost on it."""

import argparse
import json

from minillm.cli.options import given
from minillm.cli.parser import CEILINGS_OPTIONS
from minillm.cli.terminal import write
from minillm.units import gib


def run(args: argparse.Namespace) -> int:
    """Measure; returns the exit status."""
    from minillm import ceilings

    found, names = {"machine": ceilings.measure().as_dict()}, {}
    if args.model:
        found[args.model], emulated = _blocks(args)
        names = {"link_gb_s": "link_gb_s (emulated)"} if emulated else {}
    if args.json:
        write(json.dumps(found) + "\n")
        return 0
    for title, values in found.items():
        called = {} if title == "machine" else names
        lines = (f"  {called.get(name, name):<28}{_shown(name, value)}\n" for name, value in values.items())
        write(f"{title}\n" + "".join(lines))
    return 0


def _blocks(args: argparse.Namespace) -> tuple[dict[str, float], bool]:
    """What was measured, and whether the link is the emulated one of a CPU."""
    import torch

    from minillm import block_times, device
    from minillm.accelerators.pick import pick
    from minillm.model_source import find_model
    from minillm.quant.stored import auto_dtype

    options = given(args, CEILINGS_OPTIONS)
    config = find_model(args.model, config_only=True).config
    asked = options.get("dtype", "auto")
    where = device.pick(options.get("device", "auto"))
    accelerator = pick(where, "prefetch", None, None, options.get("link_gb_s"))
    try:
        found = auto_dtype(config, where.type == "cpu") if asked == "auto" else asked
        dtype = getattr(torch, found)
        times = block_times.measure(config, dtype, accelerator, patience_s=1.0)
        return times.as_dict(), where.type == "cpu"
    finally:
        accelerator.close()


def _shown(name: str, value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or "-"
    if name.endswith("_bytes"):
        return gib(value)
    if name.endswith("_gb_s"):
        return f"{value:,.1f} GB/s"
    return f"{1000 * value:.3f} ms" if name.endswith("_s") else str(value)
