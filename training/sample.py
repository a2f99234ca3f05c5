"""One training text as turns: what is given, what has to be answered; and the chat format around it."""

import json
from dataclasses import dataclass

END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
NO_THOUGHT = "<think>\n\n</think>\n\n"

TOOLS_HEAD = "# Tools\n\nYou can call these functions:\n<tools>\n"
TOOLS_TAIL = (
    "\n</tools>\n\nTo call one, answer with its name and arguments as JSON between tags:\n"
    '<tool_call>\n{"name": NAME, "arguments": {...}}\n</tool_call>'
)


@dataclass(frozen=True)
class Turn:
    """`prompt` is fed to the model, `answer` is what it should then write before the sample's end token."""

    prompt: str
    answer: str


@dataclass(frozen=True)
class Sample:
    """A text of one or more turns.

    `keys` name the contents that training and held-out prompts must not share: the operand pair of a sum, the
    list of a recall, the sentence to extract from, the request to a tool, a chat's task on a list of words.
    `end` closes every answer: the end of a chat turn, or the end of a raw text.
    """

    skill: str
    keys: tuple[str, ...]
    turns: tuple[Turn, ...]
    end: str = TURN_END

    @property
    def prompt(self):
        """Text of the first turn's prompt, chat format included."""
        return self.turns[0].prompt

    @property
    def answer(self):
        """Text expected after `prompt`, without the end token."""
        return self.turns[0].answer

    def segments(self):
        """(text, is_answer) pairs in order; answers hold their end token."""
        for turn in self.turns:
            yield turn.prompt, False
            yield turn.answer + self.end, True


def ask(text, system=None, tools=None):
    """A conversation's opening: system part if any, the user's `text`, the assistant's turn begun."""
    head = system_part(system, tools)
    return f"{head}{TURN_START}user\n{text}{TURN_END}\n{TURN_START}assistant\n"


def ask_again(text):
    """The user's next turn, to follow an answer that was closed by the end of a chat turn."""
    return f"\n{TURN_START}user\n{text}{TURN_END}\n{TURN_START}assistant\n"


def tool_answer(result):
    """The next turn when a tool, not the user, answers: `result` is anything that JSON can hold."""
    return ask_again(f"<tool_response>\n{json.dumps(result)}\n</tool_response>")


def tool_call(name, arguments):
    """An assistant's answer that calls tool `name`; `arguments` is a dict."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def system_part(system, tools):
    """The system turn that holds the instructions and the tools' signatures; empty if there is neither."""
    if tools:
        signatures = "\n".join(json.dumps(tool) for tool in tools)
        before = f"{system}\n\n" if system else ""
        return f"{TURN_START}system\n{before}{TOOLS_HEAD}{signatures}{TOOLS_TAIL}{TURN_END}\n"
    return f"{TURN_START}system\n{system}{TURN_END}\n" if system else ""
