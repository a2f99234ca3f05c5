"""`ceilings`: what this machine's memories and link can do, and what a model's blocks cost on it."""

import argparse
import json
from typing import TYPE_CHECKING, Any

from minillm.cli.options import given
from minillm.cli.parser import CEILINGS_OPTIONS
from minillm.cli.terminal import write
from minillm.errors import InputError
from minillm.model_source import find_model
from minillm.options import check_link
from minillm.units import gib

if TYPE_CHECKING:
    from minillm.accelerators import Accelerator


def run(args: argparse.Namespace) -> int:
    """Measure; returns the exit status."""
    options = _checked(args)
    from minillm import ceilings

    found, names = {"machine": ceilings.measure().as_dict()}, {}
    if args.model:
        found[args.model], emulated = _blocks(args.model, options)
        names = {"link_gb_s": "link_gb_s (emulated)"} if emulated else {}
    if args.json:
        write(json.dumps(found) + "\n")
        return 0
    for title, values in found.items():
        called = {} if title == "machine" else names
        lines = (f"  {called.get(name, name):<28}{_shown(name, value)}\n" for name, value in values.items())
        write(f"{title}\n" + "".join(lines))
    return 0


def _checked(args: argparse.Namespace) -> dict[str, Any]:
    """The options, before anything is measured; without a model there is nothing that they change."""
    options = given(args, CEILINGS_OPTIONS)
    if options and not args.model:
        raise InputError(f"{', '.join(options)} without a model: name one, or leave it out")
    check_link(options.get("link_gb_s"))
    if args.model:
        find_model(args.model, config_only=True)
        _accelerator(options).close()
    return options


def _accelerator(options: dict[str, Any]) -> "Accelerator":
    from minillm import device
    from minillm.accelerators.pick import pick

    where = device.pick(options.get("device", "auto"))
    return pick(where, "prefetch", None, None, options.get("link_gb_s"))


def _blocks(model: str, options: dict[str, Any]) -> tuple[dict[str, float], bool]:
    """What was measured, and whether the link is the emulated one of a CPU."""
    import torch

    from minillm import block_times
    from minillm.quant.stored import auto_dtype

    config = find_model(model, config_only=True).config
    asked = options.get("dtype", "auto")
    accelerator = _accelerator(options)
    try:
        on_cpu = accelerator.device.type == "cpu"
        dtype = getattr(torch, auto_dtype(config, on_cpu) if asked == "auto" else asked)
        times = block_times.measure(config, dtype, accelerator, patience_s=1.0)
        return times.as_dict(), on_cpu
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
