"""The whole model: embedding, layers, final norm, head; and the one forward loop."""

from collections.abc import Callable

import torch
from torch.nn import Embedding, Module

from minillm.cache import KVCache
from minillm.config import ModelConfig
from minillm.geometry import CHUNK
from minillm.layers import LayerStore, ResidentLayers
from minillm.linear import Linear, linear
from minillm.norm import RMSNorm
from minillm.rope import Rope


class Decoder(Module):
    """Embedding, layers and final norm: token ids to hidden states."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        # Without initial values: on the meta device those would import the compiler, for a second.
        self.embed_tokens = Embedding.from_pretrained(torch.empty(config.vocab_size, config.hidden_size))
        self.layers: LayerStore = ResidentLayers(config)
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, token_ids: torch.Tensor, cache: KVCache, rope: Rope) -> torch.Tensor:
        """`token_ids` [B, T] → hidden [B, T, hidden]; `cache` has begun the pass."""
        return self.through_layers(self.embed(token_ids).to(rope.inv_freq.device), cache, rope)

    def through_layers(self, hidden: torch.Tensor, cache: KVCache, rope: Rope) -> torch.Tensor:
        """`hidden` [B, T, hidden] → the same shape; the one forward loop. May write to `hidden`."""
        chunks = cache.chunks(CHUNK)
        rotations = [rope.at(chunk.positions) for chunk in chunks]
        for index in range(self.config.num_hidden_layers):
            with self.layers.use(index, "attention") as block:
                for chunk, rotation in zip(chunks, rotations, strict=True):
                    cache.enter(chunk)
                    hidden = on_chunk(block, hidden, chunk.tokens, cache[index], rotation)
            with self.layers.use(index, "mlp") as block:
                for chunk in chunks:
                    hidden = on_chunk(block, hidden, chunk.tokens)
        return hidden

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Rows of the table, looked up where it lies: one too large for the device stays in host memory."""
        return self.embed_tokens(token_ids.to(self.embed_tokens.weight.device))


def normed_product(hidden: torch.Tensor, weight: torch.Tensor, norm: RMSNorm) -> torch.Tensor:
    """norm(`hidden`) · weightᵀ, [..., hidden] → [..., out]."""
    return linear(norm(hidden), weight)


def on_chunk(block: Callable, hidden: torch.Tensor, tokens: slice, *others: object) -> torch.Tensor:
    """`hidden` [B, T, hidden] with the block's result at `tokens`: new if those are all, else in place.

    A long prompt goes through each block in chunks, so that its activations stay small while the layers,
    which may have to be fetched, are still used once.
    """
    if tokens.stop - tokens.start == hidden.shape[1]:
        return block(hidden, *others)
    hidden[:, tokens] = block(hidden[:, tokens], *others)
    return hidden


class Qwen3(Module):
    """Causal language models, inference only: Qwen3, Qwen3-MoE, and Llama, which lacks QK-norm."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.model = Decoder(config)
        self.lm_head = None
        if not config.tie_word_embeddings:
            self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=False)
        self.rope: Rope | None = None  # made with the weights, by `weights.materialise`
        self.product = normed_product
        self.tokens_fed = 0  # tokens that went through the layers, to prove that decoding feeds one a step

    def forward(self, token_ids: torch.Tensor, cache: KVCache, start: list[int]) -> torch.Tensor:
        """Feed `token_ids` [B, T], the first of each at position `start[b]`; → hidden [B, T, hidden].

        Raises RuntimeError when `start` disagrees with the cache or T tokens do not fit.
        """
        cache.begin(start, token_ids.shape[1])
        hidden = self.model(token_ids, cache, self.rope)
        cache.advance()
        self.tokens_fed += token_ids.numel()
        return hidden

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """`hidden` [..., hidden] before the final norm → logits [..., vocab]."""
        weight = self.model.embed_tokens.weight if self.lm_head is None else self.lm_head.weight
        return self.product(hidden, weight, self.model.norm)
