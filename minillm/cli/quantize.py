"""`quantize`: write a model in fewer bits to a new folder; prints what it takes and, last, the folder."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from minillm import checks, memory
from minillm.checks import shown
from minillm.cli.options import given
from minillm.cli.parser import QUANTIZE_OPTIONS
from minillm.cli.terminal import write
from minillm.config import DTYPES, ModelConfig
from minillm.errors import InputError
from minillm.model_source import ModelSource, find_model
from minillm.options import MOST_GIB
from minillm.quant.mix import Mix, with_mix
from minillm.units import gib

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
    from minillm.quant.saving import check_folder, check_source, save

    check_seed(options["seed"])
    made_on = device.pick(options["device"])
    if args.out is not None:
        check_folder(Path(args.out))
    source = find_model(args.model)
    dtype = source.config.dtype if options["dtype"] == "auto" else options["dtype"]
    config = replace(source.config, dtype=dtype)
    check_source(source)
    _check_unquantised(args, config, options)
    if "quantize" in options:
        config = with_mix(config, options["quantize"])
    else:
        config = _fitted(args, source, config, options)
    if args.dry_run:
        return 0
    save(source, config, Path(args.out), source.filler(options["seed"], made_on), made_on)
    if "quantize" in options:  # the table of a budget has said it
        write(_sizes(config))
    write(f"{Path(args.out)}\n")
    return 0


def _check_unquantised(args: argparse.Namespace, config: ModelConfig, options: dict[str, Any]) -> None:
    """Raise InputError for a model that is stored quantised: no format fits it, and no budget."""
    if config.quantize is None:
        return
    by_hand = options.get("quantize")
    asked = f"quantize is {shown(by_hand)}" if by_hand else f"--budget-gib is {args.budget_gib:g}"
    raise InputError(
        f"{asked}, but the model is stored as {config.quantize} already: give the model that it was made of"
    )


def _sizes(config: ModelConfig) -> str:
    """Bytes of all weights in the model's dtype, and in these formats."""
    models = replace(config, quantize=None), config
    before, after = (gib(memory.plan(each, DTYPES[config.dtype], 1).weights) for each in models)
    return f"all weights  {before} in {config.dtype}, {after} as {config.quantize}\n"


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
        raise InputError(f"{name} goes with --budget-gib: leave it out, or give that in place of --quantize")
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

    prompts = calibration.read(args.calibration, args.calibration_prompts, source.folder)
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
