"""`quantize`: a saved model is the one that quantising at load gives."""

import json
import os
import stat

import pytest
import torch
from command_line import good_model, succeeds
from safetensors.torch import load_file
from saved_models import GROUPED, logits

from minillm import ModelConfig, memory, presets
from minillm.quant import codec, saving
from minillm.units import gib
from minillm.weight_files import INDEX

MIXES = ["int8", "int4", "int4-sym", "fp8", "attn=int8,mlp=int4,layers.1=none", "mlp=fp8"]


@pytest.mark.parametrize("mix", MIXES)
def test_a_saved_model_is_the_one_quantised_at_load(saved_model, mix, monkeypatch):
    folder, out = saved_model(mix)
    expected = logits(folder, quantize=mix)
    monkeypatch.setattr(codec, "write", None)  # nothing is quantised again
    assert torch.equal(logits(out), expected)
    streamed = {"offload": "prefetch", "gpu_layer_budget": 2, "slots": 1}
    assert torch.equal(logits(out, **streamed), expected)
    assert not torch.equal(logits(folder), expected)


@pytest.mark.parametrize(
    "config", [{"tie_word_embeddings": True}, {"attention_bias": True}, {"num_experts": 6}]
)
def test_every_kind_of_model(saved_model, config):
    folder, out = saved_model("int8", **config)
    assert torch.equal(logits(out), logits(folder, quantize="int8"))


def test_another_dtype_is_that_of_what_stays_dense(saved_model):
    folder, out = saved_model("int8", "--dtype", "bfloat16")
    assert ModelConfig.from_folder(out).dtype == "bfloat16"
    assert torch.equal(logits(out), logits(folder, quantize="int8", dtype="bfloat16"))
    kinds = {tensor.dtype for tensor in load_file(out / "model-00001.safetensors").values()}
    assert kinds == {torch.int8, torch.bfloat16}


@pytest.mark.parametrize("moe", [False, True])
def test_random_weights(moe, tmp_path, monkeypatch, capsys):
    shape = {"vocab_size": 99, "num_hidden_layers": 3, "num_key_value_heads": 2, "dtype": "bfloat16"}
    experts = {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "model_type": "qwen3_moe",
    }
    config = ModelConfig(**GROUPED | shape | (experts if moe else {}), eos_token_ids=(7, 9))
    monkeypatch.setitem(presets.PRESETS, "Small", config)
    succeeds(capsys, "quantize", "random:Small", tmp_path / "out", "--quantize", "int4", "--seed", "5")
    expected = logits("random:Small", quantize="int4", seed=5)
    assert torch.equal(logits(tmp_path / "out"), expected)
    assert not torch.equal(logits("random:Small", quantize="int4", seed=6), expected)
    assert ModelConfig.from_folder(tmp_path / "out").eos_token_ids == (7, 9)


def test_what_a_folder_holds(saved_model):
    folder, out = saved_model("attn=int8,mlp=int4-sym")
    config, index = (json.loads((out / name).read_text()) for name in ("config.json", INDEX))
    assert config["quantization_config"] == {"quant_method": "minillm", "quantize": "attn=int8,mlp=int4-sym"}
    assert (out / "generation_config.json").read_text() == (folder / "generation_config.json").read_text()
    names = [name for name in index["weight_map"] if name.startswith("model.layers.2.")]
    layer = "model.layers.2."
    assert sorted(names) == sorted(
        [f"{layer}self_attn.{name}_proj.weight.{part}" for name in "qkvo" for part in ("packed", "scale")]
        + [
            f"{layer}mlp.{name}_proj.weight.{part}"
            for name in ("gate", "up", "down")
            for part in ("packed", "scale")
        ]
        + [f"{layer}{norm}_layernorm.weight" for norm in ("input", "post_attention")]
        + [f"{layer}self_attn.{name}_norm.weight" for name in "qk"]
    )
    stored = [tensor for path in out.glob("*.safetensors") for tensor in load_file(path).values()]
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in stored)


def test_layers_go_to_disk_as_they_are_made(small_model, tmp_path, capsys, monkeypatch):
    folder = small_model()
    monkeypatch.setattr(saving, "SHARD_BYTES", 1)
    succeeds(capsys, "quantize", folder, tmp_path / "out", "--quantize", "int4")
    assert len(list((tmp_path / "out").glob("*.safetensors"))) == 3 + 3  # embedding, norm, head; a layer each
    assert torch.equal(logits(tmp_path / "out"), logits(folder, quantize="int4"))


def test_tokenizer_and_template_come_along(tmp_path, capsys):
    model, out = good_model(tmp_path / "model"), tmp_path / "out"
    succeeds(capsys, "quantize", model, out, "--quantize", "int8")
    ask = ("--prompt", "Hi", "--chat", "--max-new-tokens", "8")
    assert succeeds(capsys, "generate", out, *ask) == succeeds(
        capsys, "generate", model, *ask, "--quantize", "int8"
    )


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
def test_every_file_has_the_mode_that_the_umask_says(small_model, tmp_path, capsys):
    folder, before = small_model(), os.umask(0o027)
    try:
        succeeds(capsys, "quantize", folder, tmp_path / "out", "--quantize", "int8")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "out").iterdir()}
    assert len(modes) >= 3
    assert set(modes.values()) == {0o640}


def test_it_says_what_the_weights_take_before_and_after(small_model, tmp_path, capsys):
    folder = small_model()
    sizes, _ = succeeds(capsys, "quantize", folder, tmp_path / "out", "--quantize", "int8").splitlines()
    before, after = (memory.plan(ModelConfig.from_folder(each), 4, 1) for each in (folder, tmp_path / "out"))
    assert sizes == f"all weights  {gib(before.weights)} in float32, {gib(after.weights)} as int8"
    assert after.weights < before.weights
