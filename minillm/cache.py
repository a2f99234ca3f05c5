"""The KV cache: keys and values of every token seen, in memory taken once and never moved.

The cache owns its lengths. The caller says where it believes each sequence stands, and a disagreement
is an error: two owners of a position that drift apart give fluent nonsense, not a crash.
"""

from dataclasses import dataclass, field

import torch

from minillm.config import ModelConfig
from minillm.device import has_flash

Storage = tuple[torch.Tensor, torch.Tensor]  # keys and values, each [layers, B, K, capacity, D]


@dataclass
class Pass:
    """The pass under way, the same for every layer."""

    positions: torch.Tensor  # [B, T], on the device
    rows: torch.Tensor | None = None  # [B, 1], on the device: 0 … B − 1
    begin: int = 0  # first new slot of the shortest sequence
    end: int = 0  # one past the last new slot of the longest
    uniform: bool = True  # all sequences are equally long
    mask: torch.Tensor | None = None  # [B, 1, T, S], True where a new token may look; None: nothing to hide
    tokens: slice = field(default_factory=lambda: slice(0, 0))  # of the whole pass, which may go in chunks


class KVCache:
    """Room for `capacity` tokens in each of `batch` sequences.

    A pass: `begin(start, T)` once, then `cache[layer].append(k, v)` in every layer, then `advance()`.
    """

    def __init__(self, storage: Storage, lengths: torch.Tensor):
        self.keys, self.values = storage
        self.lengths = lengths  # [B] int64 on the host, shared with views made by `rows`
        self.current = Pass(lengths.new_zeros(len(lengths), 0))
        # Layers share the pass and not this object: a cycle would keep GPU memory until Python looks for one.
        self.layers = [LayerCache(self.current, k, v) for k, v in zip(*storage, strict=True)]

    @classmethod
    def allocate(
        cls, config: ModelConfig, batch: int, capacity: int, dtype: torch.dtype, device: torch.device | str
    ) -> "KVCache":
        """Zeros, not garbage: a masked slot still meets a weight of zero, and 0 · NaN is NaN."""
        shape = (config.num_hidden_layers, batch, config.num_key_value_heads, capacity, config.head_dim)
        storage = tuple(torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
        return cls(storage, torch.zeros(batch, dtype=torch.int64, device="cpu"))

    @property
    def batch(self) -> int:
        return self.keys.shape[1]

    @property
    def capacity(self) -> int:
        return self.keys.shape[3]

    def rows(self, begin: int, end: int) -> "KVCache":
        """Sequences begin … end−1 as a cache of their own over the same memory and lengths."""
        return KVCache((self.keys[:, begin:end], self.values[:, begin:end]), self.lengths[begin:end])

    def move(self, source: int, target: int) -> None:
        """Copy sequence `source` over sequence `target`."""
        length = int(self.lengths[source])
        for kv in (self.keys, self.values):
            kv[:, target, :, :length] = kv[:, source, :, :length]
        self.lengths[target] = length

    def begin(self, start: list[int], T: int) -> None:
        """Start a pass that adds `T` tokens to each sequence, the first at `start[b]`; raises as `check`."""
        self.check(start, T)
        positions = torch.arange(T, device="cpu")[None] + self.lengths[:, None]
        self.begin_at(positions.to(self.keys.device))

    def begin_at(self, positions: torch.Tensor) -> None:
        """Start a pass at `positions` [B, T] on the device, which follow the tokens that are there."""
        self.enter(self._chunk(positions, slice(0, positions.shape[1])))

    def check(self, start: list[int], T: int) -> None:
        """Raise RuntimeError when `start` is not where the cache stands or when T tokens do not fit."""
        if start != self.lengths.tolist():
            raise RuntimeError(f"pass starts at {start} but the cache holds {self.lengths.tolist()} tokens")
        if max(start) + T > self.capacity:
            raise RuntimeError(f"{max(start)} + {T} tokens do not fit the cache of {self.capacity}")

    def chunks(self, size: int) -> list[Pass]:
        """The pass under way as passes of at most `size` tokens, to `enter` in turn in each layer.

        Each holds its own mask, so that no layer needs one for all pairs of tokens. A pass that is short
        enough, as in decoding, is its own single chunk, and entering it costs nothing.
        """
        positions = self.current.positions
        T = positions.shape[1]
        if size >= T:
            return [self.current]
        cuts = [slice(begin, min(begin + size, T)) for begin in range(0, T, size)]
        return [self._chunk(positions, tokens) for tokens in cuts]

    def enter(self, chunk: Pass) -> None:
        """Let appended keys and values, and the mask, be those of `chunk`."""
        if chunk is not self.current:
            self.current.__dict__.update(chunk.__dict__)

    def _chunk(self, positions: torch.Tensor, tokens: slice) -> Pass:
        """The pass over `tokens` of `positions` [B, T], of which those before are in the cache already."""
        device, own, lengths = positions.device, positions[:, tokens], self.lengths.tolist()
        begin, end = min(lengths) + tokens.start, max(lengths) + tokens.stop
        uniform = begin + own.shape[1] == end
        mask = None
        if not uniform or (own.shape[1] > 1 and begin > 0 and not self._has_flash):
            mask = (torch.arange(end, device=device) <= own[..., None])[:, None]
        rows = torch.arange(self.batch, device=device)[:, None]
        return Pass(own, rows, begin, end, uniform, mask, tokens)

    @property
    def _has_flash(self) -> bool:
        """Whether the attention kernel needs no mask for sequences that are equally long."""
        return has_flash(self.keys.device, self.keys.dtype, self.keys.shape[4])

    def advance(self) -> None:
        """End the pass: its tokens now count."""
        self.lengths += self.current.tokens.stop

    def __getitem__(self, layer: int) -> "LayerCache":
        return self.layers[layer]


class LayerCache:
    """One layer's keys and values, [B, K, capacity, D] each."""

    def __init__(self, current: Pass, keys: torch.Tensor, values: torch.Tensor):
        self.current, self.keys, self.values = current, keys, values

    def append(self, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Store `k`, `v` [B, K, T, D]; return all keys and values so far, [B, K, S, D].

        Sequences of unequal length share S = the longest; the mask hides what lies beyond each one's end.
        """
        return self._store(self.keys, k), self._store(self.values, v)

    def _store(self, stored: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        now = self.current
        if now.uniform:
            stored.narrow(2, now.begin, new.shape[2]).copy_(new)
        else:
            stored[now.rows, :, now.positions] = new.transpose(1, 2)  # [B, T, K, D]
        return stored.narrow(2, 0, now.end)
