"""The answers to exercises: right, a hint, or a word on what happened; never an exception."""

import pytest

from minillm.exercises import SKIPPED, check


def answer(capsys, name, given, expected, hints=None):
    ok = check(name, given, expected, hints)
    return ok, capsys.readouterr().out.strip()


def test_right(capsys):
    assert answer(capsys, "sum", lambda: 42, 42) == (True, "sum: right.")
    assert answer(capsys, "rate", lambda: 10.0004, 10.0) == (True, "rate: right.")
    assert answer(capsys, "list", lambda: [1, 2], [1, 2]) == (True, "list: right.")


@pytest.mark.parametrize(("given", "hint"), [(5.12, "A copy reads and writes."), (9.5, "GiB is not GB.")])
def test_known_mistakes_get_their_hint(capsys, given, hint):
    hints = {"A copy reads and writes.": 5.12, "GiB is not GB.": 9.5}
    assert answer(capsys, "rate", lambda: given, 10.24, hints) == (
        False,
        f"rate: not yet, it gave {given}. {hint}",
    )


@pytest.mark.parametrize("given", [10.3, None, "10.24", [10.24], True])
def test_other_mistakes_show_what_came(capsys, given):
    ok, text = answer(capsys, "rate", lambda: given, 10.24, {"hint": 5.12})
    assert not ok
    assert repr(given) in text


def test_unanswered(capsys):
    def stub():
        raise NotImplementedError

    assert answer(capsys, "sum", stub, 42) == (False, f"sum: {SKIPPED}")


def test_error_in_the_answer_is_named(capsys):
    ok, text = answer(capsys, "sum", lambda: 1 / 0, 42)
    assert not ok
    assert "ZeroDivisionError" in text
