"""The keywords of `LLM`, checked before anything is loaded."""

import math
from typing import Any

from minillm import checks
from minillm.config import DTYPES
from minillm.errors import InputError
from minillm.quant.mix import Mix
from minillm.sampling_params import MAX_SEED

OFFLOAD_MODES = ("auto", "none", "naive", "prefetch")
LEAST_LINK_GB_S = 1e-6  # a kilobyte a second: times of much slower copies are beyond what a clock counts
MOST_GIB = 1e6  # of memory: beyond any machine, and still a number of bytes


def check_options(options: dict[str, Any]) -> None:
    """Raise InputError for a value outside its range or a feature that this version does not have."""
    check_dtype(options["dtype"])
    if options["quantize"] is not None:
        Mix.parse(options["quantize"])
    if options["max_model_len"] is not None:
        checks.whole("max_model_len", options["max_model_len"], 1, math.inf)
    check_link(options["link_gb_s"])
    _one_of("enforce_eager", options["enforce_eager"], (True, False))
    check_seed(options["seed"])
    check_placement(options)


def check_seed(seed: Any) -> None:
    """Raise InputError for one that is no number of 64 bits."""
    checks.whole("seed", seed, 0, MAX_SEED)


def check_link(link_gb_s: Any) -> None:
    """Raise InputError for a speed with which copies over the emulated link never end; None: no limit."""
    if link_gb_s is not None:
        checks.number("link_gb_s", link_gb_s, LEAST_LINK_GB_S)


def check_dtype(dtype: Any) -> None:
    """Raise InputError for one that is neither "auto" nor the name of one."""
    _one_of("dtype", dtype, ("auto", *DTYPES))


def check_placement(options: dict[str, Any]) -> None:
    """The same for those that say where layers lie."""
    _one_of("offload", options["offload"], OFFLOAD_MODES)
    for name, most in (("gpu_layer_budget", math.inf), ("slots", 2)):
        if options[name] is not None:
            checks.whole(name, options[name], 1, most)
    if options["gpu_memory_gib"] is not None:
        checks.number("gpu_memory_gib", options["gpu_memory_gib"], 0, MOST_GIB, above=True)


def _one_of(name: str, value: Any, allowed: tuple) -> None:
    # By type as well: 1 is no answer to yes or no, and an array compares to an array.
    if not any(isinstance(value, type(each)) and value == each for each in allowed):
        raise InputError(f"{name} is {checks.shown(value)}: it must be one of {', '.join(map(str, allowed))}")
