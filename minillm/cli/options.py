"""The options that are keywords of the API, in one table; a test holds it equal to their signatures.

An option that is not given is not passed on, so the API's defaults hold; those here are for `--help`.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minillm.config import DTYPES
from minillm.options import OFFLOAD_MODES


@dataclass(frozen=True)
class Option:
    """One keyword of `LLM` or `SamplingParams` as an option of the command line."""

    keyword: str
    default: Any
    help: str
    kind: Callable[[str], Any] = str
    choices: tuple[str, ...] | None = None
    metavar: str | None = None
    flag: str = ""  # only where it is not the keyword with hyphens
    action: str = "store"

    @property
    def name(self) -> str:
        return self.flag or f"--{self.keyword.replace('_', '-')}"


def whole(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def positive(text: str) -> int:
    """A whole number from 1."""
    if (value := whole(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is too small: it must be at least 1")
    return value


def wholes(text: str) -> list[int]:
    """`1,2` as a list of numbers from 1."""
    return [positive(part) for part in text.split(",")]


def modes(text: str) -> list[str]:
    """`naive,prefetch` as a list."""
    found = text.split(",")
    if odd := [mode for mode in found if mode not in ("naive", "prefetch")]:
        raise argparse.ArgumentTypeError(f"{odd[0]!r} is no way to stream: naive and prefetch are")
    return found


def number(text: str) -> float:
    """A number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def token_ids(text: str) -> list[int]:
    """`1,2` as a list of ids."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of token ids like 1,2") from None


DTYPE_HELP = "of weights and arithmetic (auto: as stored, but float32 for a packed GGUF file on a CPU)"
QUANTIZE_HELP = (
    "format of the layers' matrices: int8, int4 (groups of 128, each with a scale and a middle), int4-sym "
    "(groups of 64, a scale each), fp8, none; or a mix by part and layers, joined by commas: "
    "attn=FORMAT, mlp=FORMAT, layers.A-B=FORMAT, layers.A-B.mlp=FORMAT, as in int4,layers.0-3=int8. "
    "On a CPU int8 saves memory and, in bfloat16, time; int4 and fp8 save memory alone and take longer "
    "than 16 bits"
)

LLM_OPTIONS = (
    Option("device", "auto", "where to compute: auto, cpu or cuda"),
    Option("dtype", "auto", DTYPE_HELP, choices=("auto", *DTYPES)),
    Option("offload", "auto", "how layers reach the GPU", choices=OFFLOAD_MODES),
    Option("gpu_layer_budget", None, "most layers on the GPU at any time", kind=whole, metavar="N"),
    Option("slots", None, "layer slots that streaming uses: 1 or 2", kind=whole, metavar="N"),
    Option("gpu_memory_gib", None, "most GPU memory to use, in GiB", kind=number, metavar="GIB"),
    Option("quantize", None, QUANTIZE_HELP, metavar="FORMAT"),
    Option(
        "max_model_len",
        None,
        "most tokens that a request stores: all but the last new one",
        kind=whole,
        metavar="N",
    ),
    Option("link_gb_s", None, "speed of the emulated link, in GB/s", kind=number, metavar="GB_S"),
    Option("seed", 0, "of random weights, and of sampling", kind=whole, metavar="N"),
    Option("enforce_eager", False, "on a GPU: no fused kernels, no CUDA graphs", action="store_true"),
)

SAMPLING_OPTIONS = (
    Option("max_tokens", 256, "most new tokens", kind=whole, metavar="N", flag="--max-new-tokens"),
    Option("temperature", 0.0, "0 is greedy; higher is more varied", kind=number, metavar="T"),
    Option("top_k", 0, "sample from the K most likely tokens; 0: all", kind=whole, metavar="K"),
    Option("top_p", 1.0, "sample from the smallest set of this probability", kind=number, metavar="P"),
    Option("min_p", 0.0, "drop tokens below this share of the likeliest one", kind=number, metavar="P"),
    Option("repetition_penalty", 1.0, "above 1 avoids tokens seen before", kind=number, metavar="X"),
    Option("stop", (), "end before this text; can be given again", action="append", metavar="TEXT"),
    Option("stop_token_ids", (), "end at any of these, for example 1,2", kind=token_ids, metavar="IDS"),
    Option("ignore_eos", False, "go on past the end token", action="store_true"),
)


def add_options(parser: argparse.ArgumentParser, title: str, options: tuple[Option, ...]) -> None:
    """Add a group of options to `parser`."""
    group = parser.add_argument_group(title)
    for option in options:
        extra = {"action": option.action, "dest": option.keyword, "default": argparse.SUPPRESS}
        if option.action != "store_true":
            metavar = option.metavar or option.keyword.upper()
            extra |= {"type": option.kind, "choices": option.choices, "metavar": metavar}
        group.add_argument(option.name, help=_with_default(option), **extra)


def _with_default(option: Option) -> str:
    choices = f": {', '.join(option.choices)}" if option.choices else ""
    unset = option.default is None or option.default is False or option.default == ()
    return option.help + choices + ("" if unset else f" (default {option.default})")


def given(args: argparse.Namespace, options: tuple[Option, ...]) -> dict[str, Any]:
    """The keywords of `options` that were given on the command line, with their values."""
    return {o.keyword: getattr(args, o.keyword) for o in options if hasattr(args, o.keyword)}


def llm_keywords(args: argparse.Namespace) -> dict[str, Any]:
    """Keywords for `LLM`."""
    return given(args, LLM_OPTIONS)


def sampling_keywords(args: argparse.Namespace) -> dict[str, Any]:
    """Keywords for `SamplingParams`; `--seed` is LLM's, from which each request gets a seed of its own."""
    return given(args, SAMPLING_OPTIONS)
