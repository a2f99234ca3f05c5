"""data/prompts.jsonl: MT-Bench's question schema, and token ids by Qwen3's own tokenizer."""

import json
import os
from pathlib import Path

import pytest

PROMPTS = Path(__file__).parent.parent / "data" / "prompts.jsonl"
MT_BENCH_CATEGORIES = {
    "writing",
    "roleplay",
    "reasoning",
    "math",
    "coding",
    "extraction",
    "stem",
    "humanities",
}
QWEN3_VOCABULARY = 151_936
# Qwen3's published ids for this text; they tell its tokenizer from any other.
KNOWN_TEXT, KNOWN_IDS = "Hello 世界", [9707, 220, 99489]


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return [json.loads(line) for line in PROMPTS.read_text(encoding="utf-8").splitlines()]


def test_schema(rows):
    assert len(rows) == 20
    assert [row["question_id"] for row in rows] == list(range(1, 21))
    assert {row["category"] for row in rows} == MT_BENCH_CATEGORIES
    for row in rows:
        assert set(row) == {"question_id", "category", "turns", "token_ids"}
        assert row["turns"]
        assert all(isinstance(turn, str) and turn.strip() == turn != "" for turn in row["turns"])


def test_ids_are_in_the_vocabulary(rows):
    for row in rows:
        assert all(type(i) is int and 0 <= i < QWEN3_VOCABULARY for i in row["token_ids"])


def test_lengths_are_spread(rows):
    lengths = sorted(len(row["token_ids"]) for row in rows)
    assert lengths[0] == 8
    assert 1_400 <= lengths[-1] <= 1_500
    assert sum(length <= 50 for length in lengths) >= 5
    assert sum(100 <= length <= 450 for length in lengths) >= 5
    assert sum(length >= 700 for length in lengths) >= 4


def test_some_are_chinese(rows):
    chinese = [row for row in rows if any("\u4e00" <= letter <= "\u9fff" for letter in row["turns"][0])]
    assert len(chinese) >= 3


def test_ids_are_those_of_qwen3s_tokenizer(rows):
    path = os.environ.get("QWEN3_TOKENIZER_JSON")
    if not path:
        pytest.skip(
            "QWEN3_TOKENIZER_JSON is not set: CONTRIBUTING.md says where to get Qwen3's tokenizer.json"
        )
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(path)
    assert tokenizer.encode(KNOWN_TEXT).ids == KNOWN_IDS
    for row in rows:
        assert tokenizer.encode(row["turns"][0], add_special_tokens=False).ids == row["token_ids"]
        assert tokenizer.decode(row["token_ids"], skip_special_tokens=False) == row["turns"][0]
