"""`mine`: a model for this machine's memory, three commands in order, one that fails leaves the others."""

import pytest

from experiments import mine
from minillm.errors import RunError


@pytest.mark.parametrize(
    ("device", "free", "model"),
    [
        ("cuda", 64 * 10**9, "random:Qwen3-8B"),
        ("cuda", 18 * 10**9, "random:Qwen3-8B"),
        ("cuda", 17 * 10**9, "random:Qwen3-1.7B"),
        ("cuda", 4 * 10**9, "random:Qwen3-0.6B"),
        ("cuda", 10**9, "tiny"),
        ("cuda", None, "random:Qwen3-8B"),
        ("cpu", 64 * 10**9, "tiny"),
    ],
)
def test_model_is_the_largest_that_fits_main_memory(device, free, model):
    assert mine.choose(device, free) == model


@pytest.fixture
def asked(monkeypatch):
    """What each command was asked, instead of running it."""
    found = {}
    for name in mine.COMMANDS:
        monkeypatch.setitem(mine.COMMANDS, name, lambda words, name=name: found.update({name: words}) or 0)
    return found


def test_commands_run_in_order_on_one_model_and_judge_nothing(asked):
    assert mine.main(["--device", "cpu", "--machine", "box"]) == 0
    assert list(asked) == ["ceilings", "budget_sweep", "offload_compare"]
    for words in asked.values():
        assert {"--no-goals", "box", "tiny"} <= set(words)
        assert words[words.index("--out") + 1].endswith("build/results")
        assert "--new-tokens" not in words
    mine.main(["--device", "cuda", "--model", "random:Qwen3-0.6B", "--out", "x"])
    assert asked["ceilings"][-2:] == ["--models", "random:Qwen3-0.6B"]
    assert "--new-tokens" in asked["budget_sweep"]
    assert asked["budget_sweep"][asked["budget_sweep"].index("--out") + 1] == "x"


def test_what_cannot_run_here_is_one_line_and_the_rest_goes_on(asked, monkeypatch, capsys):
    def no_room(_):
        raise RunError("no room")

    monkeypatch.setitem(mine.COMMANDS, "budget_sweep", no_room)
    assert mine.main(["--device", "cpu"]) == 1
    assert "budget_sweep: no room\n" in capsys.readouterr().err
    assert list(asked) == ["ceilings", "offload_compare"]
