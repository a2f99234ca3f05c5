"""What the experiments of layer offloading are asked: model, device, the cap on its memory, where results go.

On a GPU they run Qwen3-8B's geometry with random weights; without one the shipped `tiny` on the emulated
device, whose slow link makes the same things happen in seconds. Goals are about a GPU only.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from math import inf
from pathlib import Path

import torch

from experiments.prompt_files import read_lines
from experiments.requests import SHARED
from experiments.results import FOLDER, Results
from minillm import ModelConfig, block_times, device
from minillm.accelerators.pick import pick
from minillm.block_times import BlockTimes
from minillm.checks import number, whole
from minillm.errors import InputError, RunError
from minillm.model_source import find_model
from minillm.options import MOST_GIB, check_dtype, check_link
from minillm.units import GIB

CAP_GIB = 7.2  # what a card of 8 GB leaves
PATIENCE_S = 0.5  # of timing each kind of block
DEFAULTS = {
    "cuda": {"model": "random:Qwen3-8B", "dtype": "auto", "link_gb_s": None, "cap_gib": CAP_GIB},
    "cpu": {"model": "tiny", "dtype": "float32", "link_gb_s": 0.5, "cap_gib": None},
}
# Where there are any.
COUNTS = ("prompts", "few", "new_tokens", "prompt_tokens", "lengths", "tokens", "kv_tokens")
PROMPTS = ("prompts", "few")  # of the shared ones
BUDGETS = ("budget", "budgets", "lifted")  # in layers

# ---- options ----


def parser(name: str, description: str, model: str = "random:Qwen3-8B") -> argparse.ArgumentParser:
    """A command line with the options that all have; `complete` fills in what depends on the device."""
    made = argparse.ArgumentParser(prog=f"python -m experiments.{name}", description=description)
    made.add_argument("--device", choices=DEFAULTS, help="cpu: emulated; default: cuda if there is one")
    made.add_argument("--model", help=f"default: {model}, on the emulated device tiny")
    made.add_argument("--dtype", help="default: as stored, on the emulated device float32")
    made.add_argument("--link-gb-s", type=float, help="speed of the emulated link, GB/s; default: 0.5")
    made.add_argument("--cap-gib", type=float, help=f"GPU memory that may be used, GiB; default: {CAP_GIB}")
    made.add_argument("--no-goals", action="store_true", help="report figures, judge none")
    made.add_argument("--machine", help="name in the file name; default: the GPU's, or cpu and its cores")
    made.add_argument("--out", default=FOLDER, help="folder of the result; default: data/results")
    made.add_argument("--resume", help="folder with an earlier part or a .partial.json; default: --out")
    return made


def complete(options: argparse.Namespace, defaults: dict[str, dict]) -> argparse.Namespace:
    """Fill in what was not given, from defaults by device: those that all have, and a command's own.

    InputError for what no run could come of, before anything is measured.
    """
    options.device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    for name, value in (DEFAULTS[options.device] | defaults[options.device]).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    options.judged = options.device == "cuda" and not options.no_goals
    _check(options)
    return options


def _check(options: argparse.Namespace) -> None:
    given = vars(options)
    for name in set(COUNTS) & set(given):
        for value in _several(given[name]):
            whole(_flag(name), value, 1, SHARED if name in PROMPTS else inf)
    check_dtype(options.dtype)
    check_link(options.link_gb_s)
    if options.cap_gib is not None:
        number("--cap-gib", options.cap_gib, 0, MOST_GIB, above=True)
    budgets = [(name, value) for name in set(BUDGETS) & set(given) for value in _several(given[name])]
    layers = config_of(options)[0].num_hidden_layers if budgets else 0
    for name, value in budgets:
        whole(f"{_flag(name)} for {options.model}", value, 1, layers)
    check_folder(options.out)


def _several(value: int | list[int] | None) -> list[int]:
    return [] if value is None else value if isinstance(value, list) else [value]


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def check_folder(out: str | Path) -> None:
    """Make it, and a file in it."""
    try:
        Path(out).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"--out is {out}: no file can be made there ({why}), name another folder") from None


def settings(options: argparse.Namespace, *names: str) -> dict:
    """What rows depend on: the shared options and those that are named."""
    return {name: getattr(options, name) for name in ("device", *DEFAULTS["cpu"], *names)}


def short(model: str) -> str:
    """A model's name in keys: without "random:"."""
    return model.removeprefix("random:")


def on(options: argparse.Namespace, model: str) -> argparse.Namespace:
    """The same options for another model."""
    return argparse.Namespace(**{**vars(options), "model": model})


def config_of(options: argparse.Namespace) -> tuple[ModelConfig, torch.dtype]:
    """Geometry and dtype, without loading."""
    config = find_model(options.model, config_only=True).config
    return config, getattr(torch, config.dtype if options.dtype == "auto" else options.dtype)


def joined_prompt(config: ModelConfig, tokens: int) -> list[int]:
    """The first token ids of all shared prompts in a row, over and over; smaller vocabularies wrap them."""
    ids = [each for line in read_lines("prompts.jsonl") for each in line["token_ids"]]
    return [each % config.vocab_size for each in (ids * (tokens // len(ids) + 1))[:tokens]]


def progress(line: str) -> None:
    """To stderr, at once: on a far machine it is all that shows that something happens."""
    print(line, file=sys.stderr, flush=True)


def run(main: Callable[[], int]) -> int:
    """The exit status of a command; what does not work here is one line, what is cut short can go on."""
    try:
        return main()
    except (InputError, RunError) as error:
        progress(f"error: {error}")
        return 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt:
        progress("cut short: the same command continues after the last whole row")
        return 130


# ---- the device ----


def blocks(results: Results, options: argparse.Namespace, key: str = "blocks") -> BlockTimes:
    """Block costs of this very command, as a row: a continued one may have met another link."""
    number = len(results.content["earlier_runs"])
    key = f"{key}/{number}" if number else key
    row = results.row(key, lambda: blocks_row(options))
    progress(f"{key}: link {row['link_gb_s']:.1f} GB/s")
    return BlockTimes(**{name: row[name] for name in BlockTimes.__dataclass_fields__})


def limit_memory(device: str, gib: float | None) -> None:
    """Let PyTorch take at most `gib` of the GPU (None: all of it); its fraction is of the card's total."""
    if device == "cuda":
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, gib * GIB / total) if gib else 1.0)


def link_gb_s(results: Results, times: BlockTimes) -> float:
    """The faster of this command's two measurements of the link, which gives the stricter limits."""
    return max(times.link_gb_s, results.description.get("ceilings", {}).get("link_gb_s") or 0.0)


def blocks_row(options: argparse.Namespace) -> dict:
    """Block costs of decoding, as a row."""
    return asdict(measure_blocks(options))


def measure_blocks(options: argparse.Namespace, tokens: int = 1) -> BlockTimes:
    """What copies and blocks cost here, before anything is loaded; on a device of its own."""
    where = {"offload": "prefetch", "gpu_layer_budget": 1, "gpu_memory_gib": None}
    accelerator = pick(device.pick(options.device), **where, link_gb_s=options.link_gb_s)
    try:
        config, dtype = config_of(options)
        more = {"patience_s": PATIENCE_S, "context": 128}
        if tokens == 1:  # caches of long prompts are large
            more["layers"] = config.num_hidden_layers
        return block_times.measure(config, dtype, accelerator, tokens=tokens, **more)
    finally:
        accelerator.close()
