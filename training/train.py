"""Train one of the shipped models, store it, measure it, write its card.

python -m training.train --model tiny --out data/tiny --seconds 420
"""

import argparse
import json
import shlex
import shutil
import sys
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer

from training import evaluate, presets
from training.card import write_card
from training.experts import AT_ONCE
from training.loop import Limit, train
from training.packing import Batches
from training.sample import END_OF_TEXT, TURN_END
from training.skills import SKILLS
from training.tokenizer import CONTEXT

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(description="Train a shipped model on generated text.")
    parser.add_argument("--model", choices=presets.NAMES, default="tiny")
    parser.add_argument("--out", type=Path, required=True, help="folder for the model and its card")
    parser.add_argument("--tokenizer", type=Path, default=Path("data/tiny"), help="folder with the tokenizer")
    parser.add_argument("--seconds", type=float, help="length of the training, compilation included")
    parser.add_argument("--steps", type=int, help="length of the training in steps instead")
    parser.add_argument("--rows", type=int, default=16, help="rows a batch")
    parser.add_argument("--length", type=int, default=CONTEXT, help="tokens a row")
    parser.add_argument("--lr", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--workers", type=int, default=14, help="processes that write text")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-compile", action="store_true", help="on a GPU: where torch.compile fails")
    parser.add_argument("--prompts", type=int, default=500, help="held-out prompts a skill at the end")
    return parser.parse_args()


def store(model, options, tokenizer):
    """Save `model` rounded to bf16, its configuration and the tokenizer's files."""
    ends = [tokenizer.token_to_id(mark) for mark in (TURN_END, END_OF_TEXT)]
    model.generation_config = presets.generation_config(ends, pad_id=ends[1])
    model.to(torch.bfloat16).save_pretrained(options.out)
    for name in TOKENIZER_FILES:
        if options.out.resolve() != options.tokenizer.resolve():
            shutil.copyfile(options.tokenizer / name, options.out / name)


def watch(model, tokenizer):
    """How well the skills are learned so far, as text."""
    shares = {skill: evaluate.forced_accuracy(model, tokenizer, skill, 32) for skill in SKILLS}
    return "  ".join(f"{skill} {share:.2f}" for skill, share in shares.items())


def describe(options, model, facts, device):
    """What is stored in `training.json`."""
    return {
        "model": options.model,
        "parameters": sum(p.numel() for p in model.parameters()),
        **facts,
        "command": shlex.join(["python", "-m", "training.train", *sys.argv[1:]]),
        "rows": options.rows,
        "length": options.length,
        "device": torch.cuda.get_device_name() if device == "cuda" else "CPU",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def fit(options, tokenizer, device):
    """A trained model and the facts of its training."""
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    limit = Limit(options.seconds, options.steps)
    source = options.tokenizer / "tokenizer.json"
    with Batches(source, options.rows, options.length, options.workers, options.seed) as batches:
        model = presets.build(options.model, tokenizer.token_to_id(TURN_END)).to(device)
        model.config._attn_implementation = "causal_rows"
        model.config._experts_implementation = AT_ONCE
        facts = train(
            model,
            batches,
            limit,
            options.lr,
            device,
            watch=lambda m: watch(m, tokenizer),
            compiled=not options.no_compile,
        )
    return model, describe(options, model, facts, device)


def main():
    """Train, store, evaluate, write the card; the model is stored before it is evaluated."""
    options = parse()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = Tokenizer.from_file(str(options.tokenizer / "tokenizer.json"))
    model, facts = fit(options, tokenizer, device)
    options.out.mkdir(parents=True, exist_ok=True)
    store(model, options, tokenizer)
    (options.out / "training.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(facts), flush=True)
    del model
    # Accuracy is measured in true float32.
    torch.set_float32_matmul_precision("highest")
    result = evaluate.evaluate(options.out, options.prompts, device)
    print(evaluate.table(result), flush=True)
    evaluate.save(result, options.out)
    write_card(options.out)


if __name__ == "__main__":
    main()
