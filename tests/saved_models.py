"""Small models and their quantised copies on disk, for the tests of saving."""

from pathlib import Path

import pytest
import torch
from command_line import succeeds

from minillm import LLM

GROUPED = {  # every projection has whole groups of 128
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "head_dim": 32,
}
PROMPT = [1, 2, 3, 50, 7]
SPEC = {"device": "cpu", "max_model_len": 64}


def logits(model, **options) -> torch.Tensor:
    with LLM(model, **SPEC | options) as llm:
        return llm.logits(PROMPT)


@pytest.fixture
def small_model(make_checkpoint, capsys):
    """`small_model(**config)` → the folder of a small model."""

    def make(**config) -> Path:
        folder, _ = make_checkpoint(**GROUPED | config)
        capsys.readouterr()  # what transformers says of its work
        return folder

    return make


@pytest.fixture
def saved_model(small_model, tmp_path, capsys):
    """`saved_model(mix, **config)` → (the folder of the original, that of the quantised one)."""

    def make(mix: str, *options: str, **config) -> tuple[Path, Path]:
        folder, out = small_model(**config), tmp_path / "out"
        sizes, last = succeeds(capsys, "quantize", folder, out, "--quantize", mix, *options).splitlines()
        assert last == str(out)
        assert sizes.startswith("all weights  ")
        return folder, out

    return make
