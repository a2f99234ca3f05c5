"""Prefill and decode: requests in, tokens out, one at a time for each request.

Each prompt is prefilled by itself, whatever its neighbours' lengths; then all requests of a group take one
token a step together. When a request ends, the last of its group takes over its cache row, and the step gets
narrower; nothing that waits joins before the group has ended.
"""

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

from minillm import memory
from minillm.accelerators import Accelerator
from minillm.cache import KVCache
from minillm.decode_graph import DecodeGraphs
from minillm.device import explained_memory_errors
from minillm.errors import RunError
from minillm.fast_path import eager_because, graphed
from minillm.graph_step import choose
from minillm.model import Qwen3
from minillm.progress import Progress
from minillm.prompt_graph import with_room
from minillm.sampling_params import SamplingParams
from minillm.schedule import HEAD, Block, Compute
from minillm.sequence import Sequence

MAX_GROUP = 32  # requests decoded together
HEAD_ROWS = 256  # positions a time in `logits`: float32 [256, 151936] is 148 MiB


class Engine:
    """Runs requests through a model; owns no request and no weight."""

    def __init__(self, model: Qwen3, dtype: torch.dtype, accelerator: Accelerator, tokens: int = 0):
        """`tokens`: that a graph's cache has room for from the start, where decoding is by graphs."""
        self.model, self.dtype, self.accelerator = model, dtype, accelerator
        self.during_head = accelerator.during(Compute(Block(model.config.num_hidden_layers, HEAD)))
        self._warned = False
        self.warm_up_s = 0.0  # that compiling and capturing took
        self.graphs: DecodeGraphs | None = None
        if graphed(accelerator, model.config, dtype):
            self.graphs = DecodeGraphs(model, dtype, accelerator, tokens)

    def run(self, sequences: list[Sequence]) -> Iterator[Sequence]:
        """Yield a request each time it got a token, until all have ended."""
        waiting = list(sequences)
        while waiting:
            size = self._group_size(waiting[:MAX_GROUP])
            yield from self._run_group(waiting[:size])
            del waiting[:size]

    def warm_up(self, longest: int) -> None:
        """Compile what there is to compile and capture a step, so that no request waits for it.

        A few tokens, `longest` at most, go through the model; nothing is left of them. Without memory for
        that nothing happens: the first request will tell.
        """
        if eager_because(self.accelerator, self.model.config, self.dtype) is not None or longest < 4:
            return
        params = SamplingParams(max_tokens=3, ignore_eos=True)
        sequence = Sequence([0, 0], params, seed=0, end_ids=frozenset(), max_model_len=longest)
        counted = self.model.tokens_fed, self.graphs and self.graphs.replays
        began = time.perf_counter()
        silently = warnings.catch_warnings(action="ignore")
        with (
            Progress("compiling kernels", params.max_tokens, "pass") as passes,
            silently,
            suppress(RunError),
            explained_memory_errors(self.accelerator),
        ):
            for _ in self.run([sequence]):
                passes.advance()
        self.warm_up_s = time.perf_counter() - began
        self._warned, self.model.tokens_fed = False, counted[0]
        if self.graphs:
            self.graphs.replays = counted[1]

    def forget(self) -> None:
        """Drop what depends on where weights lie."""
        if self.graphs:
            self.graphs.forget()

    @torch.inference_mode()
    def logits(self, token_ids: list[int], out: torch.Tensor) -> None:
        """Write the logits of every position of one prompt into `out` [T, vocab] (CPU, float32)."""
        with self._cache(1, len(token_ids)) as cache:
            hidden = self.model(torch.tensor([token_ids]), cache, [0])[0]
            for part, rows in zip(hidden.split(HEAD_ROWS), out.split(HEAD_ROWS), strict=True):
                rows.copy_(self.model.head(part))

    def _group_size(self, sequences: list[Sequence]) -> int:
        """As many requests as three quarters of the free memory hold caches for; RunError if not one fits.

        Asked beforehand: Linux grants memory that it does not have and kills the process that uses it.
        """
        tokens = max(sequence.capacity for sequence in sequences)
        tokens = with_room(tokens) if self.graphs else tokens
        needed = memory.kv_bytes_per_token(self.model.config, self.dtype.itemsize) * tokens
        free = self.accelerator.free_bytes()
        if free is not None:
            free -= getattr(self.model.model.layers, "passing_bytes", 0)  # a store of offloaded layers has it
            free += self.graphs.num_bytes if self.graphs else 0
        what = f"the KV cache of {tokens} tokens on {self.accelerator.device}"
        memory.check_fits(needed, free, what, "lower max_tokens or shorten the prompt")
        return len(sequences) if free is None else max(1, min(len(sequences), free * 3 // 4 // needed))

    def _run_group(self, group: list[Sequence]) -> Iterator[Sequence]:
        with self._cache(len(group), max(sequence.capacity for sequence in group)) as cache:
            for row, sequence in enumerate(group):
                self._prefill(sequence, cache.rows(row, row + 1))
                yield sequence
            active = drop_ended(list(group), cache)
            while active:
                rows = cache.rows(0, len(active))
                while all(sequence.finish_reason is None for sequence in active):
                    self._step(active, rows)
                    yield from active
                self._drop_step()
                active = drop_ended(active, cache)

    @contextmanager
    def _cache(self, batch: int, capacity: int) -> Iterator[KVCache]:
        """A cache in memory that is counted as the device's."""
        if self.graphs:
            with self.graphs.lend(batch, capacity) as cache:
                yield cache
            return
        num_bytes = memory.kv_bytes_per_token(self.model.config, self.dtype.itemsize) * capacity * batch
        with self.accelerator.holding(num_bytes):
            with torch.inference_mode():
                config, device = self.model.config, self.accelerator.device
                cache = KVCache.allocate(config, batch, capacity, self.dtype, device)
            yield cache

    @torch.inference_mode()
    def _prefill(self, sequence: Sequence, cache: KVCache) -> None:
        found = self.graphs and self.graphs.prefill(sequence.prompt_token_ids, cache)
        if found:
            logits, chosen = found
            self._append([sequence], logits, *chosen)
        else:
            hidden = self.model(torch.tensor([sequence.prompt_token_ids]), cache, [0])
            self._choose([sequence], hidden)

    def _step(self, active: list[Sequence], cache: KVCache) -> None:
        if self._by_graph(cache):
            self._decode_by_graph(active, cache)
        else:
            self._drop_step()  # where somebody has just begun to look on
            self._decode(active, cache)

    def _drop_step(self) -> None:
        if self.graphs:
            self.graphs.drop()

    @torch.inference_mode()
    def _decode(self, active: list[Sequence], cache: KVCache) -> None:
        newest = torch.tensor([sequence.token_ids[-1:] for sequence in active])
        self._choose(active, self.model(newest, cache, [sequence.stored for sequence in active]))

    @torch.inference_mode()
    def _decode_by_graph(self, active: list[Sequence], cache: KVCache) -> None:
        cache.check([sequence.stored for sequence in active], 1)
        newest = [sequence.token_ids[-1] for sequence in active]
        logits, chosen = self.graphs.run(newest, cache, all(sequence.goes_on for sequence in active))
        self._append(active, logits, *chosen)

    def _by_graph(self, cache: KVCache) -> bool:
        """Not while somebody looks on, who wants to see each step."""
        watched = self.accelerator.recorder is not None
        return self.graphs is not None and not watched and self.graphs.holds(cache)

    def _choose(self, sequences: list[Sequence], hidden: torch.Tensor) -> None:
        """Append the next token to each sequence from the last position of `hidden` [B, T, hidden]."""
        with self.during_head:
            logits, chosen = choose(self.model, hidden)
            chosen = chosen.cpu()
        self._append(sequences, logits, *chosen)

    def _append(
        self, sequences: list[Sequence], logits: torch.Tensor, best: torch.Tensor, token_ids: torch.Tensor
    ) -> None:
        """The next token of each sequence: the best one, or one drawn from its logits."""
        self._check(best.tolist())
        for row, (sequence, token_id) in enumerate(zip(sequences, token_ids.tolist(), strict=True)):
            greedy = sequence.sampler.is_plain_greedy
            sequence.append(int(token_id) if greedy else sequence.choose(logits[row]))

    def _check(self, best_logits: list[float]) -> None:
        """Warn once when a logit is NaN: the largest of a row with a NaN is NaN."""
        if not self._warned and any(value != value for value in best_logits):
            self._warned = True
            message = "logits are NaN: the text is meaningless; check the checkpoint, or try dtype float32"
            warnings.warn(message, RuntimeWarning, stacklevel=2)


@torch.inference_mode()
def drop_ended(active: list[Sequence], cache: KVCache) -> list[Sequence]:
    """Remove ended requests; the last one's cache row moves into each gap, so rows stay 0 … n−1."""
    row = 0
    while row < len(active):
        if active[row].finish_reason is None:
            row += 1
            continue
        last = active.pop()
        if row < len(active):
            cache.move(len(active), row)
            active[row] = last
    return active
