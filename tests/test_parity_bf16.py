"""The margin rule and the error rule: the reference has our weights, and both rules can fail."""

import pytest
import torch

from experiments import bf16_margin, parity, random_reference
from minillm import LLM, ModelConfig, SamplingParams, presets
from minillm.outputs import RequestOutput

PROMPT = list(range(40, 90))


@pytest.fixture(autouse=True)
def small_preset(monkeypatch):
    """`random:Small` and `random:SmallTied`: published vocabulary, so that the shared prompts fit."""
    shape = {
        "vocab_size": 151936,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "dtype": "bfloat16",
    }
    monkeypatch.setitem(presets.PRESETS, "Small", ModelConfig(**shape))
    monkeypatch.setitem(presets.PRESETS, "SmallTied", ModelConfig(**shape, tie_word_embeddings=True))


@pytest.mark.parametrize("name", ["Small", "SmallTied"])
def test_reference_has_our_weights_and_positions(name):
    model = random_reference.make(name, torch.float32)
    with LLM(f"random:{name}", device="cpu", dtype="float32") as llm:
        ours = dict(llm.model.named_parameters())
        theirs = dict(model.named_parameters())
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)
        with torch.inference_mode():
            expected = model(torch.tensor([PROMPT])).logits[0]
        torch.testing.assert_close(llm.logits(PROMPT), expected, atol=1e-5, rtol=0)


def test_widened_reference_holds_the_rounded_weights():
    rounded = random_reference.make("SmallTied", torch.bfloat16)
    wide = random_reference.widened(rounded)
    assert wide.lm_head.weight is wide.model.embed_tokens.weight
    for a, b in zip(wide.parameters(), rounded.parameters(), strict=True):
        assert a.dtype == torch.float32
        assert torch.equal(a, b.float())


def test_reference_refuses_experts():
    with pytest.raises(ValueError, match="only dense"):
        random_reference.make("Qwen3-30B-A3B")


def test_engine_keeps_both_rules():
    trio = bf16_margin.Trio("random:Small", "cpu")
    row = trio.measure(PROMPT, 8)
    assert row["tokens"] == 8
    assert row["outside_margin"] == 0
    assert row["largest_excess"] <= 0
    assert row["logits"] == (len(PROMPT) + 7) * 151936
    assert 0 < row["squared_error"] < 2 * row["squared_error_reference"]
    trio.close()


def test_chunks_do_not_change_the_figures(monkeypatch):
    trio = bf16_margin.Trio("random:Small", "cpu")
    whole = trio.measure(PROMPT, 4)
    monkeypatch.setattr(bf16_margin, "CHUNK", 7)
    parts = trio.measure(PROMPT, 4)
    assert parts == {k: v if isinstance(v, int) else pytest.approx(v, rel=1e-3) for k, v in whole.items()}


def test_arbitrary_tokens_are_outside_the_margin(monkeypatch):
    trio = bf16_margin.Trio("random:Small", "cpu")
    answer = RequestOutput(PROMPT, token_ids=[1, 2, 3, 4])
    monkeypatch.setattr(trio.llm, "generate", lambda prompt, params: [answer])
    row = trio.measure(PROMPT, 4)
    assert row["outside_margin"] == 4
    assert row["largest_excess"] > 0


def test_coarser_weights_raise_the_error():
    trio = bf16_margin.Trio("random:Small", "cpu")
    before = bf16_margin.error_ratio([trio.measure(PROMPT, 2)])
    with torch.inference_mode():
        for parameter in trio.llm.model.model.layers.parameters():
            parameter.mul_(1.01)
    assert bf16_margin.error_ratio([trio.measure(PROMPT, 2)]) > max(2 * before, bf16_margin.ERROR_GOAL)


def test_checks_weigh_each_logit_the_same():
    rows = [
        {
            "tokens": 4,
            "outside_margin": 0,
            "logits": 100,
            "squared_error": 4.0,
            "squared_error_reference": 1.0,
        },
        {
            "tokens": 4,
            "outside_margin": 1,
            "logits": 300,
            "squared_error": 0.0,
            "squared_error_reference": 3.0,
        },
    ]
    checks = bf16_margin.checks("m", rows)
    assert [c["value"] for c in checks] == [2, 1 - 1 / 8, 1.0, 0.1]
    assert [c["met"] for c in checks] == [None, False, True, None]


def test_command_writes_its_file(tmp_path, capsys):
    command = ["--bf16", "--models", "random:Small", "--prompts", "2", "--tokens", "3", "--device", "cpu"]
    command += ["--machine", "box", "--out", str(tmp_path)]
    assert parity.main(command) == 0
    assert "inside the margin" in capsys.readouterr().out
    assert (tmp_path / "parity__box.json").is_file()


def test_missed_goal_gives_status_1(tmp_path, monkeypatch):
    monkeypatch.setattr(bf16_margin, "ERROR_GOAL", 0.0)
    command = ["--bf16", "--models", "random:Small", "--prompts", "1", "--tokens", "2", "--device", "cpu"]
    assert parity.main([*command, "--machine", "box", "--out", str(tmp_path)]) == 1


def test_params_are_greedy_and_go_past_end_tokens(monkeypatch):
    trio = bf16_margin.Trio("random:Small", "cpu")
    asked = []
    answer = RequestOutput(PROMPT, token_ids=[1, 2])
    monkeypatch.setattr(trio.llm, "generate", lambda prompt, params: asked.append(params) or [answer])
    trio.measure(PROMPT, 2)
    assert asked == [SamplingParams(max_tokens=2, ignore_eos=True)]
