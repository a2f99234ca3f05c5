"""The shipped model: what is in its folder, how it loads, that it answers; its prompts file."""

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import Qwen3ForCausalLM
from transformers.utils import logging

from training import card, evaluate, presets, prompts
from training.skills import SKILLS, held_out
from training.tokenizer import CONTEXT

DATA = Path(__file__).parents[1] / "data"
FOLDER = DATA / "tiny"
MIB = 2**20


def read(name):
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def loaded():
    logging.disable_progress_bar()
    return Qwen3ForCausalLM.from_pretrained(FOLDER, dtype=torch.float32, output_loading_info=True)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_file(str(FOLDER / "tokenizer.json"))


def test_folder_is_small_and_complete():
    sizes = {path.name: path.stat().st_size for path in FOLDER.iterdir()}
    assert sum(sizes.values()) <= 14 * MIB
    needed = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}
    assert needed | {"tokenizer_config.json", "README.md", "training.json", "evaluation.json"} == set(sizes)


def test_loads_unchanged(loaded):
    model, info = loaded
    assert not any(info.values())
    config = model.config
    assert config.dtype == torch.float32
    assert read("config.json")["dtype"] == "bfloat16"
    assert config.num_hidden_layers >= 8
    assert config.head_dim != config.hidden_size // config.num_attention_heads
    assert config.tie_word_embeddings
    assert config.max_position_embeddings >= 4096
    assert model.model.embed_tokens.weight.abs().sum(-1).min() > 0


def test_every_input_width_is_a_multiple_of_256(loaded):
    widths = {m.in_features for m in loaded[0].modules() if isinstance(m, torch.nn.Linear)}
    assert widths
    assert all(width % 256 == 0 for width in widths)


def test_generation_ends_at_both_end_tokens(tokenizer):
    ends = [tokenizer.token_to_id(mark) for mark in ("<|im_end|>", "<|endoftext|>")]
    assert read("generation_config.json")["eos_token_id"] == ends
    assert read("config.json")["eos_token_id"] == ends[0]


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


def test_measured_accuracy_meets_the_goals():
    goals = {"arithmetic": 0.98, "recall": 0.97, "json": 0.98, "tools": 0.98}
    rows = read("evaluation.json")["skills"]
    assert set(rows) == set(SKILLS) == set(goals)
    for skill, row in rows.items():
        assert row["asked"] >= 300
        assert row["right"] / row["asked"] >= goals[skill]


def test_card_is_written_from_the_stored_facts(tmp_path):
    for name in ("config.json", "training.json", "evaluation.json"):
        (tmp_path / name).write_bytes((FOLDER / name).read_bytes())
    card.write_card(tmp_path)
    assert (tmp_path / "README.md").read_text() == (FOLDER / "README.md").read_text()


def test_prompts_file_is_what_the_command_writes(tokenizer):
    lines = (DATA / "prompts_tiny.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert rows == list(prompts.rows())
    lengths = [len(tokenizer.encode(row["turns"][0]).ids) for row in rows]
    assert min(lengths) >= 8
    assert max(lengths) == 2000
    assert [row["question_id"] for row in rows] == list(range(1, len(rows) + 1))


@pytest.mark.parametrize("name", presets.NAMES)
def test_presets_share_width_context_and_vocabulary(name):
    with torch.device("meta"):
        config = presets.build(name, end_id=7).config
    shared = (config.hidden_size, config.vocab_size, config.max_position_embeddings, config.eos_token_id)
    assert shared == (256, 2048, CONTEXT, 7)


def test_unknown_preset_is_refused():
    with pytest.raises(ValueError, match=r"'huge'.*tiny"):
        presets.build("huge", end_id=7)
