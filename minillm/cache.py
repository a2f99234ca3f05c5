"""The KV cache: keys and values of every token seen, in memory taken once and never moved.

The cache owns its lengths. The caller says where it believes each sequence stands, and a disagreement
is an error: two owners of a position that drift apart give fluent nonsense, not a crash.
"""

import torch

from minillm.config import ModelConfig
from minillm.errors import InputError

Storage = tuple[torch.Tensor, torch.Tensor]  # keys and values, each [layers, B, K, capacity, D]


class KVCache:
    """Room for `capacity` tokens in each of `batch` sequences.

    A pass: `begin(start, T)` once, then `cache[layer].append(k, v)` in every layer, then `advance()`.
    """

    def __init__(self, storage: Storage, lengths: torch.Tensor):
        self.keys, self.values = storage
        self.lengths = lengths  # [B] int64 on the host, shared with views made by `rows`
        self.positions = lengths.new_zeros(len(lengths), 0)  # [B, T] of the pass under way, on the device
        self.mask: torch.Tensor | None = None  # of the pass under way

    @classmethod
    def allocate(
        cls, config: ModelConfig, batch: int, capacity: int, dtype: torch.dtype, device: torch.device | str
    ) -> "KVCache":
        """Zeros, not garbage: a masked slot still meets a weight of zero, and 0 · NaN is NaN."""
        shape = (config.num_hidden_layers, batch, config.num_key_value_heads, capacity, config.head_dim)
        storage = tuple(torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
        return cls(storage, torch.zeros(batch, dtype=torch.int64))

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
        """Start a pass that adds `T` tokens to each sequence, the first at `start[b]`.

        Raises InputError when `start` is not where the cache stands or when T tokens do not fit.
        """
        if start != self.lengths.tolist():
            raise InputError(f"pass starts at {start} but the cache holds {self.lengths.tolist()} tokens")
        if max(start) + T > self.capacity:
            raise InputError(f"{max(start)} + {T} tokens do not fit the cache of {self.capacity}")
        self.start, self.T = start, T
        self.uniform = min(start) == max(start)
        new = torch.arange(T)[None] + self.lengths[:, None]  # [B, T]
        self.positions = new.to(self.keys.device)
        self.mask = self._mask()

    def _mask(self) -> torch.Tensor | None:
        """[B, 1, T, S], True where a new token may look; None where attention needs none."""
        if self.uniform and (self.T == 1 or self.start[0] == 0):
            return None
        keys = torch.arange(max(self.start) + self.T, device=self.positions.device)
        return (keys <= self.positions[..., None])[:, None]

    def advance(self) -> None:
        """End the pass: its tokens now count."""
        self.lengths += self.T

    def __getitem__(self, layer: int) -> "LayerCache":
        return LayerCache(self, layer)


class LayerCache:
    """One layer's keys and values during a pass."""

    def __init__(self, cache: KVCache, layer: int):
        self.cache = cache
        self.keys, self.values = cache.keys[layer], cache.values[layer]  # [B, K, capacity, D]
        self.mask = cache.mask

    def append(self, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Store `k`, `v` [B, K, T, D]; return all keys and values so far, [B, K, S, D].

        Sequences of unequal length share S = the longest; the mask hides what lies beyond each one's end.
        """
        begin, end = min(self.cache.start), max(self.cache.start) + self.cache.T
        for kv, new in ((self.keys, k), (self.values, v)):
            if self.cache.uniform:
                kv[:, :, begin:end] = new
            else:
                row = torch.arange(len(kv), device=kv.device)[:, None]
                kv[row, :, self.cache.positions] = new.transpose(1, 2)  # [B, T, K, D]
        return self.keys[:, :, :end], self.values[:, :, :end]
