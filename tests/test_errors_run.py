"""Good input that fails here: no memory, no network, weights that make no sense. A control beside each."""

import os
import socket
import sys

import pytest
import torch
from command_line import FILE, fails, good_model, succeeds
from safetensors.torch import load_file, save_file

from minillm import LLM, SamplingParams, memory
from minillm.__main__ import main
from minillm.errors import RunError

ASK = ("--prompt", "Hi", "--max-new-tokens", "3")


@pytest.fixture
def folder(tmp_path, capsys):
    good = good_model(tmp_path / "model")
    succeeds(capsys, "generate", good, *ASK)
    return good


def test_not_enough_memory(folder, capsys, monkeypatch):
    weights = sum(tensor.nbytes for tensor in load_file(folder / FILE).values())
    monkeypatch.setattr(memory, "available_bytes", lambda: 2 * weights)
    succeeds(capsys, "generate", folder, *ASK)
    monkeypatch.setattr(memory, "available_bytes", lambda: weights // 2)
    line = fails(capsys, 1, "generate", folder, *ASK, says=("memory", "available", "smaller"))
    assert line.count("iB ") == 2
    with pytest.raises(RunError, match="memory"):
        LLM(folder)


def test_a_cache_that_does_not_fit_is_refused_before_it_is_taken(folder, capsys, monkeypatch):
    with LLM(folder) as llm:
        one_token = memory.plan(llm.config, 4, 1).kv
        monkeypatch.setattr(memory, "available_bytes", lambda: 50 * one_token)
        assert len(llm.generate("Hi", SamplingParams(max_tokens=3))[0].token_ids) == 3
        with pytest.raises(RunError, match="memory"):
            llm.generate("Hi", SamplingParams(max_tokens=300))


def test_a_hub_id_without_network(folder, capsys, monkeypatch, tmp_path):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{probe.getsockname()[1]}"
    monkeypatch.setenv("HF_ENDPOINT", address)
    for argv in (
        ("generate", "someone/model", *ASK),
        ("plan", "someone/model"),
        ("download", "someone/model"),
    ):
        fails(capsys, 1, *argv, says=("someone/model", address, "HF_ENDPOINT"))
    with pytest.raises(RunError, match="someone/model"):
        LLM("someone/model")
    left = [name for _, _, names in os.walk(tmp_path / "hub") for name in names]
    assert left == []


@pytest.mark.parametrize("options", [(), ("--temperature", "0.9"), ("--repetition-penalty", "1.3")])
def test_nan_logits_are_one_warning(folder, capsys, options):
    tensors = load_file(folder / FILE)
    tensors["model.norm.weight"] = torch.full_like(tensors["model.norm.weight"], float("nan"))
    save_file(tensors, folder / FILE)
    status = main(["generate", str(folder), *ASK, *options])
    out, err = capsys.readouterr()
    assert status == 0
    assert err.startswith("minillm: warning: logits are NaN")
    assert err.count("\n") == 1
    assert out.endswith("\n")


def test_nan_logits_warn_through_the_api(folder):
    tensors = load_file(folder / FILE)
    tensors["model.norm.weight"][0] = float("nan")
    save_file(tensors, folder / FILE)
    with LLM(folder) as llm, pytest.warns(RuntimeWarning, match="logits are NaN") as caught:
        llm.generate(["Hi", "there"], SamplingParams(max_tokens=3))
    assert len(caught) == 1


@pytest.mark.parametrize("temperature", ["1e-6", "1e-40", "1e-320"])
def test_a_temperature_near_zero_is_nearly_greedy(folder, capsys, temperature):
    greedy = succeeds(capsys, "generate", folder, *ASK)
    assert succeeds(capsys, "generate", folder, *ASK, "--temperature", temperature) == greedy


@pytest.mark.parametrize("penalty", ["1e-30", "1e30"])
def test_an_extreme_penalty_still_gives_tokens(folder, capsys, penalty):
    succeeds(capsys, "generate", folder, *ASK, "--repetition-penalty", penalty, "--temperature", "1")


def test_a_package_that_is_not_installed_is_named(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "minillm.llm", None)
    fails(capsys, 1, "generate", folder, *ASK, says=("minillm.llm is not installed",))


def test_a_bug_is_called_one(folder, capsys, monkeypatch):
    def broken(*_, **__):
        raise KeyError("lost\nand found")

    monkeypatch.setattr(LLM, "generate", broken)
    fails(capsys, 1, "generate", folder, *ASK, "--json", says=("KeyError", "lost", "bug", "--debug"))


def test_a_closed_llm_says_so(folder):
    llm = LLM(folder)
    llm.generate("Hi", SamplingParams(max_tokens=1))
    llm.close()
    llm.close()
    for use in (lambda: llm.generate("Hi"), lambda: llm.logits([1]), lambda: llm.stream("Hi"), llm.report):
        with pytest.raises(RunError, match="closed"):
            use()
