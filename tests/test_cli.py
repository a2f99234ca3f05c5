"""The option table against the API, and `generate` against what the API returns."""

import argparse
import inspect
import json
from dataclasses import fields

import pytest
from command_line import fails, good_model, interrupt_after, prompts_file, succeeds

from minillm import LLM, SamplingParams
from minillm.__main__ import main
from minillm.cli import options
from minillm.cli.parser import make_parser
from minillm.engine import MAX_GROUP
from minillm.errors import RunError
from minillm.quant.fit import CANDIDATES
from minillm.quant.formats import FORMATS
from minillm.quant.mix import NONE


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return good_model(tmp_path_factory.mktemp("model"))


# ---- options ----


def test_options_are_the_keywords_of_llm():
    parameters = list(inspect.signature(LLM).parameters.values())[1:]  # the first is the model itself
    assert [(o.keyword, o.default) for o in options.LLM_OPTIONS] == [(p.name, p.default) for p in parameters]


def test_options_are_the_fields_of_sampling_params():
    of_class = {field.name: field.default for field in fields(SamplingParams)}
    of_class.pop("seed")  # --seed is LLM's, which gives each request one of its own
    assert {o.keyword: o.default for o in options.SAMPLING_OPTIONS} == of_class


def test_names_are_the_keywords_with_hyphens_and_one_exception():
    every = options.LLM_OPTIONS + options.SAMPLING_OPTIONS
    odd = [(o.keyword, o.name) for o in every if o.name != "--" + o.keyword.replace("_", "-")]
    assert odd == [("max_tokens", "--max-new-tokens")]


VALUES = {
    "device": ("cpu", "cpu"),
    "dtype": ("bfloat16", "bfloat16"),
    "offload": ("none", "none"),
    "quantize": ("int4", "int4"),
    "gpu_memory_gib": ("7.5", 7.5),
    "link_gb_s": ("12", 12.0),
    "temperature": ("0.5", 0.5),
    "top_p": (".9", 0.9),
    "min_p": ("0.1", 0.1),
    "repetition_penalty": ("1.1", 1.1),
    "stop": ("end", ["end"]),
    "stop_token_ids": ("3,1", [3, 1]),
}


@pytest.mark.parametrize("command", ["generate", "chat"])
def test_every_option_reaches_the_api_under_its_keyword(command):
    argv = [command, "m"] + (["--prompt", "x"] if command == "generate" else [])
    nothing = make_parser().parse_args(argv)
    assert (options.llm_keywords(nothing), options.sampling_keywords(nothing)) == ({}, {})
    wanted = {}
    for option in options.LLM_OPTIONS + options.SAMPLING_OPTIONS:
        text, value = VALUES.get(option.keyword, ("7", 7))
        if option.action == "store_true":
            argv, wanted[option.keyword] = [*argv, option.name], True
        else:
            argv, wanted[option.keyword] = [*argv, option.name, text], value
    args = make_parser().parse_args(argv)
    assert options.llm_keywords(args) | options.sampling_keywords(args) == wanted
    assert options.llm_keywords(args)["seed"] == 7
    assert "seed" not in options.sampling_keywords(args)


def test_help_has_every_format_and_the_grammar_of_a_mix():
    (option,) = [option for option in options.LLM_OPTIONS if option.keyword == "quantize"]
    for part in (*FORMATS, NONE, "attn=FORMAT", "mlp=FORMAT", "layers.A-B=FORMAT"):
        assert part in option.help
    with_budget = help_of("quantize", "budget_gib")
    assert all(name in with_budget for name in CANDIDATES)


def test_help_says_which_models_a_command_reads():
    assert "GGUF" in help_of("generate", "model")
    assert "GGUF" not in help_of("quantize", "model")
    assert "a folder, a hub id" in help_of("quantize", "model")


def help_of(command: str, option: str) -> str:
    (commands,) = [each for each in make_parser()._actions if isinstance(each, argparse._SubParsersAction)]
    (action,) = [each for each in commands.choices[command]._actions if each.dest == option]
    return action.help


def test_stop_can_be_given_again():
    args = make_parser().parse_args(["generate", "m", "--prompt", "x", "--stop", "a", "--stop", "b, c"])
    assert options.sampling_keywords(args) == {"stop": ["a", "b, c"]}


# ---- generate ----


def test_one_prompt_is_streamed_as_the_text_that_the_api_gives(model, capsys):
    printed = succeeds(capsys, "generate", model, "--prompt", "Hé", "--max-new-tokens", "20")
    with LLM(model) as llm:
        (output,) = llm.generate("Hé", SamplingParams(max_tokens=20))
    assert printed == output.text + "\n"


def test_chat_applies_the_template_and_nothing_else_does(model, capsys):
    short = ("--max-new-tokens", "3", "--json")
    raw = json.loads(succeeds(capsys, "generate", model, "--prompt", "Hi", *short))
    chat = json.loads(succeeds(capsys, "generate", model, "--prompt", "Hi", "--chat", *short))
    with LLM(model) as llm:
        assert raw["prompt_token_ids"] == llm.tokenizer.encode("Hi")
        assert chat["prompt_token_ids"] == llm.chat_prompt([{"role": "user", "content": "Hi"}])


def test_json_holds_what_the_api_gives(model, tmp_path, capsys):
    file = prompts_file(tmp_path / "p.jsonl", {"turns": ["one", "not asked"]}, {"token_ids": [1, 2, 3]})
    settings = ("--max-new-tokens", "6", "--temperature", "0.8", "--seed", "5")
    lines = succeeds(capsys, "generate", model, "--prompts", file, "--json", *settings).splitlines()
    rows = [json.loads(line) for line in lines]
    params = SamplingParams(max_tokens=6, temperature=0.8)
    with LLM(model, seed=5) as llm:
        outputs = llm.generate(["one", [1, 2, 3]], params)
    for index, (row, output) in enumerate(zip(rows, outputs, strict=True)):
        metrics = row.pop("metrics")
        assert row == {
            "index": index,
            "prompt_token_ids": output.prompt_token_ids,
            "token_ids": output.token_ids,
            "text": output.text,
            "finish_reason": output.finish_reason,
        }
        assert metrics["num_generated"] == len(output.token_ids)
        assert metrics["ttft_s"] == metrics["prefill_latency_s"] > 0
        assert metrics["decode_tokens_per_s"] > 0
        assert metrics["peak_memory_bytes"] is None


def many_prompts(path):
    return prompts_file(path, *({"token_ids": [1 + i % 7, 2]} for i in range(MAX_GROUP + 2)))


def test_a_file_of_many_prompts_is_answered_as_in_one_call(model, tmp_path, capsys):
    file = many_prompts(tmp_path / "p.jsonl")
    settings = ("--max-new-tokens", "3", "--temperature", "2", "--seed", "0", "--json")
    rows = list(
        map(json.loads, succeeds(capsys, "generate", model, "--prompts", file, *settings).splitlines())
    )
    with LLM(model, seed=0) as llm:
        prompts = [[1 + i % 7, 2] for i in range(MAX_GROUP + 2)]
        outputs = llm.generate(prompts, SamplingParams(max_tokens=3, temperature=2.0))
    assert [row["token_ids"] for row in rows] == [output.token_ids for output in outputs]
    assert [row["index"] for row in rows] == list(range(MAX_GROUP + 2))
    assert rows[0]["token_ids"] != rows[7]["token_ids"], "equal prompts draw differently"


def test_an_error_later_loses_no_answer(model, tmp_path, capsys, monkeypatch):
    generate, calls = LLM.generate, []

    def second_fails(self, prompts, params):
        calls.append(len(prompts))
        if len(calls) == 2:
            raise RunError("no memory left")
        return generate(self, prompts, params)

    monkeypatch.setattr(LLM, "generate", second_fails)
    command = ["generate", str(model), "--prompts", str(many_prompts(tmp_path / "p.jsonl")), "--json"]
    assert main([*command, "--max-new-tokens", "1"]) == 1
    out, err = capsys.readouterr()
    assert [json.loads(row)["index"] for row in out.splitlines()] == list(range(MAX_GROUP))
    assert err == "minillm: error: no memory left\n"


def test_every_prompt_is_checked_before_the_first_is_answered(model, tmp_path, capsys):
    rows = [{"token_ids": [1]}] * (MAX_GROUP + 1)
    file = prompts_file(tmp_path / "p.jsonl", *rows, {"token_ids": [999]})
    fails(capsys, 2, "generate", model, "--prompts", file, says=(f"line {MAX_GROUP + 2} has token id 999",))


def test_a_rate_that_is_undefined_is_null(model, capsys):
    row = json.loads(succeeds(capsys, "generate", model, "--prompt", "Hi", "--max-new-tokens", "1", "--json"))
    assert row["metrics"]["decode_tokens_per_s"] is None
    assert row["metrics"]["num_generated"] == 1


def test_several_prompts_are_printed_in_order_with_a_header(model, tmp_path, capsys):
    file = prompts_file(tmp_path / "p.jsonl", {"turns": ["one"]}, {"turns": ["two, longer"]})
    printed = succeeds(capsys, "generate", model, "--prompts", file, "--max-new-tokens", "4")
    with LLM(model) as llm:
        outputs = llm.generate(["one", "two, longer"], SamplingParams(max_tokens=4))
    assert printed == "".join(
        f"[{i}/2] length, 4 tokens\n{output.text}\n\n" for i, output in enumerate(outputs, start=1)
    )


def test_text_counts_where_there_is_a_tokenizer_and_ids_where_there_is_none(model, tmp_path, capsys):
    file = prompts_file(tmp_path / "p.jsonl", {"turns": ["Hi"], "token_ids": [1, 2]})
    command = ("--prompts", file, "--max-new-tokens", "3", "--json")
    row = json.loads(succeeds(capsys, "generate", model, *command))
    with LLM(model) as llm:
        assert row["prompt_token_ids"] == llm.tokenizer.encode("Hi")
    bare = good_model(tmp_path / "bare", tokenizer=False)
    row = json.loads(succeeds(capsys, "generate", bare, *command))
    assert row["prompt_token_ids"] == [1, 2]
    assert row["text"] is None
    ids = " ".join(map(str, row["token_ids"]))
    assert succeeds(capsys, "generate", bare, *command[:-1]) == f"{ids} \n"


def test_a_file_may_have_blank_lines_a_mark_at_its_start_and_lines_ends_of_windows(model, tmp_path, capsys):
    file = tmp_path / "p.jsonl"
    file.write_bytes('\ufeff{"turns": ["é"]}\r\n\r\n{"turns": ["b\u2028"]}'.encode())
    rows = succeeds(
        capsys, "generate", model, "--prompts", file, "--max-new-tokens", "1", "--json"
    ).splitlines()
    with LLM(model) as llm:
        assert [json.loads(row)["prompt_token_ids"] for row in rows] == [
            llm.tokenizer.encode("é"),
            llm.tokenizer.encode("b\u2028"),
        ]


def test_ctrl_c_writes_also_what_was_held_back(model, capsys, monkeypatch):
    with LLM(model) as llm:
        (output,) = llm.generate("Hi", SamplingParams(max_tokens=4))
    stop = output.text[-1] + "never"  # the last character may begin it, so it is not shown at once
    command = ["generate", str(model), "--prompt", "Hi", "--stop", stop]
    interrupt_after(monkeypatch, decodes=3)
    assert main(command) == 130
    out, err = capsys.readouterr()
    assert out == output.text + "\n"
    assert err == "minillm: interrupted: the text so far is kept\n"


def test_ctrl_c_among_several_prompts_prints_what_is_there_and_gives_130(
    model, tmp_path, capsys, monkeypatch
):
    file = prompts_file(tmp_path / "p.jsonl", {"turns": ["one"]}, {"turns": ["two"]})
    command = ["generate", str(model), "--prompts", str(file), "--max-new-tokens", "9", "--json"]
    whole = [json.loads(line) for line in succeeds(capsys, *command).splitlines()]
    interrupt_after(monkeypatch, decodes=3)
    assert main(command) == 130
    out, err = capsys.readouterr()
    assert err == "minillm: interrupted: the text so far is kept\n"
    for row, full in zip(map(json.loads, out.splitlines()), whole, strict=True):
        assert row["finish_reason"] == "abort"
        assert row["token_ids"] == full["token_ids"][:4]
