"""`chat`: what the model is given in each turn, and how it ends."""

import io
import sys

import pytest
from command_line import fails, good_model, interrupt_after, succeeds

from minillm import LLM
from minillm.__main__ import main


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return good_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def talk(model, monkeypatch, capsys):
    """`talk(lines, *options)` → (stdout, the messages of each turn)."""
    turns = []
    template = LLM.chat_prompt

    def recorded(self, messages, *rest, **keywords):
        turns.append([dict(message) for message in messages])
        return template(self, messages, *rest, **keywords)

    monkeypatch.setattr(LLM, "chat_prompt", recorded)

    def run(lines: str, *options: str) -> tuple[str, list]:
        turns.clear()
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
        return succeeds(capsys, "chat", model, "--max-new-tokens", "5", *options), turns

    return run


def test_each_turn_holds_the_conversation_so_far(talk):
    out, turns = talk("Hi\n\nAnd?\n/exit\nnever asked\n")
    first = turns[1][1]["content"]
    assert turns == [
        [{"role": "user", "content": "Hi"}],
        [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": first},
            {"role": "user", "content": "And?"},
        ],
    ]
    assert out.startswith(first + "\n")
    assert len(first) > 0


def test_a_system_message_comes_first_and_the_end_of_input_ends_it(talk):
    _, turns = talk("Hi", "--system", "Be brief.")
    assert turns == [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]]


def test_ctrl_c_cuts_the_answer_and_the_conversation_goes_on(talk, monkeypatch):
    whole, _ = talk("Hi\n")
    interrupt_after(monkeypatch, decodes=2)
    out, turns = talk("Hi\nAnd?\n")
    kept = turns[1][1]["content"]
    assert whole.startswith(kept)
    assert len(kept) < len(whole.strip("\n"))
    assert out.startswith(f"{kept} …\n")


def test_ctrl_c_keeps_also_what_was_held_back(talk, monkeypatch):
    whole, _ = talk("Hi\n")
    text = whole.removesuffix("\n")
    interrupt_after(monkeypatch, decodes=4)
    out, turns = talk("Hi\nAnd?\n", "--max-new-tokens", "50", "--stop", text[-1] + "never")
    assert out.startswith(f"{text} …\n")
    assert turns[1][1]["content"] == text


def test_clear_forgets_all_but_the_system_message(talk):
    system, hi = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}
    _, turns = talk("Hi\nHi\n/clear\nHi\n", "--system", "Be brief.")
    assert [len(turn) for turn in turns] == [2, 4, 2]
    assert turns[2] == [system, hi]


def test_ctrl_c_at_the_prompt_ends_it_with_130(model, monkeypatch, capsys):
    class Interrupted(io.StringIO):
        def readline(self, *_):
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", Interrupted())
    assert main(["chat", str(model)]) == 130
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "minillm: interrupted: the work was cut short\n"


def test_a_message_beyond_the_context_is_one_line(model, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("x" * 600))
    fails(capsys, 2, "chat", model, says=("context of 512", "shorten", "/clear"))


def test_on_a_terminal_it_is_told_and_the_conversation_goes_on(model, monkeypatch, capsys):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("x" * 600 + "\nHi\n"))
    assert main(["chat", str(model), "--max-new-tokens", "5"]) == 0
    out, err = capsys.readouterr()
    assert err.count("\n") == 1
    assert "512" in err
    assert len(out.replace("> ", "").strip()) > 0


def test_chat_needs_a_tokenizer(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hi\n"))
    fails(capsys, 2, "chat", good_model(tmp_path, tokenizer=False), says=("tokenizer", str(tmp_path)))
