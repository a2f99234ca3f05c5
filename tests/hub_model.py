"""A small model on the stand-in hub, for the tests of downloading; `cache` and `served` are fixtures."""

import json
import random
import socket
from pathlib import Path

import pytest
from stand_in_hub import StandInHub

from minillm import transfer

MODEL = "someone/Qwen3-stand-in"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
INDEX = b'{"weight_map": {"a": "%s", "b": "%s"}}' % tuple(name.encode() for name in SHARDS)

SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
CONFIG = json.dumps({"model_type": "qwen3", **dict.fromkeys(SIZES, 4)}).encode()


def make_files() -> dict[str, bytes]:
    noise = random.Random(7)
    return {
        "README.md": b"not wanted",
        "config.json": CONFIG,
        "generation_config.json": b'{"eos_token_id": [1, 2]}',
        "tokenizer.json": noise.randbytes(5000),
        "model.safetensors.index.json": INDEX,
        SHARDS[0]: noise.randbytes(300_000),
        SHARDS[1]: noise.randbytes(200_000),
        "pytorch_model.bin": b"not wanted either",
    }


WANTED = [name for name in make_files() if name not in ("README.md", "pytorch_model.bin")]


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(transfer, "PAUSE_S", 0.0)
    return tmp_path / "hub"


@pytest.fixture
def served(hub_cache, monkeypatch):
    with StandInHub(MODEL, make_files()) as stand_in:
        monkeypatch.setenv("HF_ENDPOINT", stand_in.endpoint)
        yield stand_in


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def whole(stand_in: StandInHub) -> dict[str, bytes]:
    return {name: stand_in.files[name] for name in WANTED}


def closed_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"
