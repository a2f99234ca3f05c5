"""Decoding by graphs: a step is captured once and replayed for each token.

A step is some two hundred kernels, and asking for one takes a host longer than a fast GPU takes to run it. A
graph is asked for as a whole. It reads and writes the same memory in every replay: the KV cache stays where
it is from run to run, and tokens and positions come and go through buffers of its own.
"""

import torch

from minillm.accelerators import Accelerator
from minillm.cache import KVCache, Pass
from minillm.model import Qwen3

# Logits [B, vocab]; the largest of each row and its token, [2, B] float32.
Chosen = tuple[torch.Tensor, torch.Tensor]


class DecodeGraphs:
    """KV memory that stays, and a step for each number of sequences that decode in it together."""

    def __init__(self, model: Qwen3, dtype: torch.dtype, accelerator: Accelerator, tokens: int):
        """`tokens`: that a single sequence gets room for, if it does not need more."""
        self.model, self.dtype, self.accelerator, self.tokens = model, dtype, accelerator, tokens
        self.replays = 0
        self.memory: KVCache | None = None
        self.steps: dict[int, DecodeStep] = {}

    @property
    def num_bytes(self) -> int:
        """Of the memory that is kept."""
        return 0 if self.memory is None else self.memory.keys.nbytes + self.memory.values.nbytes

    def cache(self, batch: int, capacity: int) -> KVCache:
        """An empty cache in the memory that is kept; where that is too small, in new memory."""
        if self.memory is None or self.memory.batch < batch or self.memory.capacity < capacity:
            self.forget()
            room = max(capacity, self.tokens) if batch == 1 else capacity
            device = self.accelerator.device
            self.memory = KVCache.allocate(self.model.config, batch, room, self.dtype, device)
        self.memory.lengths.zero_()
        return self.memory.rows(0, batch)

    def run(self, newest: list[int], cache: KVCache) -> Chosen:
        """Feed one token to each sequence of `cache`, the first ones of the memory that is kept."""
        count = len(newest)
        # Fewer widths than numbers of sequences, so that fewer steps are captured; nobody reads spare rows.
        width = min(1 << (count - 1).bit_length(), self.memory.batch)
        if width not in self.steps:
            self.steps[width] = DecodeStep(self.model, self.memory.rows(0, width), self.accelerator)
        step = self.steps[width]
        logits, chosen = step.run(newest, cache.lengths)
        cache.lengths += 1
        self.replays += step.replayed
        self.model.tokens_fed += count
        return logits[:count], chosen[:, :count]

    def forget(self) -> None:
        """Drop graphs and memory: weights are about to move, or somebody else wants the memory."""
        self.steps.clear()
        self.memory = None


class DecodeStep:
    """One token for each of B sequences: eagerly the first time, to prepare the kernels, then by a graph."""

    def __init__(self, model: Qwen3, cache: KVCache, accelerator: Accelerator):
        self.model, self.accelerator = model, accelerator
        self.graph, self.runs = None, 0
        B, device = cache.batch, accelerator.device
        self.staged = torch.zeros(2, B, 1, dtype=torch.int64, device="cpu", pin_memory=accelerator.pins)
        self.inputs = torch.zeros(2, B, 1, dtype=torch.int64, device=device)  # tokens and their positions
        self.cache = cache
        cache.enter(Pass(self.inputs[1], tokens=slice(0, 1)))
        self.table = model.model.embed_tokens.weight
        self.rows = None  # embeddings of the tokens, where the table is in host memory
        if self.table.device != self.inputs.device:
            self.rows = torch.zeros(B, 1, self.table.shape[1], dtype=self.table.dtype, pin_memory=True)

    @property
    def replayed(self) -> bool:
        """Whether the latest run was a replay."""
        return self.runs > 1

    def run(self, newest: list[int], positions: torch.Tensor) -> Chosen:
        """`newest` tokens at `positions`, of the first sequences; of the others at position 0."""
        # A replay reads these when it gets to it: the caller has waited for the one before.
        self.staged.zero_()
        for row, numbers in enumerate((torch.tensor(newest), positions)):
            self.staged[row, : len(newest), 0] = numbers
        if self.rows is not None:
            torch.index_select(self.table, 0, self.staged[0, :, 0], out=self.rows.view(len(self.rows), -1))
        self.runs += 1
        if not self.replayed:
            self.compute()
        else:
            self.graph = self.graph or self.accelerator.capture(self.captured)
            self.model.model.layers.replay(self.graph)
        return self.logits, self.chosen

    def captured(self) -> None:
        with self.model.model.layers.capturing():
            self.compute()

    def compute(self) -> None:
        """From `staged` to `logits` and `chosen`; everything the host does here happens once a capture."""
        decoder = self.model.model
        self.inputs.copy_(self.staged, non_blocking=True)
        if self.rows is None:
            hidden = decoder.embed(self.inputs[0])
        else:
            hidden = self.rows.to(self.inputs.device, non_blocking=True)
        hidden = decoder.through_layers(hidden, self.cache, self.model.rope)
        self.logits = self.model.head(hidden[:, -1])
        best, token_ids = self.logits.max(-1)
        # In one transfer: float32 holds every token id exactly.
        self.chosen = torch.stack((best.float(), token_ids.float()))
