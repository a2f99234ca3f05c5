"""The shipped models: what is in their folders, how they load, that they answer; their prompts file."""

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from minillm import LLM
from minillm.model_source import SHIPPED
from training import card, evaluate, presets, prompts
from training.skills import SKILLS, held_out
from training.tokenizer import CONTEXT

DATA = Path(__file__).parents[1] / "data"
LAYERS = {"tiny": 8, "tiny-moe": 6, "tiny-draft": 2}
MIB = 2**20


def read(model, name):
    return json.loads((DATA / model / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module", params=SHIPPED)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def loaded(name):
    logging.disable_progress_bar()
    return AutoModelForCausalLM.from_pretrained(DATA / name, dtype=torch.float32, output_loading_info=True)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_file(str(DATA / "tiny" / "tokenizer.json"))


def test_folder_is_complete(name):
    needed = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}
    needed |= {"tokenizer_config.json", "README.md", "training.json", "evaluation.json"}
    assert needed == {path.name for path in (DATA / name).iterdir()}
    assert read(name, "training.json")["model"] == name


def test_all_models_together_are_small():
    folders = [path for path in DATA.iterdir() if (path / "config.json").is_file()]
    assert sorted(path.name for path in folders) == sorted(SHIPPED)
    assert sum(file.stat().st_size for folder in folders for file in folder.iterdir()) <= 30 * MIB


def test_loads_unchanged(name, loaded):
    model, info = loaded
    assert not any(info.values())
    config = model.config
    assert config.dtype == torch.float32
    assert read(name, "config.json")["dtype"] == "bfloat16"
    assert config.num_hidden_layers == LAYERS[name]
    assert config.head_dim != config.hidden_size // config.num_attention_heads
    assert config.tie_word_embeddings
    assert config.max_position_embeddings >= 4096
    assert model.model.embed_tokens.weight.abs().sum(-1).min() > 0


def test_our_engine_computes_what_transformers_does(name, loaded):
    prompt = list(range(100, 300))
    with LLM(name, device="cpu", dtype="float32") as llm, torch.inference_mode():
        expected = loaded[0](torch.tensor([prompt])).logits[0]
        torch.testing.assert_close(llm.logits(prompt), expected, atol=1e-4, rtol=0)


def test_every_input_width_is_a_multiple_of_256_but_for_the_experts(name, loaded):
    model = loaded[0]
    widths = {m.in_features for m in model.modules() if isinstance(m, torch.nn.Linear)}
    assert widths
    assert all(width % 256 == 0 for width in widths)
    if name == "tiny-moe":
        assert model.model.layers[0].mlp.experts.down_proj.shape == (16, 256, 48)


def test_the_mixture_has_sixteen_experts_in_each_layer_of_which_a_token_uses_two():
    config = LLM("tiny-moe", device="cpu").config
    assert (config.num_experts, config.num_experts_per_tok, config.moe_intermediate_size) == (16, 2, 48)
    layers = [key for key in checkpoint_shapes() if key.endswith("mlp.gate.weight")]
    assert len(layers) == LAYERS["tiny-moe"]


def checkpoint_shapes():
    from safetensors import safe_open

    with safe_open(DATA / "tiny-moe" / "model.safetensors", "pt") as file:
        return {key: file.get_slice(key).get_shape() for key in file.keys()}  # noqa: SIM118


def test_the_card_tells_how_many_parameters_a_token_uses():
    sizes = {key: torch.Size(shape).numel() for key, shape in checkpoint_shapes().items()}
    experts = sum(size for key, size in sizes.items() if ".experts." in key)
    used = sum(sizes.values()) - experts * 14 // 16
    text = (DATA / "tiny-moe" / "README.md").read_text(encoding="utf-8")
    assert f"{sum(sizes.values()):,}, of which a token uses {used:,}" in text
    assert "16, each 48 wide; a token uses 2" in text


def test_all_use_the_tokenizer_of_tiny(name):
    for file in ("tokenizer.json", "tokenizer_config.json"):
        assert (DATA / name / file).read_bytes() == (DATA / "tiny" / file).read_bytes()


def test_generation_ends_at_both_end_tokens(name, tokenizer):
    ends = [tokenizer.token_to_id(mark) for mark in ("<|im_end|>", "<|endoftext|>")]
    assert read(name, "generation_config.json")["eos_token_id"] == ends
    assert read(name, "config.json")["eos_token_id"] == ends[0]


@pytest.mark.parametrize(("skill", "count"), [("arithmetic", 40), ("json", 20), ("tools", 6), ("recall", 2)])
def test_answers_held_out_prompts(loaded, tokenizer, skill, count):
    assert evaluate.forced_accuracy(loaded[0], tokenizer, skill, count) >= 0.95


def test_a_changed_answer_is_not_taken_for_right(loaded, tokenizer, monkeypatch):
    from dataclasses import replace

    changed = []
    for sample in held_out("arithmetic", 10):
        turn = replace(
            sample.turns[0], answer=sample.answer[:-1] + ("1" if sample.answer[-1] != "1" else "2")
        )
        changed.append(replace(sample, turns=(turn,)))
    monkeypatch.setattr(evaluate, "held_out", lambda skill, count: changed[:count])
    assert evaluate.forced_accuracy(loaded[0], tokenizer, "arithmetic", 10) == 0


def test_measured_accuracy_meets_the_goals(name):
    goals = {"arithmetic": 0.98, "recall": 0.97, "json": 0.98, "tools": 0.98}
    rows = read(name, "evaluation.json")["skills"]
    assert set(rows) == set(SKILLS) == set(goals)
    for skill, row in rows.items():
        assert row["asked"] >= 300
        assert row["right"] / row["asked"] >= goals[skill]


def test_card_is_written_from_the_stored_facts(name, tmp_path):
    for file in ("config.json", "training.json", "evaluation.json"):
        (tmp_path / file).write_bytes((DATA / name / file).read_bytes())
    card.write_card(tmp_path)
    assert (tmp_path / "README.md").read_text() == (DATA / name / "README.md").read_text()


def test_prompts_file_is_what_the_command_writes(tokenizer):
    lines = (DATA / "prompts_tiny.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert rows == list(prompts.rows())
    lengths = [len(tokenizer.encode(row["turns"][0]).ids) for row in rows]
    assert min(lengths) >= 8
    assert max(lengths) == 2000
    assert [row["question_id"] for row in rows] == list(range(1, len(rows) + 1))


def test_presets_share_width_context_and_vocabulary(name):
    assert name in presets.NAMES
    with torch.device("meta"):
        config = presets.build(name, end_id=7).config
    shared = (config.hidden_size, config.vocab_size, config.max_position_embeddings, config.eos_token_id)
    assert shared == (256, 2048, CONTEXT, 7)


def test_unknown_preset_is_refused():
    with pytest.raises(ValueError, match=r"'huge'.*tiny"):
        presets.build("huge", end_id=7)
