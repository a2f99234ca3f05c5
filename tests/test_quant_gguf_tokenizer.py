"""Tokenizers from GGUF files against transformers' own classes, on a small vocabulary made here."""

import json
import os
from pathlib import Path

import gguf
import pytest
from gguf_files import make_llama, write_gguf
from hypothesis import given, settings
from hypothesis import strategies as st

from minillm.errors import InputError
from minillm.quant.gguf.file import GGUFFile
from minillm.quant.gguf.tokenizer import read_tokenizer

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
ADDED = {"<|endoftext|>": CONTROL, "<|im_start|>": CONTROL, "<|im_end|>": CONTROL, "<think>": USER_DEFINED}
TEMPLATE = "{% for message in messages %}<|im_start|>{{ message['content'] }}<|im_end|>{% endfor %}"
TEXTS = [
    "Don't say it's 1984, they'LL hear 12345 of you!\n\n\n  x = y+=3;\r\n\tz  ",
    "中文字符 and ünïcode, emoji 🙂🙂",
    "<|im_start|>user\nHi<|im_end|><think>ok</think>",
    "",
]


@pytest.fixture(scope="module")
def vocabulary() -> tuple[list[str], list[str]]:
    """Tokens and merges of a byte-level BPE trained on this repository's prose."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False)
    root = Path(__file__).resolve().parent.parent
    texts = [(root / name).read_text() for name in ("README.md", "CONTRIBUTING.md", "requirements.txt")]
    tokenizer.train_from_iterator([*texts, " ".join(map(str, range(1500, 2100)))], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), [" ".join(pair) for pair in model["merges"]]


def put(writer, keys: dict) -> None:
    """Write keys of any type, over what is there."""
    for key, value in keys.items():
        for held in writer.kv_data:
            held.pop(key, None)
        writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))


@pytest.fixture(scope="module")
def make_file(tmp_path_factory, vocabulary):
    """`make_file(split, **changes)` → path of a small Llama with a tokenizer; a change of None leaves out.

    `more`: keys and values that are written over what is there.
    """

    def make(split: str = "qwen2", more: dict | None = None, **changes) -> Path:
        tokens, merges = vocabulary
        keys = {
            "tokenizer_model": "gpt2",
            "tokenizer_pre": split,
            "token_list": [*tokens, *ADDED, "[PAD1]"],
            "token_types": [NORMAL] * len(tokens) + [*ADDED.values(), UNUSED],
            "token_merges": merges,
            "pad_token_id": len(tokens),
            "bos_token_id": len(tokens) + 1,
            "chat_template": TEMPLATE,
        } | changes
        keys = {key: value for key, value in keys.items() if value is not None}
        path = tmp_path_factory.mktemp("tokens") / "model.gguf"
        return write_gguf(path, make_llama(), tokenizer=keys, extra=lambda writer: put(writer, more or {}))

    return make


@pytest.mark.parametrize("split", ["qwen2", "llama-bpe", "gpt-2"])
def test_text_is_split_as_by_transformers(make_file, split):
    from transformers import AutoTokenizer

    path = make_file(split)
    ours = read_tokenizer(GGUFFile(path))
    other = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    for text in TEXTS:
        ids = ours(text, add_special_tokens=False)["input_ids"]
        assert ids == other(text, add_special_tokens=False)["input_ids"], text
        assert ours.decode(ids) == text


def test_smollm_splits_off_each_digit_and_gpt2_none(make_file):
    tokens = {}
    for split in ("smollm", "gpt-2"):
        ours = read_tokenizer(GGUFFile(make_file(split)))
        tokens[split] = ours.convert_ids_to_tokens(ours("it 1984")["input_ids"])
    assert tokens["smollm"] == ["it", "Ġ", "1", "9", "8", "4"]
    assert tokens["gpt-2"][1].startswith("Ġ1")


@pytest.fixture(scope="module")
def both(make_file, vocabulary) -> tuple:
    """Ours from a file and transformers' class of Qwen2 and Qwen3, from the same lists."""
    from transformers import Qwen2Tokenizer

    tokens, merges = vocabulary
    theirs = Qwen2Tokenizer(
        vocab={token: index for index, token in enumerate([*tokens, *ADDED])},
        merges=[tuple(merge.split()) for merge in merges],
    )
    theirs.add_special_tokens({"additional_special_tokens": [t for t in ADDED if ADDED[t] == CONTROL]})
    return read_tokenizer(GGUFFile(make_file("qwen2"))), theirs


@given(text=st.text(max_size=40))
@settings(max_examples=150, deadline=None)
def test_qwen2_is_transformers_qwen2(both, text):
    ours, theirs = both
    assert ours(text)["input_ids"] == theirs(text)["input_ids"]


def test_an_end_token_that_is_ordinary_text_stays_text(make_file, vocabulary):
    ours = read_tokenizer(GGUFFile(make_file("qwen2")))
    ordinary = vocabulary[0][2]  # the file's eos_token_id is 2
    assert ours.eos_token is None
    assert ordinary not in ours.all_special_tokens
    assert ours.decode(ours(ordinary)["input_ids"], skip_special_tokens=True) == ordinary


def test_composed_characters_are_one(both):
    """Qwen's tokenizer puts an accent and its letter together before anything else."""
    ours, _ = both
    assert ours("cafe\u0301")["input_ids"] == ours("caf\u00e9")["input_ids"]


def test_special_added_and_unused_tokens(make_file, vocabulary):
    ours, first = read_tokenizer(GGUFFile(make_file())), len(vocabulary[0])
    assert ours("<|im_start|><think><|im_end|>")["input_ids"] == [first + 1, first + 3, first + 2]
    assert ours.decode([first + 1, first + 3], skip_special_tokens=True) == "<think>"
    assert "[PAD1]" not in ours.get_vocab()
    assert (ours.pad_token, ours.eos_token_id, ours.unk_token) == ("<|endoftext|>", None, None)


def test_text_begins_with_bos_where_the_model_wants_it(make_file, vocabulary):
    def first(**keys) -> bool:
        return read_tokenizer(GGUFFile(make_file(**keys)))("hi")["input_ids"][0] == len(vocabulary[0]) + 1

    assert not first()
    assert first(add_bos_token=True)
    assert first(split="llama-bpe")  # Llama 3's files need not say so
    assert not first(split="llama-bpe", add_bos_token=False)


def test_the_chat_template_is_the_files(make_file):
    ours = read_tokenizer(GGUFFile(make_file()))
    text = ours.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
    assert text == "<|im_start|>Hi<|im_end|>"
    assert not read_tokenizer(GGUFFile(make_file(chat_template=None))).chat_template


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"tokenizer_model": "llama"},
            "has a 'llama' tokenizer: minillm reads gpt2 (byte-level BPE); give token ids",
        ),
        (
            {"split": "viking"},
            "splits text in the way 'viking': minillm knows qwen2, llama-bpe, smollm, gpt-2",
        ),
        ({"tokenizer_model": None}, "has no tokenizer.ggml.model"),
        ({"token_types": [1, 1, 1]}, "with 3 types: each token needs one type"),
        ({"token_list": ["a"] * 705}, "705 tokens, 1 of them different"),
        ({"token_merges": ["zz yy"]}, "the tokenizer's lists contradict each other"),
        ({"token_merges": ["lonely"]}, "the tokenizer's lists contradict each other"),
        ({"pad_token_id": 9999}, "padding_token_id is 9999: it must be below 705"),
    ],
)
def test_tokenizers_that_are_refused(make_file, changes, line):
    with pytest.raises(InputError) as error:
        read_tokenizer(GGUFFile(make_file(**changes)))
    assert line in str(error.value)
    assert "\n" not in str(error.value)


KEY = "tokenizer.ggml."
LISTS = ("tokens", "token_type", "merges")
NO_LIST = [5, True, 1.5, "abc"]
WRONG = (
    [(f"{KEY}{name}", value, "must be a list of") for name in LISTS for value in NO_LIST]
    + [(f"{KEY}{name}", [value], "must be a list of texts") for name in LISTS[::2] for value in NO_LIST[:3]]
    + [
        (f"{KEY}token_type", [value] * 705, "must be a list of whole numbers from 1 to 6")
        for value in ("a", 1.5, 99, 0, -1, True)
    ]
    + [(f"{KEY}add_bos_token", value, "must be true or false") for value in ("x", 1, [True], 0.0)]
    + [(f"{KEY}bos_token_id", value, "must be below 705") for value in ("x", True, 1.0, [1], -1)]
    + [("tokenizer.chat_template", value, "must be a text") for value in (5, ["a"], True)]
)


@pytest.mark.parametrize("without", [{}, {"bos_token_id": None, "chat_template": None}])
@pytest.mark.parametrize(("key", "value", "line"), WRONG)
def test_keys_of_another_type_are_refused_by_name(make_file, key, value, line, without):
    with pytest.raises(InputError) as error:
        read_tokenizer(GGUFFile(make_file("llama-bpe", more={key: value}, **without)))
    text = str(error.value)
    assert key.removeprefix(KEY) in text
    assert line in text
    assert "contradict" not in text
    assert "\n" not in text


def test_qwen3s_own_tokenizer(tmp_path):
    """The published one, written into a file as llama.cpp's converter does, and read back."""
    from tokenizers import Tokenizer

    source = os.environ.get("QWEN3_TOKENIZER_JSON")
    if not source:
        pytest.skip("QWEN3_TOKENIZER_JSON does not name Qwen3's tokenizer.json")
    theirs = Tokenizer.from_file(source)
    stored = json.loads(Path(source).read_text())
    added = {
        token["content"]: CONTROL if token["special"] else USER_DEFINED for token in stored["added_tokens"]
    }
    tokens = sorted(theirs.get_vocab(), key=theirs.get_vocab().get)
    keys = {
        "tokenizer_model": "gpt2",
        "tokenizer_pre": "qwen2",
        "token_list": tokens,
        "token_types": [added.get(token, NORMAL) for token in tokens],
        "token_merges": [m if isinstance(m, str) else " ".join(m) for m in stored["model"]["merges"]],
    }
    ours = read_tokenizer(GGUFFile(write_gguf(tmp_path / "qwen3.gguf", make_llama(), tokenizer=keys)))
    prompts = (Path(__file__).resolve().parent.parent / "data" / "prompts.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in prompts]
    for row in rows:
        assert ours(row["turns"][0])["input_ids"] == row["token_ids"]
    for text in [*TEXTS, "cafe\u0301"]:
        assert ours(text)["input_ids"] == theirs.encode(text).ids
    assert len(rows) == 20
