"""Recall of one key's value from a list of key-value lines in the prompt."""

import math

from training.sample import Sample, Turn, ask, ask_again
from training.words import KEYS

# A line is 8 tokens of our tokenizer; 248 lines and the question make a prompt of 2,000 tokens.
HELD_OUT_LINES = 248
LONGEST = 400
LINES_A_FOLLOW_UP = 15
MOST_QUESTIONS = 12


def train(rng, longest=LONGEST):
    """A list of 3 to `longest` lines, short ones most often, with several questions about a long one."""
    lines = round(math.exp(rng.uniform(math.log(3), math.log(longest))))
    questions = min(MOST_QUESTIONS, 1 + lines // LINES_A_FOLLOW_UP)
    return listing(rng, lines, questions)


def held_out(rng):
    """One question about a list that fills 2,000 tokens."""
    return listing(rng, HELD_OUT_LINES, 1)


def listing(rng, lines, questions):
    """`lines` different keys with three-digit values and `questions` of them asked for in turn."""
    names = rng.sample([f"{word}{digit}" for word in KEYS for digit in range(10)], lines)
    codes = {name: f"{rng.randrange(1000):03d}" for name in names}
    text = "Codes:\n" + "".join(f"{name}: {code}\n" for name, code in codes.items())
    asked = [rng.choice(names) for _ in range(questions)]
    prompts = [ask(f"{text}Find:\n{asked[0]}")] + [ask_again(f"Find:\n{name}") for name in asked[1:]]
    turns = tuple(Turn(p, f"{name}: {codes[name]}") for p, name in zip(prompts, asked, strict=True))
    return Sample("recall", (text,), turns)
