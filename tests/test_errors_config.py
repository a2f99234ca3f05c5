"""Bad folders and configurations, through the command line and the API; each after the good one answered."""

import json
import shutil
from pathlib import Path

import pytest
from command_line import VOCABULARY, fails, good_model, succeeds
from conftest import edit_config, make_reference

from minillm import LLM, model_source
from minillm.errors import InputError
from minillm.model_source import find_model, shipped_folder

ONE_TOKEN = ("--prompt", "Hi", "--max-new-tokens", "1")


@pytest.fixture
def folder(tmp_path, capsys):
    """A model that answers: the positive control of every test here."""
    good = good_model(tmp_path / "model")
    succeeds(capsys, "generate", good, *ONE_TOKEN)
    succeeds(capsys, "plan", good)
    return good


def refused(capsys, model, *says: str) -> None:
    """`generate`, `plan` and the API give the same one line."""
    line = fails(capsys, 2, "generate", model, *ONE_TOKEN, says=says)
    assert fails(capsys, 2, "plan", model) == line
    with pytest.raises(InputError) as caught:
        LLM(model)
    assert line == f"minillm: error: {caught.value}\n"


def test_no_folder(folder, capsys):
    refused(capsys, folder.parent / "nothing", "nothing", "hub id")


def test_a_file_is_no_folder(folder, capsys):
    refused(capsys, folder / "model.safetensors", "model.safetensors", "is a file", "give its folder")


def test_no_config(folder, capsys):
    (folder / "config.json").unlink()
    refused(capsys, folder, "config.json", str(folder))


def test_config_is_a_folder(folder, capsys):
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()
    refused(capsys, folder, "config.json", str(folder))


@pytest.mark.parametrize("content", [b"{not json", b"", b"\xff\xfe{}", b"[1, 2]", b'{"a": 1}}'])
def test_config_that_is_not_json(folder, capsys, content):
    (folder / "config.json").write_bytes(content)
    refused(capsys, folder, "config.json", "JSON")


def test_generation_config_that_is_not_json(folder, capsys):
    (folder / "generation_config.json").write_text("{")
    refused(capsys, folder, "generation_config.json", "JSON")


def test_config_nested_too_deeply(folder, capsys):
    (folder / "config.json").write_text("[" * 100_000)
    refused(capsys, folder, "config.json", "JSON")


WHOLE = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
OPTIONAL = ("num_key_value_heads", "head_dim", "max_position_embeddings")


@pytest.mark.parametrize("key", WHOLE)
def test_a_needed_key_is_missing(folder, capsys, key):
    edit_config(folder, **{key: ...})
    refused(capsys, folder, "config.json", key, "missing")


@pytest.mark.parametrize("value", [-1, 0, 2.5, True, "many", [3], {}])
@pytest.mark.parametrize("key", [*WHOLE, *OPTIONAL])
def test_a_size_is_not_a_size(folder, capsys, key, value):
    edit_config(folder, **{key: value})
    refused(capsys, folder, "config.json", key, repr(value))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "gpt2"),
        ("model_type", 5),
        ("model_type", ["qwen3"]),
        ("model_type", ...),
        ("hidden_act", "gelu"),
        ("use_sliding_window", True),
        ("rms_norm_eps", -1e-6),
        ("rms_norm_eps", float("nan")),
        ("rms_norm_eps", float("inf")),
        ("rms_norm_eps", "small"),
        ("tie_word_embeddings", "yes"),
        ("attention_bias", 1),
        ("dtype", "int8"),
        ("dtype", ["bfloat16"]),
        ("eos_token_id", "end"),
        ("eos_token_id", [1, -2]),
        ("head_dim", 15),
        ("num_hidden_layers", 10**7),
        ("vocab_size", 10**30),
        ("hidden_size", 10**400),
        ("rms_norm_eps", 10**400),
        ("max_position_embeddings", 10**12),
        ("layer_types", ["sliding_attention"] * 3),
        ("layer_types", "full_attention"),
        ("partial_rotary_factor", 0.5),
        ("quantization_config", {"quant_method": "fp8"}),
        ("quantization_config", "gptq"),
    ],
)
def test_a_value_that_is_not_supported(folder, capsys, key, value):
    edit_config(folder, **{key: value})
    refused(capsys, folder, "config.json", key)


def test_a_quantised_model_is_named_as_that(folder, capsys):
    edit_config(folder, quantization_config={"quant_method": "fp8"})
    refused(capsys, folder, "quant_method 'fp8'", "unquantised")


def test_more_heads_than_columns_leave_no_head_dim(folder, capsys):
    edit_config(folder, head_dim=None, num_attention_heads=512, num_key_value_heads=512)
    refused(capsys, folder, "head_dim is 0", "at least 2")


def test_a_number_of_thousands_of_digits(folder, capsys):
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace('"vocab_size": 259', f'"vocab_size": {"9" * 5000}'))
    refused(capsys, folder, "config.json", "JSON", "digits")


def test_heads_that_do_not_divide(folder, capsys):
    edit_config(folder, num_attention_heads=4, num_key_value_heads=3)
    refused(capsys, folder, "num_attention_heads 4", "num_key_value_heads 3")


@pytest.mark.parametrize("spelling", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize(
    ("rope", "named"),
    [
        ({"rope_type": "spiral"}, "'spiral'"),
        ({"rope_type": 3}, "3"),
        ({"rope_type": ["yarn"]}, "yarn"),
        ({"rope_type": "yarn"}, "factor"),
        ({"rope_type": "yarn", "factor": "large"}, "factor"),
        ({"rope_type": "yarn", "factor": -2.0}, "factor"),
        ({"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": -5}, "original_max"),
        ({"rope_type": "yarn", "factor": 2.0, "beta_fast": "quick"}, "beta_fast"),
        ({"rope_type": "yarn", "factor": float("inf")}, "factor"),
        ({"rope_type": "default", "rope_theta": "big"}, "rope_theta"),
        ({"rope_type": "default", "rope_theta": -1.0}, "rope_theta"),
        ({"rope_type": "default", "rope_theta": 0}, "rope_theta"),
        ({"rope_type": "default", "rope_theta": 1}, "rope_theta"),
        ({"rope_type": "default", "rope_theta": 10**400}, "rope_theta"),
        ({"rope_type": "default", "factor": 2.0}, "factor"),
        ({"rope_type": "default", "partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"full_attention": {"rope_type": "default"}}, "full_attention"),
        ({"rope_type": "yarn", "factor": 1e308}, "factor"),
        ({"rope_type": "yarn", "factor": 0.5}, "factor"),
        ({"rope_type": "yarn", "factor": 10**400}, "factor"),
        ({"rope_type": "yarn", "factor": 2.0, "rope_theta": 1.0}, "rope_theta"),
        ({"rope_type": "yarn", "factor": 2.0, "mscale": 0.7}, "mscale"),
        ({"rope_type": "yarn", "factor": 2.0, "mscale_all_dim": 1.0}, "mscale_all_dim"),
        ({"rope_type": "yarn", "factor": 2.0, "truncate": False}, "truncate"),
        ({"rope_type": "yarn", "factor": 2.0, "beta_slow": 0}, "beta_slow"),
        ({"rope_type": "yarn", "factor": 2.0, "attention_factor": 0}, "attention_factor"),
        ({"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 0.5}, "original_max"),
        ("twisted", "twisted"),
        ([1], "rope"),
    ],
)
def test_rope_that_is_not_known(folder, capsys, spelling, rope, named):
    edit_config(folder, rope_parameters=..., rope_scaling=...)
    edit_config(folder, **{spelling: rope})
    refused(capsys, folder, "config.json", named)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_experts", -1),
        ("num_experts", ...),
        ("num_experts_per_tok", 99),
        ("num_experts_per_tok", ...),
        ("moe_intermediate_size", "wide"),
        ("decoder_sparse_step", 0),
        ("mlp_only_layers", "first"),
        ("norm_topk_prob", "yes"),
    ],
)
def test_a_mixture_of_experts_that_is_not_one(tmp_path, capsys, key, value):
    folder = good_model(tmp_path / "moe")
    for file in folder.glob("model*"):
        file.unlink()
    moe = make_reference(vocab_size=259, num_experts=6)
    moe.save_pretrained(folder)
    capsys.readouterr()  # transformers shows its progress
    config = json.loads((folder / "config.json").read_text())
    count = "num_local_experts" if "num_local_experts" in config else "num_experts"
    succeeds(capsys, "generate", folder, *ONE_TOKEN)
    edit_config(folder, **{count if key == "num_experts" else key: value})
    refused(capsys, folder, "config.json", key.removeprefix("num_experts") or "experts")


@pytest.mark.parametrize("name", ["random:Qwen3-9B", "random:", "random:qwen3-8b"])
def test_no_such_published_size(capsys, name):
    succeeds(capsys, "plan", "random:Qwen3-8B")
    refused(capsys, name, repr(name.removeprefix("random:")), "Qwen3-8B")


@pytest.mark.parametrize("model", ["", "Qwen3-8B", "a/b/c"])
def test_a_name_that_is_nothing(capsys, tmp_path, monkeypatch, model):
    monkeypatch.chdir(tmp_path)
    good_model(tmp_path / "here")
    succeeds(capsys, "generate", "here", *ONE_TOKEN)
    refused(capsys, model, repr(model), "hub id")


@pytest.mark.parametrize("name", ["tiny", "random:Qwen3-8B", "someone/model"])
def test_a_path_is_always_a_folder(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=f"no folder '{name}'"):
        find_model(Path(name))
    shutil.copytree(good_model(tmp_path / "good"), name)
    assert find_model(Path(name)).config.vocab_size == VOCABULARY


def test_of_a_text_the_shipped_name_wins_and_a_path_does_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    good_model(tmp_path / "tiny")
    assert find_model("tiny").folder == shipped_folder("tiny")
    assert find_model("./tiny").config.vocab_size == VOCABULARY


def test_a_shipped_model_that_is_not_here_is_refused(capsys, monkeypatch):
    monkeypatch.setattr(model_source, "SHIPPED", ("tiny", "absent"))
    assert model_source.shipped_here() == ("tiny",)
    refused(capsys, "absent", "'absent' does not come with this copy", "tiny does")
    assert find_model("tiny").folder == shipped_folder("tiny")


def test_a_file_spelt_like_a_hub_id_is_not_looked_up(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder.parent)
    refused(capsys, f"{folder.name}/config.json", "is a file", "give its folder")


def test_a_name_too_long_for_the_system(folder, capsys):
    line = fails(capsys, 2, "plan", "x" * 5000, says=("xxxx", "folder"))
    assert len(line) < 250


@pytest.mark.parametrize("model", [None, 5, b"tiny"])
def test_the_api_wants_a_name_or_a_path(model):
    with pytest.raises(InputError, match="give a folder, a hub id, tiny or random:NAME"):
        LLM(model)


def test_a_tokenizer_that_cannot_be_read(folder, capsys):
    (folder / "tokenizer.json").write_text("{")
    fails(capsys, 2, "generate", folder, *ONE_TOKEN, says=("tokenizer", str(folder)))
