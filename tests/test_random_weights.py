"""Seeded random weights: bits depend only on (seed, name, index), against integers in plain Python."""

import hashlib

import numpy as np
import pytest
import torch

from minillm import LLM, random_weights
from minillm.random_weights import NORM_SPREAD, STD, fill_parameter


def one_by_one(name, count, seed):
    """The same law with Python's integers, one element at a time."""
    key = int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:4], "little")
    values = []
    for index in range(count):
        x = (index * 0x9E3779B9 + key) % 2**32
        x ^= x >> 16
        x = x * 0x7FEB352D % 2**32
        x ^= x >> 15
        x = x * 0x846CA68B % 2**32
        x ^= x >> 16
        centred = np.float32((x >> 8) - 2**23)
        norm = name.endswith("norm.weight")
        scaled = centred * np.float32((NORM_SPREAD if norm else STD * 3**0.5) / 2**23)
        values.append(scaled + np.float32(1) if norm else scaled)
    return torch.tensor(np.array(values, dtype=np.float32))


@pytest.mark.parametrize("name", ["model.layers.3.mlp.up_proj.weight", "model.norm.weight"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_values_are_the_hash(name, dtype):
    tensor = torch.empty(5, 41, dtype=dtype)
    fill_parameter(name, tensor, seed=3)
    assert torch.equal(tensor, one_by_one(name, 205, 3).to(dtype).view(5, 41))


def test_chunks_do_not_show(monkeypatch):
    whole, pieces = torch.empty(1000), torch.empty(1000)
    fill_parameter("x", whole, 0)
    monkeypatch.setitem(random_weights._CHUNK, "cpu", 7)
    fill_parameter("x", pieces, 0)
    assert torch.equal(whole, pieces)


def test_seed_and_name_matter_and_the_law_is_uniform():
    first, other_seed, other_name = (torch.empty(200_000) for _ in range(3))
    fill_parameter("a", first, 0)
    fill_parameter("a", other_seed, 1)
    fill_parameter("b", other_name, 0)
    for other in (other_seed, other_name):
        assert abs(torch.corrcoef(torch.stack((first, other)))[0, 1]) < 0.01
    assert first.std().item() == pytest.approx(STD, rel=0.01)
    assert abs(first.mean().item()) < 1e-4
    assert abs(torch.corrcoef(torch.stack((first[1:], first[:-1])))[0, 1]) < 0.01
    counts = torch.histc(first, 20)
    assert counts.min() > 9_500
    assert counts.max() < 10_500


def test_the_engine_uses_them(monkeypatch):
    from dataclasses import replace

    from minillm import presets

    small = replace(presets.load("Qwen3-0.6B"), hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2, vocab_size=300)  # fmt: skip
    monkeypatch.setitem(presets.PRESETS, "small", small)
    with LLM("random:small", device="cpu", seed=5) as llm:
        for name, parameter in llm.model.named_parameters():
            expected = torch.empty_like(parameter)
            fill_parameter(name, expected, 5)
            assert torch.equal(parameter, expected)
        assert llm.tokenizer is None
        assert llm.generate([1, 2])[0].text is None
