"""Decoding by graphs: a step is captured once and replayed for each token.

The KV cache stays where it is from run to run, since a graph reads and writes the same memory every time. And
where a step can feed itself, the next one is asked for before the host has seen what this one chose: else the
device would rest while the host looks.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from minillm import memory
from minillm.accelerators import Accelerator
from minillm.cache import KVCache, Pass
from minillm.graph_step import Chosen, GraphStep
from minillm.model import Qwen3
from minillm.prompt_graph import PromptGraphs, with_room


class DecodeGraphs:
    """KV memory that stays, and a step for each number of sequences that decode in it together."""

    def __init__(self, model: Qwen3, dtype: torch.dtype, accelerator: Accelerator, tokens: int):
        """`tokens`: that a single sequence gets room for, if it does not need more."""
        self.model, self.dtype, self.accelerator, self.tokens = model, dtype, accelerator, tokens
        self.replays = 0
        self.memory: KVCache | None = None
        self.lent: KVCache | None = None  # rows of it, to a run that has not ended
        self.steps: dict[int, GraphStep] = {}
        # Of steps that were asked for: by replay or not, the logits, and a wait for what was chosen.
        self.asked: deque[tuple[bool, torch.Tensor, Callable[[], torch.Tensor]]] = deque()
        self.prompts = PromptGraphs(model, accelerator)

    @property
    def num_bytes(self) -> int:
        """Of the memory that is kept and free to be used."""
        if self.memory is None or self.lent is not None:
            return 0
        return self.memory.keys.nbytes + self.memory.values.nbytes

    @contextmanager
    def lend(self, batch: int, capacity: int) -> Iterator[KVCache]:
        """An empty cache of at least `capacity` tokens: in the memory that is kept, or else in new memory.

        To one run at a time, the latest: one that is held up between two tokens, perhaps for good, keeps what
        it was lent and goes on without graphs.
        """
        if self.lent is not None:
            self.forget()
        self.lent = cache = self._cache(batch, capacity)
        try:
            yield cache
        finally:
            if self.lent is cache:
                self.drop()
                self.lent = None

    @torch.inference_mode()
    def _cache(self, batch: int, capacity: int) -> KVCache:
        capacity = with_room(capacity)
        if self.memory is None or self.memory.batch < batch or self.memory.capacity < capacity:
            self.forget()
            room = self._room(capacity) if batch == 1 else capacity
            device = self.accelerator.device
            self.memory = KVCache.allocate(self.model.config, batch, room, self.dtype, device)
        self.memory.lengths.zero_()
        return self.memory.rows(0, batch)

    def _room(self, capacity: int) -> int:
        """Tokens for a single sequence: what is needed where memory is too low for what may come later."""
        needed = memory.kv_bytes_per_token(self.model.config, self.dtype.itemsize) * self.tokens
        free = self.accelerator.free_bytes()
        return max(capacity, self.tokens) if free is None or needed <= free else capacity

    def holds(self, cache: KVCache) -> bool:
        """Whether `cache` begins with the first sequence of the memory that is kept, where graphs look."""
        return self.memory is not None and cache.keys.data_ptr() == self.memory.keys.data_ptr()

    def run(self, newest: list[int], cache: KVCache, going_on: bool = False) -> Chosen:
        """Feed one token to each sequence of `cache`, which the memory `holds`.

        What was chosen comes to the host. `going_on`: each sequence will take that, and one token more; so
        the next step is asked for now, and its logits are not there for anybody.
        """
        count = len(newest)
        # Fewer widths than numbers of sequences, so that fewer steps are captured; nobody reads spare rows.
        width = min(1 << (count - 1).bit_length(), self.memory.batch)
        if width not in self.steps:
            self.steps[width] = self._step(self.memory.rows(0, width))
        step = self.steps[width]
        if not self.asked:
            places = [[n] for n in cache.lengths.tolist()]
            self._ask(step, *step.run([[token] for token in newest], places, step.runs > 0))
        if going_on and step.feeds_itself and not self.model.model.layers.streaming:
            self._ask(step, *step.go())
        replayed, logits, chosen = self.asked.popleft()
        chosen = chosen()
        cache.lengths += 1
        self.replays += replayed
        self.model.tokens_fed += count
        return logits[:count], chosen[:, :count]

    def _ask(self, step: GraphStep, logits: torch.Tensor, chosen: torch.Tensor) -> None:
        self.asked.append((step.replayed, logits, self.accelerator.read(chosen)))

    def drop(self) -> None:
        """Let go of a step that was asked for too early: what it wrote lies beyond every sequence's end."""
        while self.asked:
            _, _, chosen = self.asked.pop()
            chosen()  # it has to be over: the numbers for another one go where it reads its own

    def _step(self, cache: KVCache) -> GraphStep:
        step = GraphStep(self.model, cache, 1, self.accelerator)
        cache.enter(Pass(step.positions, tokens=slice(0, 1)))
        return step

    def prefill(self, token_ids: list[int], cache: KVCache) -> Chosen | None:
        """Feed a prompt to the one sequence of an empty `cache`; None where its length has no graph."""
        return self.prompts.run(token_ids, cache, self.holds(cache))

    def forget(self) -> None:
        """Drop graphs and memory: weights are about to move, or somebody else wants the memory."""
        self.drop()
        self.steps.clear()
        self.prompts.steps.clear()
        self.memory = self.lent = None
