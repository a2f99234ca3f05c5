"""Training batches: samples encoded, weighted, packed into rows by worker processes in a fixed order.

Each worker has its own queue and the reader takes from them in turn, so that the same seed gives the same
batches in the same order however fast the workers are.
"""

import multiprocessing
import os

import numpy as np
from tokenizers import Tokenizer

from training.sample import END_OF_TEXT
from training.skills import training_random, training_sample

# Weights are hundredths. Given text is long and teaches little; a story's words are a matter of chance.
PROMPT_WEIGHT = 5
ANSWER_WEIGHTS = {"stories": 30}
ANSWER_WEIGHT = 100

TRIES = 8
QUEUED = 6


class Packer:
    """Endless rows of `length` tokens; a sample that does not fit goes into the next row."""

    def __init__(self, tokenizer, length, rng):
        self.tokenizer = tokenizer
        self.length = length
        self.rng = rng
        self.waiting = None
        self.separator = tokenizer.token_to_id(END_OF_TEXT)

    def batch(self, rows):
        """(tokens uint16, weights uint8), both [rows, length]; a weight is its token's as a target."""
        pairs = [self.row() for _ in range(rows)]
        return np.stack([tokens for tokens, _ in pairs]), np.stack([weights for _, weights in pairs])

    def row(self):
        """One row: samples, each closed by the end-of-text token, then padding of weight 0."""
        tokens = np.full(self.length, self.separator, dtype=np.uint16)
        weights = np.zeros(self.length, dtype=np.uint8)
        at = 0
        while (sample := self._next(self.length - at)) is not None:
            ids, values = sample
            tokens[at : at + len(ids)] = ids
            weights[at : at + len(ids)] = values
            at += len(ids)
        return tokens, weights

    def _next(self, room):
        """The next encoded sample of at most `room` tokens, or None to end the row."""
        if self.waiting is not None and len(self.waiting[0]) <= room:
            sample, self.waiting = self.waiting, None
            return sample
        for _ in range(TRIES):
            sample = encode(self.tokenizer, training_sample(self.rng))
            if len(sample[0]) <= room:
                return sample
            if self.waiting is None and len(sample[0]) <= self.length:
                self.waiting = sample
        return None


def encode(tokenizer, sample):
    """(ids, weights) of a sample as lists; its parts are encoded apart, as prompt and answer are in use."""
    parts = list(sample.segments())
    encodings = tokenizer.encode_batch([text for text, _ in parts], add_special_tokens=False)
    answer_weight = ANSWER_WEIGHTS.get(sample.skill, ANSWER_WEIGHT)
    ids, weights = [], []
    for (_, is_answer), encoding in zip(parts, encodings, strict=True):
        ids += encoding.ids
        weights += [answer_weight if is_answer else PROMPT_WEIGHT] * len(encoding.ids)
    separator = tokenizer.token_to_id(END_OF_TEXT)
    if ids[-1] != separator:
        ids.append(separator)
        weights.append(0)
    return ids, weights


class Batches:
    """An endless iterator of batches from `workers` processes; a context manager that ends them."""

    def __init__(self, tokenizer_file, rows, length, workers, seed):
        context = multiprocessing.get_context("spawn")
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        self.queues = [context.Queue(QUEUED) for _ in range(workers)]
        self.processes = [
            context.Process(
                target=_work, args=(queue, str(tokenizer_file), rows, length, seed, stream), daemon=True
            )
            for stream, queue in enumerate(self.queues)
        ]

    def __enter__(self):
        for process in self.processes:
            process.start()
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.terminate()

    def __iter__(self):
        while True:
            for queue in self.queues:
                yield queue.get(timeout=120)


def _work(queue, tokenizer_file, rows, length, seed, stream):
    packer = Packer(Tokenizer.from_file(tokenizer_file), length, training_random(seed, stream))
    while True:
        queue.put(packer.batch(rows))
