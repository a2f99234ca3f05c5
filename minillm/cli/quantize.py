"""`quantize`: write a model in fewer bits to a new folder and print the folder."""

import argparse
from dataclasses import replace
from pathlib import Path

from minillm.cli.options import given
from minillm.cli.parser import QUANTIZE_OPTIONS
from minillm.cli.terminal import write
from minillm.errors import InputError
from minillm.model_source import find_model
from minillm.quant.mix import Mix, quantised


def run(args: argparse.Namespace) -> int:
    """Quantise a model; returns the exit status."""
    options = {"device": "auto", "dtype": "auto", "seed": 0} | given(args, QUANTIZE_OPTIONS)
    if "quantize" not in options:
        raise InputError("quantize needs --quantize FORMAT: see minillm quantize --help")
    Mix.parse(options["quantize"])
    from minillm import device
    from minillm.options import check_seed
    from minillm.quant.saving import check_folder, save

    check_seed(options["seed"])
    folder, made_on = Path(args.out), device.pick(options["device"])
    check_folder(folder)
    source = find_model(args.model)
    config = quantised(source.config, options["quantize"])
    if options["dtype"] != "auto":
        config = replace(config, dtype=options["dtype"])
    fill = source.filler(options["seed"], made_on)
    try:
        save(source, config, folder, fill, made_on)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("nothing was kept") from None
    write(f"{folder}\n")
    return 0
