"""How often `tiny-draft` guesses the token that `tiny` writes, and what that is worth a pass.

    python -m experiments.acceptance      # data/results/acceptance__<machine>.json

`tiny` answers prompts of its domain greedily in float32. The draft reads prompt and answer in one pass; a
token is accepted where the draft's best one is the same. Tokens a pass follow from these rows: a pass checks
k drafted tokens, keeps those before the first wrong one, and adds one of its own.
"""

import argparse
import sys

import torch

from experiments.prompt_files import read_lines
from experiments.results import FOLDER, Results, check, report
from minillm import LLM, SamplingParams

TARGET, DRAFT = "tiny", "tiny-draft"
ANSWER_TOKENS = 96
GOAL = 0.6  # accepted of all tokens
LENGTHS = (2, 4)  # drafted tokens a pass


def main(arguments: list[str] | None = None) -> int:
    """Measure every prompt; exit status 1 if too few tokens are accepted."""
    options = read_options(arguments)
    settings = {"target": TARGET, "draft": DRAFT, "prompts": options.prompts, "tokens": options.tokens}
    results = Results("acceptance", options.machine, options.out, settings, options.resume)
    torch.set_num_threads(1)
    with (
        LLM(TARGET, device="cpu", dtype="float32") as target,
        LLM(DRAFT, device="cpu", dtype="float32") as draft,
    ):
        for line in read_lines("prompts_tiny.jsonl")[: options.prompts]:
            key = f"{line['category']}/{line['question_id']:02d}"
            results.row(key, lambda line=line: measure(target, draft, line["turns"][0], options.tokens))
    checks = figures(results.rows())
    return report(results.finish(checks), checks)


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.acceptance")
    parser.add_argument("--prompts", type=int, help="of data/prompts_tiny.jsonl; default: all")
    parser.add_argument("--tokens", type=int, default=ANSWER_TOKENS, help="of an answer at most")
    parser.add_argument("--machine", help="name in the file name; default: cpu and its cores")
    parser.add_argument("--out", default=FOLDER, help="folder of the result; default: data/results")
    parser.add_argument("--resume", help="folder with the .partial.json of a run cut short; default: --out")
    return parser.parse_args(arguments)


def measure(target: LLM, draft: LLM, text: str, tokens: int) -> dict:
    """The row of one prompt: for each token of the target's answer, 1 if the draft has it too, else 0."""
    (out,) = target.generate(text, SamplingParams(max_tokens=tokens))
    prompt, answer = out.prompt_token_ids, out.token_ids
    guesses = draft.logits(prompt + answer[:-1])[len(prompt) - 1 :].argmax(-1)
    accepted = [int(guess == token) for guess, token in zip(guesses.tolist(), answer, strict=True)]
    return {
        "prompt_tokens": len(prompt),
        "tokens": len(answer),
        "accepted": sum(accepted),
        "each": accepted,
    }


# ---- figures ----


def figures(rows: list[dict]) -> list[dict]:
    """Accepted of all tokens, by category, and tokens a pass for each draft length."""
    categories = list(dict.fromkeys(row["key"].split("/")[0] for row in rows))
    checks = [check("acceptance: tokens", sum(row["tokens"] for row in rows))]
    checks.append(check("acceptance: share of tokens", share(rows), GOAL))
    for category in categories:
        part = [row for row in rows if row["key"].startswith(f"{category}/")]
        checks.append(check(f"acceptance: share of tokens, {category}", share(part)))
    return checks + [
        check(f"acceptance: tokens a pass, {length} drafted", tokens_a_pass(rows, length))
        for length in LENGTHS
    ]


def share(rows: list[dict]) -> float:
    """Accepted of all tokens."""
    return sum(row["accepted"] for row in rows) / sum(row["tokens"] for row in rows)


def tokens_a_pass(rows: list[dict], length: int) -> float | None:
    """Tokens after the first over the target's passes for them; None where no answer has a second token."""
    tokens = sum(row["tokens"] - 1 for row in rows)
    return tokens / sum(passes(row["each"], length) for row in rows) if tokens else None


def passes(accepted: list[int], length: int) -> int:
    """Passes that write an answer when each checks `length` drafted tokens; the prompt's gives the first."""
    at, count = 1, 0
    while at < len(accepted):
        drafted = [*accepted[at : at + length], 0]
        at += drafted.index(0) + 1
        count += 1
    return count


if __name__ == "__main__":
    sys.exit(main())
