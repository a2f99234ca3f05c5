"""Addition and subtraction of two numbers of at most two digits, as raw text and in chat."""

import hashlib

from training.sample import END_OF_TEXT, Sample, Turn, ask

HELD_OUT_SHARE = 0.08

CHAT_FORMS = {
    "+": ("What is {a} + {b}?", "{a} + {b} = ?", "Add {a} and {b}.", "What is {a} plus {b}?"),
    "-": ("What is {a} - {b}?", "{a} - {b} = ?", "Subtract {b} from {a}.", "What is {a} minus {b}?"),
}


def is_held_out(a, b):
    """Whether the pair of operands, in either order and for both operations, is kept from training."""
    digest = hashlib.sha256(pair_key(a, b).encode()).digest()
    return int.from_bytes(digest[:4], "big") < HELD_OUT_SHARE * 2**32


def train(rng):
    """A problem whose operand pair is not held out; operands 0 to 99."""
    while True:
        a, b = rng.randrange(100), rng.randrange(100)
        if not is_held_out(a, b):
            return problem(rng, a, b)


def held_out(rng):
    """A problem of two two-digit operands whose pair never occurs in training."""
    while True:
        a, b = rng.randrange(10, 100), rng.randrange(10, 100)
        if is_held_out(a, b):
            return problem(rng, a, b)


def problem(rng, a, b):
    """`a` and `b` in one of the forms, raw or chat, with the answer as digits."""
    sign = rng.choice("+-")
    result = str(a + b if sign == "+" else a - b)
    keys = (pair_key(a, b),)
    if rng.random() < 0.5:
        turn = Turn(f"Q: {a} {sign} {b} = ?\nA:", f" {result}")
        return Sample("arithmetic", keys, (turn,), END_OF_TEXT)
    return Sample("arithmetic", keys, (Turn(ask(rng.choice(CHAT_FORMS[sign]).format(a=a, b=b)), result),))


def pair_key(a, b):
    """The name of an unordered operand pair, the same for every form and operation."""
    return f"{min(a, b)},{max(a, b)}"
