"""The keywords of `LLM`, checked before anything is loaded."""

import math
from typing import Any

from minillm import checks
from minillm.config import DTYPES
from minillm.errors import InputError
from minillm.quant.mix import Mix
from minillm.sampling_params import MAX_SEED

OFFLOAD_MODES = ("auto", "none", "naive", "prefetch")


def check_options(options: dict[str, Any]) -> None:
    """Raise InputError for a value outside its range or a feature that this version does not have."""
    _one_of("dtype", options["dtype"], ("auto", *DTYPES))
    if options["quantize"] is not None:
        Mix.parse(options["quantize"])
    if options["max_model_len"] is not None:
        checks.whole("max_model_len", options["max_model_len"], 1, math.inf)
    if options["link_gb_s"] is not None:
        checks.number("link_gb_s", options["link_gb_s"], 0, above=True)
    _one_of("enforce_eager", options["enforce_eager"], (True, False))
    check_seed(options["seed"])
    check_placement(options)


def check_seed(seed: Any) -> None:
    """Raise InputError for one that is no number of 64 bits."""
    checks.whole("seed", seed, 0, MAX_SEED)


def check_placement(options: dict[str, Any]) -> None:
    """The same for those that say where layers lie."""
    _one_of("offload", options["offload"], OFFLOAD_MODES)
    for name, most in (("gpu_layer_budget", math.inf), ("slots", 2)):
        if options[name] is not None:
            checks.whole(name, options[name], 1, most)
    if options["gpu_memory_gib"] is not None:
        checks.number("gpu_memory_gib", options["gpu_memory_gib"], 0, above=True)


def _one_of(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"{name} is {value!r}: it must be one of {', '.join(allowed)}")
