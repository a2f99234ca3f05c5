"""The loading experiment: its checkpoint is whole, its probe sees what is taken and let go."""

import mmap

import pytest
import torch

from experiments import load_probe, loading
from minillm import LLM, ModelConfig, presets

pytestmark = pytest.mark.skipif(not load_probe.STATUS.is_file(), reason="reads /proc/self/status, not there")
SHAPE = {
    "vocab_size": 999,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "tie_word_embeddings": True,
    "dtype": "bfloat16",
}
BLOCK = 2**26  # bytes


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    """(folder, weight bytes) of a small model in several shards."""
    monkeypatch.setitem(presets.PRESETS, "Small", ModelConfig(**SHAPE))
    return tmp_path, loading.write_checkpoint("Small", tmp_path, shard_bytes=50_000)


def test_checkpoint_is_sharded_and_holds_the_random_weights(checkpoint):
    folder, weight_bytes = checkpoint
    assert len(list(folder.glob("*.safetensors"))) > 2
    with LLM(folder, device="cpu") as llm, LLM("random:Small", device="cpu") as expected:
        ours, theirs = dict(llm.model.named_parameters()), dict(expected.model.named_parameters())
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)
        assert weight_bytes == sum(parameter.nbytes for parameter in ours.values())


@pytest.mark.parametrize("way", load_probe.WAYS)
def test_each_way_loads_the_same_weights(checkpoint, way):
    model = load_probe.WAYS[way](str(checkpoint[0]))
    loaded = dict(getattr(model, "model", model).named_parameters())
    key = next(key for key in loaded if key.endswith("layers.2.mlp.up_proj.weight"))
    with LLM("random:Small", device="cpu") as expected:
        assert torch.equal(loaded[key], expected.model.get_parameter("model.layers.2.mlp.up_proj.weight"))


@pytest.mark.parametrize("sharing", [mmap.MAP_PRIVATE, mmap.MAP_SHARED], ids=["RssAnon", "RssShmem"])
def test_peak_sees_memory_that_was_let_go(sharing):
    with load_probe.MemoryPeak() as memory:
        # Not from torch's allocator, which may hand out memory that this process already holds.
        with mmap.mmap(-1, BLOCK, flags=sharing | mmap.MAP_ANONYMOUS) as block:
            block.write(b"1" * BLOCK)
            pause()
        pause()
    assert BLOCK <= memory.held < 1.25 * BLOCK


def test_peak_of_nothing_is_small():
    with load_probe.MemoryPeak() as memory:
        pause()
    assert memory.held < BLOCK / 4


def test_mapped_file_is_counted_apart(tmp_path):
    path = tmp_path / "block"
    path.write_bytes(b"1" * BLOCK)
    with load_probe.MemoryPeak() as memory:
        mapped = torch.from_file(str(path), size=BLOCK, dtype=torch.uint8)
        assert int(mapped.max()) == ord("1")
        pause()
    assert memory.mapped >= BLOCK
    assert memory.held < BLOCK / 4


def pause():
    """Long enough for the sampling thread to look several times."""
    load_probe.time.sleep(10 * load_probe.INTERVAL)


def test_probe_reports_from_a_fresh_process(checkpoint):
    row = loading.probe("minillm", checkpoint[0])
    assert row["peak_bytes"] >= row["after_bytes"] > 0
    assert row["seconds"] > 0


def test_checks_take_the_worst_peak_and_the_fastest_load():
    rows = [
        {"way": way, "weight_bytes": 100, "peak_bytes": peak, "seconds": seconds}
        for way in loading.WAYS
        for peak, seconds in ((105, 3.0), (120, 2.0))
    ]
    checks = {c["name"]: (c["value"], c["met"]) for c in loading.model_checks("m", rows)}
    assert checks["m: peak memory over weights, minillm"] == (1.2, False)
    assert checks[f"m: peak memory over weights, {loading.WAYS['naive']}"] == (1.2, None)
    assert checks["m: load seconds, minillm"] == (2.0, None)
