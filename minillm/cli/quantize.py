"""`quantize`: write a model in fewer bits to a new folder and print the folder."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from minillm import checks
from minillm.cli.options import given
from minillm.cli.parser import QUANTIZE_OPTIONS
from minillm.cli.terminal import write
from minillm.config import ModelConfig
from minillm.errors import InputError
from minillm.model_source import ModelSource, find_model
from minillm.options import MOST_GIB
from minillm.quant.mix import Mix, quantised, with_mix

USAGE = "see minillm quantize --help"


def run(args: argparse.Namespace) -> int:
    """Quantise a model; returns the exit status."""
    options = {"device": "auto", "dtype": "auto", "seed": 0} | given(args, QUANTIZE_OPTIONS)
    _check_usage(args, options)
    try:
        return _run(args, options)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("nothing was kept") from None


def _run(args: argparse.Namespace, options: dict[str, Any]) -> int:
    from minillm import device
    from minillm.options import check_seed
    from minillm.quant.saving import check_folder, save

    check_seed(options["seed"])
    made_on = device.pick(options["device"])
    if args.out is not None:
        check_folder(Path(args.out))
    source = find_model(args.model)
    dtype = source.config.dtype if options["dtype"] == "auto" else options["dtype"]
    config = replace(source.config, dtype=dtype)
    config = (
        quantised(config, options["quantize"])
        if "quantize" in options
        else _fitted(args, source, config, options)
    )
    if args.dry_run:
        return 0
    save(source, config, Path(args.out), source.filler(options["seed"], made_on), made_on)
    write(f"{Path(args.out)}\n")
    return 0


def _check_usage(args: argparse.Namespace, options: dict[str, Any]) -> None:
    """Raise InputError for options that do not go together, before anything is looked for."""
    if args.out is None and not args.dry_run:
        raise InputError(f"the following arguments are required: OUT: {USAGE}")
    budget, by_hand = args.budget_gib is not None, "quantize" in options
    if budget and by_hand:
        raise InputError("--quantize and --budget-gib both choose the formats: give one of them")
    if not budget and not by_hand:
        raise InputError(f"quantize needs --quantize FORMAT or --budget-gib GIB: {USAGE}")
    asked = (args.dry_run or None, args.calibration, args.calibration_prompts)
    names = ("--dry-run", "--calibration", "--calibration-prompts")
    for name in (name for name, value in zip(names, asked, strict=True) if value is not None and by_hand):
        raise InputError(f"{name} belongs to --budget-gib: leave it out, or give a budget for --quantize")
    if by_hand:
        Mix.parse(options["quantize"])
    else:
        checks.number("--budget-gib", args.budget_gib, 0, MOST_GIB, above=True)


def _fitted(
    args: argparse.Namespace, source: ModelSource, config: ModelConfig, options: dict[str, Any]
) -> ModelConfig:
    """The model in the mix that its measured damages say; prints the mix."""
    from minillm.cli import calibration
    from minillm.quant.fit import Sizes
    from minillm.quant.saving import check_source

    if config.quantize is not None:
        raise InputError(
            f"--budget-gib is {args.budget_gib:g}, but the model is stored as {config.quantize} already: "
            "give the model that it was made of"
        )
    check_source(source)
    prompts = calibration.read(args.calibration, args.calibration_prompts)
    sizes = Sizes.of(config)
    sizes.check(args.budget_gib)
    return with_mix(config, _measured(args, options, sizes, prompts))


def _measured(args: argparse.Namespace, options: dict[str, Any], sizes, prompts: list) -> str:
    """The chosen mix; the model that is measured is loaded and closed here."""
    from minillm.cli import calibration
    from minillm.cli.fit_table import table
    from minillm.llm import LLM
    from minillm.progress import Progress
    from minillm.quant.fit import fit, measurements
    from minillm.quant.sensitivity import Probe

    loading = {key: options[key] for key in ("device", "dtype", "seed")}
    with LLM(args.model, offload="none", **loading) as llm:
        token_ids = calibration.encode(prompts, llm)
        with Progress("measuring", measurements(sizes), "block") as progress:
            found = fit(Probe(llm, token_ids), sizes, args.budget_gib, progress.advance)
    where = f"{len(token_ids)} prompts of {sum(map(len, token_ids))} tokens"
    write(table(found, where))
    return str(found.mix)
