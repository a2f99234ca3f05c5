"""The shipped tokenizer and chat template, loaded by transformers, against text that we wrote out by hand."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoTokenizer

from training import extraction, tools, words
from training.sample import ask, ask_again, tool_answer, tool_call
from training.skills import held_out, training_random
from training.tokenizer import CONTROL, MARKS, TEMPLATE, VOCABULARY

FOLDER = Path(__file__).parents[1] / "data" / "tiny"
WEATHER = {"type": "function", "function": {"name": "weather", "description": "Is it <wet>?"}}

CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Rain in Zürich?"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nI look.", "tool_calls": [
        {"type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich", "days": 2}}},
        {"name": "weather", "arguments": '{"city": "Bern"}'},
    ]},
    {"role": "tool", "content": "wet"},
    {"role": "tool", "content": "dry"},
    {"role": "assistant", "content": "In one of them."},
    {"role": "user", "content": "Thanks!"},
]  # fmt: skip
EXPECTED = """<|im_start|>system
Be brief.

# Tools

You can call these functions:
<tools>
{"type": "function", "function": {"name": "weather", "description": "Is it <wet>?"}}
</tools>

To call one, answer with its name and arguments as JSON between tags:
<tool_call>
{"name": NAME, "arguments": {...}}
</tool_call><|im_end|>
<|im_start|>user
Rain in Zürich?<|im_end|>
<|im_start|>assistant
I look.
<tool_call>
{"name": "weather", "arguments": {"city": "Zürich", "days": 2}}
</tool_call>
<tool_call>
{"name": "weather", "arguments": {"city": "Bern"}}
</tool_call><|im_end|>
<|im_start|>user
<tool_response>
wet
</tool_response>
<tool_response>
dry
</tool_response><|im_end|>
<|im_start|>assistant
In one of them.<|im_end|>
<|im_start|>user
Thanks!<|im_end|>
<|im_start|>assistant
"""


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(FOLDER)


TOKENIZER = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))


@given(st.text() | st.text(alphabet=" \n\t0a<|im_end>é世🙂\u200d"))
def test_any_text_comes_back(text):
    ids = TOKENIZER.encode(text).ids
    assert TOKENIZER.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize(
    "text",
    ["Hello 世界 🙂👩‍👩‍👧", "  two  spaces\n\n\ttab", "naïve café e\u0301", "<tool_call> a <|im_end|>\n"],
)
def test_text_comes_back_through_transformers(tokenizer, text):
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_size_and_alphabet():
    vocabulary = TOKENIZER.get_vocab()
    assert len(vocabulary) <= VOCABULARY
    assert sorted(vocabulary.values()) == list(range(len(vocabulary)))
    assert len(ByteLevel.alphabet()) == 256
    assert set(ByteLevel.alphabet()) <= set(vocabulary)


def test_a_token_holds_one_digit_at_most():
    assert not [t for t in TOKENIZER.get_vocab() if sum(c.isdigit() for c in t) and len(t) > 1]
    assert TOKENIZER.encode("x20269").tokens[1:] == list("20269")


def test_special_tokens_are_single_and_known(tokenizer):
    for mark in CONTROL + MARKS:
        assert len(TOKENIZER.encode(mark).ids) == 1
    assert (tokenizer.eos_token, tokenizer.pad_token, tokenizer.bos_token) == (
        "<|im_end|>",
        "<|endoftext|>",
        None,
    )
    assert (
        tokenizer.decode(tokenizer("a<|im_end|><tool_call>")["input_ids"], skip_special_tokens=True)
        == "a<tool_call>"
    )


def test_recall_keys_are_one_token_and_its_prompt_2000():
    assert [key for key in words.KEYS if len(TOKENIZER.encode(key).ids) != 1] == []
    assert {len(TOKENIZER.encode(s.prompt).ids) for s in held_out("recall", 20)} == {2000}


def test_template_writes_what_we_expect(tokenizer):
    text = tokenizer.apply_chat_template(
        CONVERSATION, tools=[WEATHER], tokenize=False, add_generation_prompt=True
    )
    assert text == EXPECTED


def test_template_without_system_tools_or_thinking(tokenizer):
    def apply(**options):
        return tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False, **options)

    assert apply() == "<|im_start|>user\nHi<|im_end|>\n"
    assert apply(add_generation_prompt=True) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    quiet = apply(add_generation_prompt=True, enable_thinking=False)
    assert quiet.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


def test_stored_template_is_the_source():
    stored = json.loads((FOLDER / "tokenizer_config.json").read_text(encoding="utf-8"))["chat_template"]
    assert stored == TEMPLATE.read_text(encoding="utf-8").rstrip("\n")


def test_generators_write_what_the_template_writes(tokenizer):
    signatures = [tool.signature() for tool in tools.TOOLS[:3]]
    arguments = {"city": "Oslo", "day": "Monday"}
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Rain?"},
        {"role": "assistant", "content": "", "tool_calls": [{"name": "get_weather", "arguments": arguments}]},
        {"role": "tool", "content": json.dumps({"degrees": 3})},
        {"role": "assistant", "content": "No."},
        {"role": "user", "content": "Sure?"},
    ]
    ours = ask("Rain?", "Be kind.", signatures) + tool_call("get_weather", arguments) + "<|im_end|>"
    ours += tool_answer({"degrees": 3}) + "No.<|im_end|>" + ask_again("Sure?")
    text = tokenizer.apply_chat_template(
        messages, tools=signatures, tokenize=False, add_generation_prompt=True
    )
    assert text == ours


def test_names_that_were_never_seen_are_written():
    rng = training_random(0)
    assert any(words.surname(rng) not in words.LAST_NAMES for _ in range(50))
    assert len({extraction.full_name(rng) for _ in range(200)}) > 150
