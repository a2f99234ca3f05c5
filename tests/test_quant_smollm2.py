"""A real GGUF file of the Llama family against transformers' own reading of it, tensors, tokens and text."""

import json

import pytest
import torch
from llama_forward import Llama
from smollm2 import smollm2  # noqa: F401 - a fixture

from experiments import gguf_parity
from minillm import LLM, SamplingParams
from minillm.quant.gguf import blocks, names
from minillm.quant.gguf.config import read_config
from minillm.quant.gguf.file import GGUFFile
from minillm.quant.gguf.tokenizer import read_tokenizer

TEXTS = [
    "The capital of France is",
    "def add(a, b):\n    return a + b\n\n\nclass  Thing :\n\tpass",
    "Ünïcode: 中文字符, emoji 🙂, a\u0301 and  trailing spaces   ",
    "<|im_start|>user\nWhat's the time? I'll don't know.<|im_end|>\n<|im_start|>assistant\n",
]
PROMPTS = ["What is the capital of France?", "Write one sentence about the sea."]


@pytest.fixture(scope="module")
def file(smollm2) -> GGUFFile:  # noqa: F811
    return GGUFFile(smollm2)


@pytest.fixture(scope="module")
def reference(smollm2):  # noqa: F811
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(smollm2.parent, gguf_file=smollm2.name, dtype=torch.float32)


@pytest.fixture(scope="module")
def ours(file, reference) -> dict[str, torch.Tensor]:
    """The file's tensors, dequantised by us."""
    state = reference.state_dict()
    shapes = {name: tuple(state[name].shape) for name in state if name != "lm_head.weight"}  # tied
    return {
        name: blocks.dequantise(stored.format, names.rows_of(file, name, stored)).view(stored.shape)
        for name, stored in names.match(file, shapes).items()
    }


@pytest.fixture(scope="module")
def tokenizer(file):
    return read_tokenizer(file)


def test_what_the_file_holds(file):
    kinds = [stored.format.name for stored in file.tensors.values()]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "gguf-Q4_1": 210,
        "gguf-F32": 61,
        "gguf-Q8_0": 1,
    }


def test_configuration(file, reference):
    values = read_config(file)
    for key in values.keys() - {"dtype", "eos_token_id"}:
        assert values[key] == getattr(reference.config, key), key
    assert values["eos_token_id"] == [reference.config.eos_token_id]


def test_every_tensor_is_that_of_transformers(ours, reference):
    state = reference.state_dict()
    assert len(ours) == 272
    for name, value in ours.items():
        assert torch.equal(value, state[name]), name


def test_greedy_tokens_are_those_of_transformers(file, ours, reference, tokenizer):
    model = Llama(read_config(file), ours)
    for prompt in PROMPTS:
        messages = [{"role": "user", "content": prompt}]
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        with torch.inference_mode():
            expected = reference.generate(
                torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), max_new_tokens=8, do_sample=False
            )
            assert model.greedy(ids, 8) == expected[0, len(ids) :].tolist()


def test_the_engine_gives_transformers_tokens_in_every_placement(smollm2, tmp_path, monkeypatch):  # noqa: F811
    """Three short answers; all ten, 64 tokens each, are in the result of the experiment."""
    monkeypatch.setattr(gguf_parity, "STREAMED_ANSWERS", 1)
    ask = [
        "--file",
        str(smollm2),
        "--out",
        str(tmp_path),
        "--machine",
        "test",
        "--prompts",
        "3",
        "--tokens",
        "12",
    ]
    assert gguf_parity.main(ask) == 0
    written = json.loads((tmp_path / "gguf__test.json").read_text())
    assert [row["key"] for row in written["rows"]][:4] == ["tensors", "answer/00", "answer/01", "answer/02"]
    assert all(row["equal"] and row["max_logit_error"] < 1e-3 for row in written["rows"][1:4])
    streamed = [row for row in written["rows"] if "equal_logits" in row]
    assert len(streamed) == 9
    layer = written["rows"][0]["layer_bytes"] // 30
    assert {row["bytes_copied"] % layer for row in streamed} == {0}


def test_the_model_knows_the_capital_of_france(file, ours, tokenizer):
    with torch.inference_mode():
        answer = Llama(read_config(file), ours).greedy(tokenizer(TEXTS[0])["input_ids"], 1)
    assert tokenizer.decode(answer) == " Paris"


def test_the_engine_answers_by_default_as_in_float32(smollm2):  # noqa: F811
    """In bfloat16 the two best first tokens are a rounding apart, and the answer is nonsense."""
    with LLM(smollm2, device="cpu", max_model_len=256) as llm:
        question = llm.chat_prompt([{"role": "user", "content": PROMPTS[0]}])
        (output,) = llm.generate(question, SamplingParams(max_tokens=8))
    assert output.text == "The capital of France is Paris."


def test_wrong_row_order_would_be_noticed(file, ours, tokenizer):
    """The control: with q as the file stores it the model has lost its mind."""
    name = "model.layers.{}.self_attn.q_proj.weight"
    spoilt = {
        name.format(i): blocks.dequantise(stored.format, stored.packed)
        for i in range(30)
        for stored in [file.tensors[f"blk.{i}.attn_q.weight"]]
    }
    with torch.inference_mode():
        answer = Llama(read_config(file), ours | spoilt).greedy(tokenizer(TEXTS[0])["input_ids"], 1)
    assert tokenizer.decode(answer) != " Paris"


def test_text_is_split_as_by_transformers(smollm2, tokenizer):  # noqa: F811
    """Its reading of the file ignores that SmolLM2 splits digits, so these texts have none."""
    from transformers import AutoTokenizer

    other = AutoTokenizer.from_pretrained(smollm2.parent, gguf_file=smollm2.name)
    for text in TEXTS:
        assert tokenizer(text)["input_ids"] == other(text)["input_ids"], text


def test_digits_are_tokens_of_their_own(tokenizer):
    tokens = tokenizer.convert_ids_to_tokens(tokenizer("In 1984, 3.14159 ²")["input_ids"])
    assert tokens[:7] == ["In", "Ġ", "1", "9", "8", "4", ","]
    assert not [token for token in tokens if sum(character.isdigit() for character in token) > 1]


@pytest.mark.parametrize("text", [*TEXTS, "1984 + 16 = 2000\r\n\n\n  x"])
def test_decoding_gives_the_text_back(tokenizer, text):
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_special_tokens_and_chat_template(tokenizer):
    assert (tokenizer.eos_token, tokenizer.bos_token_id, tokenizer.pad_token_id) == ("<|im_end|>", 1, 2)
    assert len(tokenizer) == 49152
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], add_generation_prompt=True, tokenize=False
    )
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer("<|im_start|>user")["input_ids"][0] == 1
    assert tokenizer.decode([1, 2], skip_special_tokens=True) == ""
