"""Prompts by graphs: each is filled up to one of a few lengths, and a pass of that length is captured.

What fills it up comes behind the prompt, where causal attention keeps it from having any influence; keys and
values that it leaves in the cache are overwritten by the tokens that follow, before anything looks there.
"""

from minillm import memory
from minillm.accelerators import Accelerator
from minillm.cache import KVCache
from minillm.graph_step import Chosen, GraphStep
from minillm.model import Qwen3

LONGEST = 4096  # tokens; beyond, a GPU takes longer to compute than a host to ask for it
KEPT = 16  # graphs, for so many lengths


def filled_up(tokens: int) -> int:
    """The length that a prompt is filled up to: the next multiple of 64 tokens, beyond 512 of 128."""
    step = 64 if tokens <= 512 else 128
    return -(-tokens // step) * step


def with_room(capacity: int) -> int:
    """Tokens of a cache in which every prompt that fits `capacity` can be filled up.

    If not, its products, and so its bits, would depend on what else made the cache larger.
    """
    return max(capacity, min(filled_up(capacity), LONGEST))


class PromptGraphs:
    """A step for each length, the latest used last."""

    def __init__(self, model: Qwen3, accelerator: Accelerator):
        self.model, self.accelerator = model, accelerator
        self.steps: dict[int, GraphStep] = {}

    def run(self, token_ids: list[int], cache: KVCache, kept: bool) -> Chosen | None:
        """Feed `token_ids` to the one sequence of an empty `cache`, by a graph if its memory is `kept`.

        None for prompts that are too long to be filled up. Where layers stream no graph is made, but the
        prompt is filled up all the same: the same products give the same bits.
        """
        tokens, width = len(token_ids), filled_up(len(token_ids))
        if width > min(LONGEST, cache.capacity):
            return None
        step = self._step(width, cache, kept)
        watched = self.accelerator.recorder is not None  # somebody wants to see each step
        by_graph = kept and step.runs > 0 and not watched and self._has_room(width)
        logits, chosen = step.run([token_ids], [range(width)], by_graph)
        cache.lengths += tokens
        self.model.tokens_fed += tokens
        return logits, chosen.cpu()  # not before: kernels read what `step` keeps in host memory

    def _step(self, width: int, cache: KVCache, kept: bool) -> GraphStep:
        step = self.steps.pop(width, None) if kept else None
        if step is None:
            step = GraphStep(self.model, cache.rows(0, 1), width, self.accelerator)
        step.cache.begin_at(step.positions)
        if kept and not self.model.model.layers.streaming:
            self.steps[width] = step
            while len(self.steps) > KEPT:
                del self.steps[next(iter(self.steps))]
        return step

    def _has_room(self, width: int) -> bool:
        """A graph keeps the buffers of its pass: they come out of memory that is left over."""
        free = self.accelerator.free_bytes()
        itemsize = self.model.model.embed_tokens.weight.itemsize
        return free is None or 2 * memory.workspace_bytes(self.model.config, itemsize, width) < free
