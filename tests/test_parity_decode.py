"""The decode experiment: both programs run the same model, timed from the same place to the same place."""

import pytest
import torch

from experiments import decode_cpu, random_reference
from minillm import LLM, ModelConfig, presets

PROMPT = list(range(10, 74))
SHAPE = {
    "vocab_size": 151936,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "dtype": "bfloat16",
}


@pytest.fixture(autouse=True)
def small_preset(monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "Small", ModelConfig(**SHAPE))
    for values, value in (
        (decode_cpu.GOALS, 0.01),
        (decode_cpu.NEW_TOKENS, 8),
        (decode_cpu.DTYPES, torch.float32),
    ):
        monkeypatch.setitem(values, "random:Small", value)


def test_both_programs_write_the_same_tokens_and_time_them():
    with LLM("random:Small", device="cpu", dtype="float32") as llm:
        token_ids, ttft, total = decode_cpu.ours(llm, PROMPT, 8)
    model = random_reference.make("random:Small", torch.float32)
    expected, ttft_expected, total_expected = decode_cpu.theirs(model, PROMPT, 8)
    assert token_ids == expected
    assert len(token_ids) == 8
    assert 0 < ttft < total
    assert 0 < ttft_expected < total_expected


def test_stopwatch_notes_the_first_token_only():
    watch = decode_cpu.Stopwatch()
    assert not watch(torch.zeros(2, 3), None).any()
    first = watch.first
    watch(torch.zeros(2, 4), None)
    assert watch.first == first


def test_speed_leaves_the_first_token_out():
    row = decode_cpu.row("minillm", ([1, 2, 3], 1.0, 2.0))
    assert row["decode_tokens_per_s"] == 2.0
    assert row["threads"] == torch.get_num_threads()


def test_command_takes_turns_and_stores_every_repetition(tmp_path, capsys):
    command = ["--models", "random:Small", "--repeats", "2", "--machine", "box", "--out", str(tmp_path)]
    assert decode_cpu.main(command) == 0
    stored = (tmp_path / "decode_cpu__box.json").read_text()
    programs = [
        line.split('"program": "')[1].split('"')[0] for line in stored.splitlines() if '"program"' in line
    ]
    assert programs == ["minillm", "transformers"] * 2
    assert "ours over transformers" in capsys.readouterr().out


def test_ratio_is_of_medians_and_can_miss():
    speeds = {"minillm": (10.0, 30.0, 20.0), "transformers": (9.0, 11.0, 100.0)}
    rows = [
        {"program": program, "decode_tokens_per_s": speed, "answer": "same"}
        for program, values in speeds.items()
        for speed in values
    ]
    ratio = decode_cpu.model_checks("tiny", rows)[0]
    assert ratio["value"] == 20.0 / 11.0
    assert ratio["met"] is False
    assert decode_cpu.model_checks("random:Qwen3-0.6B", rows)[0]["met"] is True
