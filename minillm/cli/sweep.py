"""`sweep`: one model, loaded once, measured under several budgets."""

import argparse
import json
from collections.abc import Iterator

from minillm.budget import check_slots
from minillm.cli.bench import memory
from minillm.cli.options import llm_keywords
from minillm.cli.terminal import write
from minillm.errors import InputError
from minillm.options import check_placement
from minillm.schedule import Placement
from minillm.units import short

COLUMNS = (("mode", 9), ("N", 4), ("resident", 9), ("slots", 6), ("tok/s", 8), ("predicted", 10), ("peak", 0))


def run(args: argparse.Namespace) -> int:
    """Measure the model of `args` under each budget and mode; returns the exit status."""
    keywords = llm_keywords(args)
    if given := [name for name in ("offload", "gpu_layer_budget", "gpu_memory_gib") if name in keywords]:
        raise InputError(f"sweep tries budgets itself: give --budgets and --modes, not {', '.join(given)}")
    slots = keywords.pop("slots", None)
    _check_slots(args, slots)
    from minillm import LLM  # after that is known to be good: LLM imports torch
    from minillm.bench import bench, check_lengths

    with LLM(args.model, gpu_layer_budget=1, **keywords) as llm:
        check_lengths(llm, args.prompt_tokens, args.max_new_tokens)
        layers = llm.config.num_hidden_layers
        if not args.json:
            write(_line(*(name for name, _ in COLUMNS)))
        for mode, budget in _choices(args, layers, least=slots or 1):
            llm.place(budget, slots=slots if mode == "prefetch" else None, offload=mode)
            found = bench(llm, args.prompt_tokens, args.max_new_tokens)
            _show(args, mode, budget, llm.decision.placement, found)
    return 0


def _check_slots(args: argparse.Namespace, slots: int | None) -> None:
    """Before anything is loaded: they are for prefetch alone, and count in each of the budgets."""
    mode = "prefetch" if "prefetch" in args.modes else "naive"
    check_placement({"offload": mode, "gpu_layer_budget": None, "slots": slots, "gpu_memory_gib": None})
    check_slots(slots, min(args.budgets) if args.budgets else None, mode)


def _choices(args: argparse.Namespace, layers: int, least: int) -> Iterator[tuple[str, int]]:
    """Modes and budgets to try; once all layers fit, the mode makes no difference and one is enough."""
    budgets = args.budgets or sorted({max(least, round(layers * share / 8)) for share in range(9)})
    for mode in args.modes:
        for budget in budgets:
            if budget < layers or mode == args.modes[0]:
                yield mode, budget


def _show(args: argparse.Namespace, mode: str, budget: int, placement: Placement, found) -> None:
    place = {"budget": budget, "resident": len(placement.resident), "slots": placement.slots}
    if args.json:
        write(json.dumps({"model": args.model, "mode": mode, **place, **found.as_dict()}) + "\n")
        return
    speeds = (
        "-" if each is None else short(each) for each in (found.tokens_per_s, found.predicted_tokens_per_s)
    )
    write(_line(mode, *map(str, place.values()), *speeds, memory(found.peak_memory_bytes)))


def _line(*cells: str) -> str:
    widths = (width for _, width in COLUMNS)
    return "".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip() + "\n"
