"""A model small enough for paper, whose step is recorded once and replayed: right, and in several wrong ways.

The toy model: tokens are digits, and the next one is the sum of all tokens so far, modulo 10.
"""

from collections.abc import Sequence

import torch

ROOM = 8  # tokens that the toy's cache holds


class Recorder:
    """Keeps every order together with the memory that it reads and writes."""

    def __init__(self):
        self.orders = []

    def ask(self, operation, *inputs, out):
        operation(*inputs, out=out)
        self.orders.append((operation, inputs, out))

    def replay(self):
        for operation, inputs, out in self.orders:
            operation(*inputs, out=out)


class BrokenStep:
    """The toy's step as a graph: the first call records it, later ones replay. It has two faults."""

    def __init__(self):
        self.places = torch.arange(ROOM)
        self.token, self.position, self.total, self.next = torch.zeros(4, 1, dtype=torch.int64)
        self.cache, self.kept = torch.zeros(2, ROOM, dtype=torch.int64)
        self.here, self.seen = torch.zeros(2, ROOM, dtype=torch.bool)
        self.graph = None

    def compute(self, ask):
        last = int(self.position)
        ask(torch.eq, self.places, self.position, out=self.here)
        ask(torch.where, self.here, self.token, self.cache, out=self.cache)
        ask(torch.le, self.places, last, out=self.seen)
        ask(torch.mul, self.cache, self.seen, out=self.kept)
        ask(torch.sum, self.kept, 0, True, out=self.total)
        ask(torch.remainder, self.total, 10, out=self.next)

    def run(self, token, position):
        self.token = torch.tensor([token])
        self.position.fill_(position)
        if self.graph is None:
            self.graph = Recorder()
            self.compute(self.graph.ask)
        else:
            self.graph.replay()
        return int(self.next)


class Step(BrokenStep):
    """The repaired step; each keyword of `step` brings one fault in."""

    host_end = host_slot = other_token = other_position = anew = everything = False

    def compute(self, ask):
        position = int(self.position) if self.host_slot else self.position
        end = int(self.position) if self.host_end else self.position
        ask(torch.eq, self.places, position, out=self.here)
        ask(torch.where, self.here, self.token, self.cache, out=self.cache)
        ask(torch.le, self.places, ROOM if self.everything else end, out=self.seen)
        ask(torch.mul, self.cache, self.seen, out=self.kept)
        ask(torch.sum, self.kept, 0, True, out=self.total)
        ask(torch.remainder, self.total, 10, out=self.next)

    def run(self, token, position):
        for name, number in (("token", token), ("position", position)):
            if getattr(self, f"other_{name}"):
                setattr(self, name, torch.tensor([number]))
            else:
                getattr(self, name).fill_(number)
        if self.graph is None or self.anew:
            self.graph = Recorder()
            self.compute(self.graph.ask)
        else:
            self.graph.replay()
        return int(self.next)


def step(**faults: bool) -> type[Step]:
    """A step with some faults."""
    return type("Step", (Step,), faults)


def try_step(step_class: type[BrokenStep], prompts: Sequence[Sequence[int]], new: int) -> str:
    """A sentence: what one step object wrote after each prompt, and how often it gave its orders."""
    texts, asked = written(step_class, prompts, new)
    after = " and ".join("".join(map(str, prompt)) for prompt in prompts)
    return f"After {after} it wrote {' and '.join(texts)}, and gave its orders {asked} times one by one."


def written(step_class: type[BrokenStep], prompts: Sequence[Sequence[int]], new: int) -> tuple:
    """The prompts with `new` tokens each, all by one step object, and how often `compute` was called."""
    asked = []

    class Watched(step_class):
        def compute(self, ask):
            asked.append(1)
            super().compute(ask)

    step, texts = Watched(), []
    for prompt in prompts:
        tokens = list(prompt)
        for position in range(len(prompt) + new - 1):
            following = int(step.run(tokens[position], position))
            if position >= len(prompt) - 1:
                tokens.append(following)
        texts.append("".join(map(str, tokens)))
    return texts, len(asked)
