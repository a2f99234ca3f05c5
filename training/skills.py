"""The skills by name: seeded training samples, and held-out prompts that training never sees.

The two draw from disjoint ranges of seeds, and a training sample that shares a content key with any held-out
prompt is thrown away, so the split holds even where a skill has few different texts.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from training import arithmetic, extraction, recall, smalltalk, stories, tools

SKILLS = ("arithmetic", "recall", "json", "tools")
OPEN_SKILLS = ("stories", "chat")

HELD_OUT_COUNT = 600
TRAINING_SEEDS_FROM = 1_000_000


@dataclass(frozen=True)
class Skill:
    """How a skill's samples are drawn, and its share of the training tokens.

    `tokens` is a sample's mean length, measured once; the share is only as exact as it.
    """

    train: Callable
    held_out: Callable
    share: float
    tokens: int


REGISTRY = {
    "arithmetic": Skill(arithmetic.train, arithmetic.held_out, 0.12, 20),
    "recall": Skill(recall.train, recall.held_out, 0.35, 800),
    "json": Skill(extraction.extract, extraction.extract, 0.13, 75),
    "tools": Skill(tools.call, tools.held_out, 0.20, 290),
    "stories": Skill(stories.tell, stories.tell, 0.12, 110),
    "chat": Skill(smalltalk.converse, smalltalk.held_out, 0.08, 80),
}


def held_out(skill, count):
    """The first `count` held-out samples of `skill`, each with `.prompt` and `.answer`; always the same ones.

    Raises ValueError for an unknown skill or for more samples than are kept out.
    """
    if skill not in REGISTRY:
        raise ValueError(f"no skill {skill!r}; choose from {', '.join(REGISTRY)}")
    if not 0 <= count <= HELD_OUT_COUNT:
        raise ValueError(f"{count} held-out samples asked for, {HELD_OUT_COUNT} are kept; ask for fewer")
    return list(_held_out(skill)[:count])


@lru_cache
def _held_out(skill):
    first_seed = list(REGISTRY).index(skill) * 100_000
    samples = {}
    for seed in range(first_seed, first_seed + 100_000):
        sample = REGISTRY[skill].held_out(random.Random(seed))
        samples.setdefault(sample.prompt, sample)
        if len(samples) == HELD_OUT_COUNT:
            return tuple(samples.values())
    raise ValueError(f"{skill!r} has fewer than {HELD_OUT_COUNT} prompts; lower HELD_OUT_COUNT")


@lru_cache
def held_out_keys(skill):
    """Content keys of all held-out samples of `skill`, as a frozen set."""
    return frozenset(key for sample in _held_out(skill) for key in sample.keys)


def recall_of_length(lines):
    """A held-out recall sample with a list of `lines` lines, always the same one.

    Its seed is no training seed; a list this long (12 or more) does not come up twice by chance.
    """
    return recall.listing(random.Random(TRAINING_SEEDS_FROM - 1 - lines), lines, 1)


def training_sample(rng, skill=None):
    """One sample to train on, of `skill` or of one drawn so that each skill gets its share of the tokens."""
    if skill is None:
        weights = [entry.share / entry.tokens for entry in REGISTRY.values()]
        skill = rng.choices(list(REGISTRY), weights)[0]
    while True:
        sample = REGISTRY[skill].train(rng)
        if held_out_keys(skill).isdisjoint(sample.keys):
            return sample


def training_random(seed, stream=0):
    """Random numbers for one stream of training text; never those that held-out prompts use."""
    if not 0 <= seed < 1_000 or not 0 <= stream < 1_000_000:
        raise ValueError(f"seed {seed} and stream {stream} must lie below 1,000 and 1,000,000")
    return random.Random(TRAINING_SEEDS_FROM * (1 + seed) + stream)
