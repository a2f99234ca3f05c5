"""What is fetched from a hub and when: readable models only, the right files, what other tools left out."""

import json
from pathlib import Path

import pytest
from hub_model import CONFIG, MODEL, SHARDS, closed_port, contents, whole
from stand_in_hub import StandInHub

from minillm import hub
from minillm.errors import InputError, RunError


def test_one_unsharded_file_needs_no_index(served):
    for name in (*SHARDS, "model.safetensors.index.json"):
        del served.files[name]
    served.files["model.safetensors"] = b"weights"
    assert (hub.download(MODEL) / "model.safetensors").read_bytes() == b"weights"


def test_a_model_without_safetensors_is_told(served):
    for name in (*SHARDS, "model.safetensors.index.json"):
        del served.files[name]
    with pytest.raises(RunError, match="no safetensors weights"):
        hub.download(MODEL)


def refuse_to_fetch(config: bytes, served: StandInHub, says: str) -> None:
    served.files["config.json"] = config
    with pytest.raises(InputError, match=says):
        hub.download(MODEL)
    assert [served.requests(name) for name in (*SHARDS, "tokenizer.json")] == [[], [], []]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2'"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quant_method 'fp8'.*unquantised"),
        ({"hidden_size": -1}, "hidden_size is -1"),
    ],
)
def test_a_model_that_cannot_be_read_is_refused_before_its_weights_are_fetched(served, change, says):
    refuse_to_fetch(json.dumps(json.loads(CONFIG) | change).encode(), served, says)
    served.files["config.json"] = CONFIG
    assert contents(hub.download(MODEL)) == whole(served)


def test_of_a_single_file_and_an_index_the_single_file_is_fetched(served):
    served.files["model.safetensors"] = b"all of it"
    folder = hub.download(MODEL)
    assert (folder / "model.safetensors").read_bytes() == b"all of it"
    assert [served.requests(name) for name in SHARDS] == [[], []]


def test_an_index_that_leads_out_of_the_folder_is_refused(served):
    served.files["model.safetensors.index.json"] = b'{"weight_map": {"a": "../../x"}}'
    with pytest.raises(InputError, match=r"model.safetensors.index.json names '../../x'"):
        hub.download(MODEL)


def as_another_tool_left_it() -> Path:
    """A whole download without the small files and without our mark."""
    folder = hub.download(MODEL)
    for name in ("tokenizer.json", "generation_config.json"):
        (folder / name).resolve().unlink()
        (folder / name).unlink()
    hub._marker(folder).unlink()
    return folder


def test_what_another_tool_did_not_fetch_is_fetched(served):
    folder = as_another_tool_left_it()
    served.log.clear()
    assert hub.download(MODEL) == folder
    assert contents(folder) == whole(served)
    assert [len(served.requests(name)) for name in (*SHARDS, "tokenizer.json")] == [0, 0, 1]
    served.log.clear()
    assert hub.download(MODEL) == folder
    assert served.log == [], "now it is known to be complete"


def test_without_network_what_another_tool_left_is_used_with_a_warning(served, monkeypatch):
    folder = as_another_tool_left_it()
    monkeypatch.setenv("HF_ENDPOINT", closed_port())
    with pytest.warns(UserWarning, match="used unchecked, it may lack files such as the tokenizer") as caught:
        assert hub.download(MODEL) == folder
    assert len(caught) == 1


NO_HUB_IDS = [
    *(
        "Qwen3-8B",
        "a/b/c",
        "../x",
        "a/b c",
        "/a",
        "a/",
        "a--b/c",
        "a/b.git",
        "a/..b",
        "a/b..c",
        "a/b.",
        "-a/b",
    ),
    *("a/ü", "a/٣", "a/" + "x" * 120, "a/b\n", "x" * 5000),
]
HUB_IDS = ["Qwen/Qwen3-0.6B", "a/b", "a_b/c-d_", "1/2", "A.b/c.d", "a/" + "x" * 94]


def test_every_hub_id_is_one_for_the_hubs_own_client():
    from huggingface_hub.utils import validate_repo_id

    for text in HUB_IDS:
        assert hub.is_hub_id(text)
        validate_repo_id(text)


@pytest.mark.parametrize("text", NO_HUB_IDS)
def test_what_is_no_hub_id(text):
    assert not hub.is_hub_id(text)
    assert hub.is_hub_id("Qwen/Qwen3-0.6B")
    with pytest.raises(InputError, match="owner/name"):
        hub.download(text)
