"""Decoding by graphs: a step is captured once and replayed for each token.

The KV cache stays where it is from run to run, since a graph reads and writes the same memory every time.
"""

import torch

from minillm.accelerators import Accelerator
from minillm.cache import KVCache, Pass
from minillm.graph_step import Chosen, GraphStep
from minillm.model import Qwen3
from minillm.prompt_graph import PromptGraphs


class DecodeGraphs:
    """KV memory that stays, and a step for each number of sequences that decode in it together."""

    def __init__(self, model: Qwen3, dtype: torch.dtype, accelerator: Accelerator, tokens: int):
        """`tokens`: that a single sequence gets room for, if it does not need more."""
        self.model, self.dtype, self.accelerator, self.tokens = model, dtype, accelerator, tokens
        self.replays = 0
        self.memory: KVCache | None = None
        self.steps: dict[int, GraphStep] = {}
        self.prompts = PromptGraphs(model, accelerator)

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
            self.steps[width] = self._step(self.memory.rows(0, width))
        step = self.steps[width]
        positions = cache.lengths.tolist()
        logits, chosen = step.run([[token] for token in newest], [[n] for n in positions], step.runs > 0)
        cache.lengths += 1
        self.replays += step.replayed
        self.model.tokens_fed += count
        return logits[:count], chosen[:, :count]

    def _step(self, cache: KVCache) -> GraphStep:
        step = GraphStep(self.model, cache, 1, self.accelerator)
        cache.enter(Pass(step.positions, tokens=slice(0, 1)))
        return step

    def prefill(self, token_ids: list[int], cache: KVCache) -> Chosen | None:
        """Feed a prompt to the one sequence of an empty `cache`; None where its length has no graph."""
        kept = cache.keys.data_ptr() == self.memory.keys.data_ptr()  # the first sequence, where graphs look
        return self.prompts.run(token_ids, cache, kept)

    def forget(self) -> None:
        """Drop graphs and memory: weights are about to move, or somebody else wants the memory."""
        self.steps.clear()
        self.prompts.steps.clear()
        self.memory = None
