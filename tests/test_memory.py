"""The memory plan against real tensors, and what is left against files like the kernel's."""

import re
from math import prod

import pytest

from minillm import geometry, memory, presets
from minillm.errors import RunError


@pytest.mark.parametrize("name", presets.PRESETS)
def test_weights_are_the_parameters_of_the_config(name):
    config = presets.load(name)
    plan = memory.plan(config, dtype_bytes=2, max_model_len=1)
    assert plan.weights == 2 * sum(prod(shape) for shape in config.parameter_shapes().values())
    assert (plan.head == 0) == config.tie_word_embeddings


def test_known_figures_of_qwen3_8b():
    # 8.19 billion parameters, 368 MiB a layer in bfloat16; KV: 2 × 36 layers × 8 heads × 128 × 2 bytes.
    plan = memory.plan(presets.load("Qwen3-8B"), dtype_bytes=2, max_model_len=4096, batch=3)
    assert plan.weights // 2 == pytest.approx(8.19e9, rel=1e-3)
    assert plan.attention_blocks[0] + plan.mlp_blocks[0] == pytest.approx(368 * 2**20, rel=1e-3)
    assert plan.kv_per_token == 147_456
    assert plan.kv == 147_456 * 4096 * 3
    assert plan.total == plan.weights + plan.kv + plan.workspace


@pytest.mark.parametrize("experts", [{}, {"num_experts": 6, "mlp_only_layers": [1]}])
def test_blocks_are_as_large_as_the_engines_buffers(make_checkpoint, experts):
    import torch

    from minillm import ModelConfig
    from minillm.flat import layout_of
    from minillm.model import Qwen3

    folder, _ = make_checkpoint(**experts)
    config = ModelConfig.from_folder(folder)
    with torch.device("meta"):
        layers = Qwen3(config).model.layers
    for index in range(config.num_hidden_layers):
        ranges = layout_of(layers[index], torch.bfloat16).ranges
        for part in geometry.PARTS:
            begin, end = ranges[part]
            assert memory.block_bytes(config, index, part, dtype_bytes=2) == end - begin


def test_cache_is_as_large_as_the_engines(make_checkpoint):
    import torch

    from minillm import ModelConfig
    from minillm.cache import KVCache

    config = ModelConfig.from_folder(make_checkpoint()[0])
    cache = KVCache.allocate(config, batch=2, capacity=10, dtype=torch.float32, device="cpu")
    assert memory.plan(config, 4, max_model_len=10, batch=2).kv == cache.keys.nbytes + cache.values.nbytes


def test_check_fits_names_both_numbers_and_the_remedy():
    memory.check_fits(2**30, 2**30, "the model")
    memory.check_fits(2**40, None, "the model")
    line = "the model needs 2.00 GiB of memory, 1.00 GiB are available: buy more"
    with pytest.raises(RunError, match=re.escape(line)):
        memory.check_fits(2**31, 2**30, "the model", remedy="buy more")


# ---- what is left ----

GIB = 2**30


@pytest.fixture
def machine(tmp_path):
    """`machine(membership, files)` → arguments of `available_bytes`; 8 of 16 GiB are available to all."""

    def make(membership: str, files: dict[str, str]) -> dict:
        for name, text in {
            "proc/meminfo": f"MemTotal: {16 * GIB // 1024} kB\nMemAvailable: {8 * GIB // 1024} kB\n"
        }.items():
            write(tmp_path / name, text)
        write(tmp_path / "proc/self/cgroup", membership)
        for name, text in files.items():
            write(tmp_path / "cgroup" / name, text)
        return {"proc": tmp_path / "proc", "cgroups": tmp_path / "cgroup"}

    return make


def write(path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_a_limit_the_kernels_figure_counts(machine):
    files = {"a/memory.max": "max\n", "a/memory.current": f"{7 * GIB}\n"}
    assert memory.available_bytes(**machine("0::/a\n", files)) == 8 * GIB
    assert memory.total_bytes(**machine("0::/a\n", files)) == 16 * GIB


@pytest.mark.parametrize("group", ["/a", "/a/b"])
def test_a_container_limit_counts_also_from_below(machine, group):
    files = {
        "a/memory.max": f"{4 * GIB}\n",
        "a/memory.current": f"{3 * GIB}\n",
        "a/memory.stat": f"anon 5\ninactive_file {GIB}\n",
        "a/b/memory.max": "max\n",
        "a/b/memory.current": "5\n",
    }
    assert memory.available_bytes(**machine(f"0::{group}\n", files)) == 2 * GIB
    assert memory.total_bytes(**machine(f"0::{group}\n", files)) == 4 * GIB


def test_the_older_cgroups_are_read_too(machine):
    files = {
        "memory/memory.limit_in_bytes": str(2**63 - 4096),
        "memory/memory.usage_in_bytes": "4096",
        "memory/a/memory.limit_in_bytes": str(6 * GIB),
        "memory/a/memory.usage_in_bytes": str(5 * GIB),
    }
    assert memory.available_bytes(**machine("4:memory:/a\n2:cpu:/\n0::/\n", files)) == GIB
    assert memory.total_bytes(**machine("4:memory:/a\n2:cpu:/\n0::/\n", files)) == 6 * GIB


def test_this_machine_has_some_memory():
    assert 0 < memory.available_bytes() <= memory.total_bytes() < 2**50


def test_a_machine_without_proc_gives_its_physical_memory(tmp_path):
    assert memory.available_bytes(proc=tmp_path, cgroups=tmp_path) > 0
    assert memory.total_bytes(proc=tmp_path, cgroups=tmp_path) > 0
