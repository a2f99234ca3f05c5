"""The skill experiment on a few prompts of the shipped model, and that wrong answers count as wrong."""

import json
from dataclasses import dataclass, replace

import pytest
import torch

from experiments import parity, shipped_parity, skill_accuracy
from minillm import LLM, presets
from training.skills import held_out


@pytest.fixture(scope="module")
def programs():
    """Our engine, the reference and its tokenizer."""
    return shipped_parity.programs("tiny", "cpu")


@dataclass
class Sample:
    prompt: str
    answer: str


@pytest.mark.parametrize("skill", ["arithmetic", "json"])
def test_answers_are_right_and_the_same(programs, skill):
    row = skill_accuracy.measure(*programs, held_out(skill, 6))
    assert (row["prompts"], row["same"]) == (6, 6)
    assert row["right"] == row["right_reference"] >= 5


def test_wrong_answers_are_counted_and_listed(programs):
    right, other = held_out("arithmetic", 2)
    row = skill_accuracy.measure(*programs, [right, Sample(other.prompt, "no number")])
    assert (row["right"], row["right_reference"], row["same"]) == (1, 1, 2)
    assert row["wrong"] == [("no number", other.answer, other.answer)]


def test_answer_that_does_not_end_is_not_right(programs):
    sample = held_out("arithmetic", 1)
    assert skill_accuracy.our_answers(programs[0], sample, 8) == [sample[0].answer]
    assert skill_accuracy.our_answers(programs[0], sample, 1) == [None]
    model, tokenizer = programs[1:]
    eos = programs[0].config.eos_token_ids
    assert skill_accuracy.reference_answers(model, tokenizer, sample, 8, eos) == [sample[0].answer]
    assert skill_accuracy.reference_answers(model, tokenizer, sample, 1, eos) == [None]


def test_damaged_engine_is_told_from_the_reference(programs):
    _, model, tokenizer = programs
    with LLM("tiny", device="cpu", dtype="float32") as damaged:
        with torch.inference_mode():
            damaged.model.get_parameter("model.layers.3.self_attn.o_proj.weight").zero_()
        row = skill_accuracy.measure(damaged, model, tokenizer, held_out("json", 4))
    assert row["right"] < row["right_reference"] == 4
    checks = {c["name"]: c["met"] for c in skill_accuracy.checks("json", [row])}
    assert checks["tiny json: whole answer right"] is False
    assert checks["tiny json: … through transformers"] is True


def test_short_run_of_every_part_meets_its_goals(tmp_path, monkeypatch, capsys):
    small = {"skill_prompts": 1, "tiny_prompts": 1, "tiny_tokens": 8, "configurations": 1}
    small |= {"moe_skill_prompts": 1, "moe_prompts": 1, "moe_tokens": 8}
    monkeypatch.setattr(parity, "QUICK", small)
    held = lambda skill, count: held_out("arithmetic" if skill == "recall" else skill, count)  # noqa: E731
    monkeypatch.setattr(shipped_parity, "held_out", held)  # a recall prompt alone takes seconds
    shape = replace(presets.load("Qwen3-0.6B"), hidden_size=64, intermediate_size=96, num_hidden_layers=2)
    monkeypatch.setitem(presets.PRESETS, "Small", shape)
    monkeypatch.setattr(parity, "BF16_QUICK", {"models": ["random:Small"], "prompts": 1, "tokens": 2})
    assert parity.main(["--quick", "--device", "cpu", "--machine", "box", "--out", str(tmp_path)]) == 0
    stored = json.loads((tmp_path / "parity__box.json").read_text())
    assert [row["key"] for row in stored["rows"]] == [
        *(f"skills/{skill}/000" for skill in shipped_parity.SKILLS),
        "tiny/00",
        *(f"tiny-moe/skills/{skill}/000" for skill in shipped_parity.SKILLS),
        "tiny-moe/tokens/00",
        "grid/00",
        "bf16/random:Small/00",
    ]
    assert "grid: largest logit error" in capsys.readouterr().out


def test_a_quick_run_leaves_out_what_memory_does_not_hold(monkeypatch, capsys):
    for available, last in ((8 << 30, "bf16"), (None, "bf16"), (7 << 30, "grid")):
        monkeypatch.setattr(parity.memory, "available_bytes", lambda available=available: available)
        assert parity.read_options(["--quick"]).parts[-1] == last
        assert parity.read_options([]).parts == ["skills", "tiny", "tiny-moe", "grid"]
    assert "bf16 is left out: it needs 8.00 GiB of memory, 7.00 GiB are available" in capsys.readouterr().out
