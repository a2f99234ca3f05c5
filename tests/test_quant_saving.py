"""`quantize`: a saved model is the one that quantising at load gives, and a folder is whole or not there."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from command_line import fails, good_model, succeeds
from conftest import edit_config
from safetensors.torch import load_file, save_file

from minillm import LLM, ModelConfig, presets
from minillm.__main__ import main
from minillm.errors import InputError, RunError
from minillm.quant import codec, saving
from minillm.weight_files import INDEX

GROUPED = {  # every projection has whole groups of 128
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "head_dim": 32,
}
MIXES = ["int8", "int4", "int4-sym", "fp8", "attn=int8,mlp=int4,layers.1=none", "mlp=fp8"]
PROMPT = [1, 2, 3, 50, 7]
SPEC = {"device": "cpu", "max_model_len": 64}


def logits(model, **options) -> torch.Tensor:
    with LLM(model, **SPEC | options) as llm:
        return llm.logits(PROMPT)


@pytest.fixture
def original(make_checkpoint, capsys):
    """`original(**config)` → the folder of a small model."""

    def make(**config) -> Path:
        folder, _ = make_checkpoint(**GROUPED | config)
        capsys.readouterr()  # what transformers says of its work
        return folder

    return make


@pytest.fixture
def saved(original, tmp_path, capsys):
    """`saved(mix, **config)` → (the folder of the original, that of the quantised one)."""

    def make(mix: str, *options: str, **config) -> tuple[Path, Path]:
        folder, out = original(**config), tmp_path / "out"
        assert succeeds(capsys, "quantize", folder, out, "--quantize", mix, *options) == f"{out}\n"
        return folder, out

    return make


@pytest.mark.parametrize("mix", MIXES)
def test_a_saved_model_is_the_one_quantised_at_load(saved, mix, monkeypatch):
    folder, out = saved(mix)
    expected = logits(folder, quantize=mix)
    monkeypatch.setattr(codec, "write", None)  # nothing is quantised again
    assert torch.equal(logits(out), expected)
    streamed = {"offload": "prefetch", "gpu_layer_budget": 2, "slots": 1}
    assert torch.equal(logits(out, **streamed), expected)
    assert not torch.equal(logits(folder), expected)


@pytest.mark.parametrize(
    "config", [{"tie_word_embeddings": True}, {"attention_bias": True}, {"num_experts": 6}]
)
def test_every_kind_of_model(saved, config):
    folder, out = saved("int8", **config)
    assert torch.equal(logits(out), logits(folder, quantize="int8"))


def test_another_dtype_is_that_of_what_stays_dense(saved):
    folder, out = saved("int8", "--dtype", "bfloat16")
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


def test_what_a_folder_holds(saved):
    folder, out = saved("attn=int8,mlp=int4-sym")
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


def test_layers_go_to_disk_as_they_are_made(original, tmp_path, capsys, monkeypatch):
    folder = original()
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


# ---- what goes wrong ----


def test_a_folder_that_holds_something_is_left_alone(original, tmp_path, capsys):
    folder = original()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("full", "file"):
        line = fails(capsys, 2, "quantize", folder, tmp_path / name, "--quantize", "int8")
        assert f"{name}' is there already: name a new or an empty folder" in line
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine.txt"]
    (tmp_path / "empty").mkdir()
    succeeds(capsys, "quantize", folder, tmp_path / "empty", "--quantize", "int8")
    assert torch.equal(logits(tmp_path / "empty"), logits(folder, quantize="int8"))


@pytest.mark.parametrize(
    "stop", [KeyboardInterrupt, OSError(28, "No space left on device"), InputError("bad weight")]
)
def test_a_run_that_is_cut_short_leaves_nothing(original, tmp_path, capsys, monkeypatch, stop):
    folder = original()
    made = saving._layer

    def cut(config, index, *rest):
        if index == 1:
            raise stop
        return made(config, index, *rest)

    monkeypatch.setattr(saving, "SHARD_BYTES", 1)
    with monkeypatch.context() as patch:
        patch.setattr(saving, "_layer", cut)
        status = main(["quantize", str(folder), str(tmp_path / "out"), "--quantize", "int8"])
    err = capsys.readouterr().err
    assert (status, err.count("\n")) == (
        {KeyboardInterrupt: 130}.get(stop, getattr(stop, "exit_status", 1)),
        1,
    )
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    succeeds(capsys, "quantize", folder, tmp_path / "out", "--quantize", "int8")


def test_what_a_killed_run_left_is_cleared_away(original, tmp_path, capsys):
    folder = original()
    (tmp_path / "out.incomplete").mkdir()
    (tmp_path / "out.incomplete" / "model-00009.safetensors").write_bytes(b"half")
    succeeds(capsys, "quantize", folder, tmp_path / "out", "--quantize", "int8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "out"]
    assert not (tmp_path / "out" / "model-00009.safetensors").exists()


def test_a_disk_that_is_too_small_is_told_first(original, tmp_path, monkeypatch, capsys):
    folder = original()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**6, 10**6 - 1000, 1000))
    fails(
        capsys,
        1,
        "quantize",
        folder,
        tmp_path / "out",
        "--quantize",
        "int8",
        says=("on disk", "1000 B are free"),
    )


def test_wrong_usage(original, tmp_path, capsys):
    folder = original()
    ask = ("quantize", folder, tmp_path / "out")
    fails(capsys, 2, *ask, says=("--quantize", "--help"))
    fails(capsys, 2, "quantize", folder, says=("OUT", "--help"))
    fails(capsys, 2, *ask, "--quantize", "int3", says=("'int3'", "int8, int4"))
    fails(capsys, 2, *ask, "--quantize", "int8", "--seed=-1", says=("seed", "-1"))
    fails(capsys, 2, *ask, "--quantize", "int8", "--device", "gpu", says=("device", "'gpu'"))
    fails(capsys, 2, "quantize", tmp_path / "no", tmp_path / "out", "--quantize", "int8", says=("no folder",))
    assert not (tmp_path / "out").exists()


def test_a_quantised_model_is_not_quantised_again(saved, tmp_path, capsys):
    _, out = saved("int4")
    line = "is stored as int4 already: leave quantize out"
    fails(capsys, 2, "quantize", out, tmp_path / "more", "--quantize", "int8", says=("'int8'", line))
    fails(capsys, 2, "generate", out, "--prompt", "x", "--quantize", "int8", says=("'int8'", line))
    fails(capsys, 2, "plan", out, "--quantize", "int8", says=("'int8'", line))


Q = "model.layers.1.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({f"{Q}.scale": None}, rf"{Q}\.scale is missing"),
        ({f"{Q}.zero": torch.zeros(3)}, rf"{Q}\.zero is unknown"),
        ({Q: torch.zeros(128, 128)}, rf"{Q} is unknown"),
        (
            {f"{Q}.packed": torch.zeros(128, 64, dtype=torch.int8)},
            r"packed is I8 \[128, 64\], but in int4 it is U8",
        ),
        ({f"{Q}.scale": torch.zeros(128, 2).bfloat16()}, r"scale is BF16 \[128, 2\], .* BF16 \[128, 1\]"),
    ],
)
def test_the_parts_must_be_those_that_the_configuration_says(saved, change, words):
    _, out = saved("int4")
    path = out / "model-00001.safetensors"
    tensors = {name: tensor for name, tensor in (load_file(path) | change).items() if tensor is not None}
    logits(out)
    save_file(tensors, path)
    (out / INDEX).unlink()
    path.rename(out / "model.safetensors")
    with pytest.raises(InputError, match=words) as caught:
        logits(out)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("quantize", "words"),
    [
        ("int8", r"down_proj\.weight\.middle, .* unknown"),
        ("int4-sym", r"down_proj\.weight\.middle, .* unknown"),
        ("int3", "'int3'"),
        (None, "quantize is None"),
        ("int8,layers.3=int4", r"layers\.3, but the model has 3 layers"),
        ("none", r"q_proj\.weight, .* and 18 more are missing"),
    ],
)
def test_a_configuration_that_says_something_else(saved, quantize, words):
    _, out = saved("int4")
    edit_config(out, quantization_config={"quant_method": "minillm", "quantize": quantize})
    with pytest.raises(InputError, match=words) as caught:
        logits(out)
    assert "\n" not in str(caught.value)


def test_parts_of_another_format_of_the_same_names(saved):
    _, out = saved("int8")
    edit_config(out, quantization_config={"quant_method": "minillm", "quantize": "fp8"})
    with pytest.raises(InputError, match=r"q_proj\.weight\.packed is I8 .* but in fp8 it is F8_E4M3"):
        logits(out)


def test_a_gguf_file_is_refused(tmp_path):
    from minillm.model_source import ModelSource

    source = ModelSource("x.gguf", presets.load("Qwen3-0.6B"), None, gguf=object())
    with pytest.raises(InputError, match=r"x\.gguf is a GGUF file"):
        saving.save(source, source.config, tmp_path / "out", None, torch.device("cpu"))


def test_a_place_that_cannot_be_written(original, tmp_path):
    folder = original()
    (tmp_path / "file").write_text("")
    from minillm.model_source import find_model
    from minillm.quant.mix import quantised

    source = find_model(folder)
    with pytest.raises((RunError, InputError), match="file/out"):
        saving.save(
            source, quantised(source.config, "int8"), tmp_path / "file" / "out", None, torch.device("cpu")
        )
