"""What goes wrong with saved models: folders, disks, runs cut short, parts that do not belong there."""

import shutil

import pytest
import torch
from command_line import fails, prompts_file, succeeds
from conftest import edit_config
from safetensors.torch import load_file, save_file
from saved_models import logits

from minillm import presets
from minillm.__main__ import main
from minillm.errors import InputError
from minillm.model_source import ModelSource, find_model
from minillm.quant import saving
from minillm.quant.mix import quantised
from minillm.weight_files import INDEX


@pytest.mark.parametrize(
    "stop", [KeyboardInterrupt, OSError(28, "No space left on device"), InputError("bad weight")]
)
def test_a_run_that_is_cut_short_leaves_nothing(small_model, tmp_path, capsys, monkeypatch, stop):
    folder = small_model()
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


def test_a_disk_that_is_too_small_is_told_first(small_model, tmp_path, monkeypatch, capsys):
    folder = small_model()
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


def test_wrong_usage(small_model, tmp_path, capsys):
    folder = small_model()
    ask = ("quantize", folder, tmp_path / "out")
    fails(capsys, 2, *ask, says=("--quantize", "--help"))
    fails(capsys, 2, "quantize", folder, says=("OUT", "--help"))
    fails(capsys, 2, *ask, "--quantize", "int3", says=("'int3'", "int8, int4"))
    fails(capsys, 2, *ask, "--quantize", "int8", "--seed=-1", says=("seed", "-1"))
    fails(capsys, 2, *ask, "--quantize", "int8", "--device", "gpu", says=("device", "'gpu'"))
    fails(capsys, 2, "quantize", tmp_path / "no", tmp_path / "out", "--quantize", "int8", says=("no folder",))
    assert not (tmp_path / "out").exists()


def test_a_quantised_model_is_not_quantised_again(saved_model, tmp_path, capsys):
    _, out = saved_model("int4")
    line = "is stored as int4 already: give the model that it was made of"
    fails(capsys, 2, "quantize", out, tmp_path / "more", "--quantize", "int8", says=("'int8'", line))
    line = "is stored as int4 already: leave quantize out"
    ids = prompts_file(tmp_path / "ids.jsonl", {"token_ids": [1, 2]})
    fails(capsys, 2, "generate", out, "--prompts", ids, "--quantize", "int8", says=("'int8'", line))
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
def test_the_parts_must_be_those_that_the_configuration_says(saved_model, change, words):
    _, out = saved_model("int4")
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
def test_a_configuration_that_says_something_else(saved_model, quantize, words):
    _, out = saved_model("int4")
    edit_config(out, quantization_config={"quant_method": "minillm", "quantize": quantize})
    with pytest.raises(InputError, match=words) as caught:
        logits(out)
    assert "\n" not in str(caught.value)


def test_parts_of_another_format_of_the_same_names(saved_model):
    _, out = saved_model("int8")
    edit_config(out, quantization_config={"quant_method": "minillm", "quantize": "fp8"})
    with pytest.raises(InputError, match=r"q_proj\.weight\.packed is I8 .* but in fp8 it is F8_E4M3"):
        logits(out)


def test_a_gguf_file_is_refused(tmp_path):
    source = ModelSource("x.gguf", presets.load("Qwen3-0.6B"), None, gguf=object())
    with pytest.raises(InputError, match=r"x\.gguf is a GGUF file"):
        saving.save(source, source.config, tmp_path / "out", None, torch.device("cpu"))


def test_a_place_that_cannot_be_written(small_model, tmp_path):
    folder = small_model()
    (tmp_path / "file").write_text("")
    source = find_model(folder)
    with pytest.raises(InputError, match="file/out"):
        saving.save(
            source, quantised(source.config, "int8"), tmp_path / "file" / "out", None, torch.device("cpu")
        )
