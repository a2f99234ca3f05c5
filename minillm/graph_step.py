"""A pass through the model that can be captured as a graph: its inputs come through buffers that stay.

A pass is some hundreds of kernels, and asking for one takes a host longer than a fast GPU takes to run it. A
graph is asked for as a whole, and reads and writes the same memory in every replay.
"""

import torch

from minillm.accelerators import Accelerator
from minillm.cache import KVCache
from minillm.model import Qwen3
from minillm.schedule import HEAD, Block, Compute

# Logits [B, vocab]; the largest of each row and its token, [2, B] float32.
Chosen = tuple[torch.Tensor, torch.Tensor]


class GraphStep:
    """T tokens for each of B sequences: eagerly the first time, to prepare the kernels, then by a graph."""

    def __init__(self, model: Qwen3, cache: KVCache, tokens: int, accelerator: Accelerator):
        """`cache`: of the sequences; the caller lets it enter a pass at `positions`."""
        self.model, self.cache, self.accelerator = model, cache, accelerator
        self.graph, self.runs, self.replayed = None, 0, False
        self.during_head = accelerator.during(Compute(Block(model.config.num_hidden_layers, HEAD)))
        shape, pins = (2, cache.batch, tokens), accelerator.pins  # ids [B, T], positions [B, T]
        self.staged = torch.zeros(shape, dtype=torch.int64, device="cpu", pin_memory=pins)
        self.inputs = torch.zeros(shape, dtype=torch.int64, device=accelerator.device)
        self.token_ids, self.positions = self.inputs
        self.last_staged = torch.full((1,), tokens - 1, device="cpu", pin_memory=pins)
        self.last = torch.full((1,), tokens - 1, device=accelerator.device)  # whose logits are wanted
        self.table = model.model.embed_tokens.weight
        self.rows = None  # embeddings [B, T, hidden] of the tokens, where the table is in host memory
        self.feeds_itself = tokens == 1 and self.table.device == self.last.device
        if self.table.device != self.last.device:
            width = self.table.shape[1]
            self.rows = torch.empty(*shape[1:], width, dtype=self.table.dtype, pin_memory=pins)

    def run(self, token_ids: list, positions: list, by_graph: bool = True) -> Chosen:
        """Logits of the last of `token_ids` [rows][tokens] of each sequence; `positions` [rows][T].

        Rows up to B get token 0 at position 0, places up to T token 0.
        """
        # A replay reads these when it gets to it: the caller has waited for the one before.
        inputs = self.staged.numpy()
        inputs.fill(0)
        rows, tokens = len(token_ids), len(token_ids[0])
        inputs[0, :rows, :tokens], inputs[1, :rows] = token_ids, positions
        self.last_staged.numpy()[0] = tokens - 1
        if self.rows is not None:
            ids = self.staged[0].flatten()
            torch.index_select(self.table, 0, ids, out=self.rows.view(-1, self.rows.shape[2]))
        return self.go(by_graph)

    def go(self, by_graph: bool = True) -> Chosen:
        """The pass by itself; without new `staged` numbers a step that feeds itself goes on where it is."""
        self.replayed = by_graph
        if by_graph:
            self.graph = self.graph or self.accelerator.capture(self.captured)
            self.model.model.layers.replay(self.graph)
        else:
            self.compute()
        self.runs += 1
        return self.logits, self.chosen

    def captured(self) -> None:
        with self.model.model.layers.capturing():
            self.compute()

    def compute(self) -> None:
        """From `staged` to `logits` and `chosen`; everything the host does here happens once a capture."""
        from minillm.kernels.fetch import fetch  # imports Triton

        decoder = self.model.model
        fetch(self.staged, self.inputs, once=self.feeds_itself)
        if self.rows is None:
            hidden = decoder.embed(self.token_ids)
        else:
            hidden = torch.empty_like(self.rows, device=self.last.device)
            fetch(self.rows, hidden)
        hidden = decoder.through_layers(hidden, self.cache, self.model.rope)
        if hidden.shape[1] > 1:
            fetch(self.last_staged, self.last)
            hidden = hidden.index_select(1, self.last)
        with self.during_head:
            self.logits, self.chosen = choose(self.model, hidden)
        if self.feeds_itself:
            self.token_ids.copy_(self.chosen[1, :, None])
            self.positions.add_(1)


def choose(model: Qwen3, hidden: torch.Tensor) -> Chosen:
    """From the last position of `hidden` [B, T, hidden]."""
    logits = model.head(hidden[:, -1])
    best, token_ids = logits.max(-1)
    # For one transfer: float32 holds every token id exactly.
    return logits, torch.stack((best.float(), token_ids.float()))
