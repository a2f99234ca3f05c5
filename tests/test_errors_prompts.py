"""Bad prompts and prompts files, through the command line and the API; each after a good one was answered."""

import json
import os

import numpy as np
import pytest
from command_line import CONTEXT, VOCABULARY, fails, good_model, prompts_file, succeeds

from minillm import LLM, SamplingParams
from minillm.errors import InputError

SHORT = ("--max-new-tokens", "1")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return good_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """The same without its tokenizer."""
    return good_model(tmp_path_factory.mktemp("bare"), tokenizer=False)


@pytest.fixture
def ask(model, tmp_path, capsys):
    """`ask(*lines)` → the one line that a prompts file of these raw lines gives, after a good file."""

    def run(*lines: str | bytes, says: tuple[str, ...], to=model) -> str:
        file = prompts_file(tmp_path / "prompts.jsonl", {"token_ids": [1, 2]})
        succeeds(capsys, "generate", to, "--prompts", file, *SHORT)
        file.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines))
        return fails(capsys, 2, "generate", to, "--prompts", file, *SHORT, says=says)

    return run


# ---- what the model cannot take ----


def test_text_without_a_tokenizer(bare, capsys, tmp_path):
    file = prompts_file(tmp_path / "ids.jsonl", {"token_ids": [1, 2]})
    succeeds(capsys, "generate", bare, "--prompts", file, *SHORT)
    fails(capsys, 2, "generate", bare, "--prompt", "Hi", *SHORT, says=("no tokenizer", "token ids"))
    with LLM(bare) as llm, pytest.raises(InputError, match="no tokenizer"):
        llm.generate("Hi")


def test_chat_without_a_tokenizer(bare, model, capsys):
    succeeds(capsys, "generate", model, "--prompt", "Hi", "--chat", *SHORT)
    fails(capsys, 2, "generate", bare, "--prompt", "Hi", "--chat", *SHORT, says=("tokenizer", str(bare)))


def test_it_is_told_before_weights_are_made(bare, capsys, tmp_path, monkeypatch):
    """Eight billion random weights take minutes."""
    file = prompts_file(tmp_path / "both.jsonl", {"turns": ["Hi"], "token_ids": [1, 2]})

    def too_late(*_, **__):
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(LLM, "__init__", too_late)
    for model in ("random:Qwen3-8B", bare):
        fails(capsys, 2, "generate", model, "--prompt", "Hi", says=(f"{model} has no tokenizer", "--prompts"))
        fails(capsys, 2, "generate", model, "--prompts", file, "--chat", says=("line 1", "leave --chat out"))
        fails(capsys, 2, "chat", model, says=("no tokenizer",))


def test_chat_with_ids_alone(model, bare, ask, capsys, tmp_path):
    both = prompts_file(tmp_path / "both.jsonl", {"turns": ["Hi"], "token_ids": [1, 2]})
    ids = prompts_file(tmp_path / "ids.jsonl", {"turns": ["Hi"]}, {"token_ids": [1, 2]})
    succeeds(capsys, "generate", model, "--prompts", both, "--chat", *SHORT)
    succeeds(capsys, "generate", bare, "--prompts", both, *SHORT)
    fails(capsys, 2, "generate", model, "--prompts", ids, "--chat", says=("ids.jsonl line 2", "--chat"))
    fails(capsys, 2, "generate", bare, "--prompts", both, "--chat", says=("both.jsonl line 1", "tokenizer"))


HI = {"role": "user", "content": "Hi"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}


@pytest.mark.parametrize(
    ("messages", "named"),
    [
        ([], "messages are"),
        ("hello", "messages are 'hello'"),
        (None, "messages are None"),
        ([HI, "hello"], "message 1 is 'hello'"),
        ([{"content": "Hi"}], "message 0"),
        ([{"role": 5, "content": "Hi"}], "message 0"),
        ([HI, {"role": "user"}], "message 1 has content None"),
        ([HI, {"role": "user", "content": None}], "message 1 has content None"),
        ([{"role": "user", "content": 5}], "message 0 has content 5"),
        ([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], "message 0 has content"),
        ([{"role": "user", "content": "a\ud800"}], "not Unicode"),
    ],
)
def test_messages_that_are_none(model, messages, named):
    with LLM(model) as llm:
        assert llm.chat_prompt([HI]) == llm.chat_prompt((HI,))
        assert len(llm.chat_prompt([HI, CALL])) > len(llm.chat_prompt([HI]))
        with pytest.raises(InputError, match=named) as caught:
            llm.chat_prompt(messages)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "template", ["{{ 1 / 0 }}", "{% if %}", "{{ raise_exception('no') }}", "{{ m.n.o }}"]
)
def test_a_template_that_fails_is_an_error_of_the_models(tmp_path, template, capsys):
    folder = good_model(tmp_path / "broken")
    settings = json.loads((folder / "tokenizer_config.json").read_text()) | {"chat_template": template}
    succeeds(capsys, "generate", folder, "--prompt", "Hi", "--chat", *SHORT)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    fails(capsys, 2, "generate", folder, "--prompt", "Hi", "--chat", *SHORT, says=("chat template cannot",))


def test_tools_that_are_none(model):
    with LLM(model) as llm:
        tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
        assert llm.chat_prompt([HI], tools=[tool])
        with pytest.raises(InputError, match="chat template cannot render"):
            llm.chat_prompt([HI], tools=[5])


def test_chat_without_a_template(model, tmp_path, capsys):
    folder = good_model(tmp_path / "plain")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    del settings["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    succeeds(capsys, "generate", folder, "--prompt", "Hi", *SHORT)
    fails(capsys, 2, "generate", folder, "--prompt", "Hi", "--chat", *SHORT, says=("template", "--chat"))


def test_an_empty_prompt(model, capsys, ask):
    succeeds(capsys, "generate", model, "--prompt", " ", *SHORT)
    fails(capsys, 2, "generate", model, "--prompt", "", *SHORT, says=("empty",))
    ask('{"turns": [""]}', says=("empty",))
    ask('{"token_ids": []}', says=("empty",))


def test_a_prompt_as_long_as_the_context_is_answered_and_one_longer_is_not(model, capsys):
    succeeds(capsys, "generate", model, "--prompt", "x" * CONTEXT, *SHORT)
    says = (str(CONTEXT + 1), f"context of {CONTEXT}", "shorten")
    fails(capsys, 2, "generate", model, "--prompt", "x" * (CONTEXT + 1), *SHORT, says=says)
    limit = ("--max-model-len", "20")
    succeeds(capsys, "generate", model, "--prompt", "x" * 20, *SHORT, *limit)
    fails(capsys, 2, "generate", model, "--prompt", "x" * 21, *SHORT, *limit, says=("21", "20"))


@pytest.mark.parametrize("token", [-1, VOCABULARY, 10**30])
def test_a_token_id_out_of_range(bare, ask, token):
    last = f'{{"token_ids": [{VOCABULARY - 1}]}}'
    line = ask(last, f'{{"token_ids": [1, {token}]}}', to=bare, says=(str(token), f"0 to {VOCABULARY - 1}"))
    assert "prompts.jsonl line 2" in line, "the first prompt is good"


def test_bytes_that_are_no_text(model, capsys):
    succeeds(capsys, "generate", model, "--prompt", "é", *SHORT)
    raw = os.fsdecode(b"abc\xff")  # how Python hands over what the shell passed
    fails(capsys, 2, "generate", model, "--prompt", raw, *SHORT, says=("--prompt", "UTF-8", "3"))
    with LLM(model) as llm, pytest.raises(InputError, match="not Unicode at character 3"):
        llm.generate(raw)


def test_ids_may_be_a_tuple_and_numpys(model):
    params = SamplingParams(max_tokens=2)
    with LLM(model) as llm:
        (wanted,) = llm.generate([3, 4, 5], params)
        for prompt in ((3, 4, 5), list(np.array([3, 4, 5])), ([3, 4, 5],), [(3, 4, 5)]):
            (output,) = llm.generate(prompt, params)
            assert (output.prompt_token_ids, output.token_ids) == (wanted.prompt_token_ids, wanted.token_ids)
            assert {type(token) for token in output.prompt_token_ids} == {int}


BAD_PROMPTS = [
    None,
    5,
    [],
    [[]],
    [None],
    [1, "a"],
    [["a"]],
    [[1.0]],
    [True],
    {"a": 1},
    "",
    [["a", 1]],
    b"Hi",
    (True, 3),
    [3, None],
]


@pytest.mark.parametrize("prompts", BAD_PROMPTS, ids=repr)
def test_the_api_refuses_what_is_no_prompt(model, prompts):
    params = SamplingParams(max_tokens=1)
    with LLM(model) as llm:
        assert len(llm.generate(["Hi", [1, 2]], params)) == 2
        fed = llm.tokens_fed
        with pytest.raises(InputError, match="prompt"):
            llm.generate(prompts, params)
        assert llm.tokens_fed == fed, "all prompts are checked before any is run"


def test_the_api_refuses_ids_without_end_or_place(model):
    with LLM(model) as llm:
        assert llm.logits([1, 2]).shape == (2, VOCABULARY)
        for bad in ([], [VOCABULARY], [-1], None, [1] * (CONTEXT + 1)):
            with pytest.raises(InputError):
                llm.logits(bad)


# ---- the file ----


def test_the_file_is_missing_or_a_folder(model, tmp_path, capsys, ask):
    missing = tmp_path / "missing.jsonl"
    for path in (missing, tmp_path):
        fails(capsys, 2, "generate", model, "--prompts", path, says=(str(path)[:40], "cannot read"))


@pytest.mark.parametrize("name", ["", "x" * 5000])
def test_a_name_that_is_no_files(model, capsys, name):
    line = fails(capsys, 2, "generate", model, "--prompts", name, says=("prompts file", repr(name)[:20]))
    assert len(line) < 200


def test_the_file_is_not_utf8(ask):
    ask('{"turns": ["é"]}', b'{"turns": ["\xe9"]}', says=("prompts.jsonl line 2", "UTF-8"))


@pytest.mark.parametrize("empty", ["", "\n \n"])
def test_the_file_holds_no_prompt(ask, empty):
    ask(empty, says=("prompts.jsonl", "no prompts"))


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("{", "JSON"),
        ("not json", "JSON"),
        ("5", "turns"),
        ("[1, 2]", "turns"),
        ('"turns"', "turns"),
        ("{}", "turns"),
        ('{"prompt": "Hi"}', "token_ids"),
        ('{"turns": "Hi"}', "turns"),
        ('{"turns": []}', "turns"),
        ('{"turns": [5]}', "turns"),
        ('{"turns": null}', "turns"),
        ('{"token_ids": "1 2"}', "token_ids"),
        ('{"token_ids": [1.5]}', "token_ids"),
        ('{"token_ids": [true]}', "token_ids"),
        ('{"token_ids": null}', "token_ids"),
        ('{"turns": ["Hi"], "token_ids": {}}', "token_ids"),
        ('{"turns": ["\\ud800"]}', "turns"),
        ("[" * 100_000, "JSON"),
        ('{"token_ids": [%s]}' % ("9" * 5000), "digits"),
        ('{"turns": ["Hi"]} {"turns": ["Hi"]}', "JSON"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_answered(ask, line, named):
    ask('{"turns": ["Hi"]}', "", line, says=("prompts.jsonl line 3", named))
