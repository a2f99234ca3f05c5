"""The KV cache: it owns its length, refuses a mismatch, and rows do not disturb each other."""

import gc
import weakref

import pytest
import torch

from minillm.cache import KVCache
from minillm.config import ModelConfig

CONFIG = ModelConfig(
    vocab_size=10, hidden_size=8, intermediate_size=8, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, head_dim=4,
)  # fmt: skip


def cache(batch=1, capacity=8):
    return KVCache.allocate(CONFIG, batch, capacity, torch.float32, "cpu")


def feed(kv, start, T):
    """One pass with random keys and values; returns what was appended and what came back, layer 1."""
    kv.begin(start, T)
    new = torch.randn(2, kv.batch, 2, T, 4)
    for layer in range(2):
        got = kv[layer].append(*new)
    kv.advance()
    return new, got


def test_passes_accumulate_in_order():
    kv = cache()
    first, _ = feed(kv, [0], 3)
    second, (k, v) = feed(kv, [3], 2)
    assert kv.lengths.tolist() == [5]
    assert torch.equal(k, torch.cat((first[0], second[0]), 2))
    assert torch.equal(v, torch.cat((first[1], second[1]), 2))


@pytest.mark.parametrize("start", [[0], [2], [4]])
def test_a_start_that_is_not_the_length_is_refused_and_changes_nothing(start):
    kv = cache()
    feed(kv, [0], 3)
    with pytest.raises(RuntimeError, match=r"cache holds \[3\]"):
        kv.begin(start, 1)
    feed(kv, [3], 1)
    assert kv.lengths.tolist() == [4]


def test_a_full_cache_is_refused_and_an_exact_fit_is_not():
    kv = cache(capacity=4)
    feed(kv, [0], 4)
    with pytest.raises(RuntimeError, match=r"4 \+ 1 tokens do not fit the cache of 4"):
        kv.begin([4], 1)


def test_unequal_rows_hold_their_own_tokens_and_mask_the_rest():
    kv = cache(batch=3)
    before = [feed(kv.rows(row, row + 1), [0], T)[0] for row, T in enumerate((4, 1, 2))]
    assert kv.lengths.tolist() == [4, 1, 2]
    new, (k, v) = feed(kv, [4, 1, 2], 1)
    assert k.shape[2] == 5
    for row, T in enumerate((4, 1, 2)):
        assert torch.equal(k[row, :, :T], before[row][0, 0])
        assert torch.equal(k[row, :, T], new[0, row, :, 0])
        assert torch.equal(v[row, :, T], new[1, row, :, 0])
        assert kv.current.mask[row, 0, 0].tolist() == [True] * (T + 1) + [False] * (4 - T)
    assert kv.lengths.tolist() == [5, 2, 3]


def test_continuing_with_several_tokens_is_causal():
    kv = cache()
    feed(kv, [0], 3)
    kv.begin([3], 2)
    assert kv.current.mask[0, 0].tolist() == [[True] * 4 + [False], [True] * 5]


def test_move_copies_a_row_whole():
    kv = cache(batch=2)
    feed(kv.rows(0, 1), [0], 1)
    new, _ = feed(kv.rows(1, 2), [0], 3)
    kv.move(1, 0)
    assert kv.lengths.tolist() == [3, 3]
    assert torch.equal(kv.keys[1, 0, :, :3], new[0, 0])
    assert torch.equal(kv.values[1, 0, :, :3], new[1, 0])


def test_a_cache_is_freed_with_its_last_name():
    """Without waiting for Python to look for cycles: on a GPU the next request needs the memory now."""
    kv = cache()
    feed(kv, [0], 3)
    gone = weakref.ref(kv.keys)
    gc.disable()
    try:
        del kv
        assert gone() is None
    finally:
        gc.enable()
