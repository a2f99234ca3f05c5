"""Streaming text: whole characters only, stop strings never shown, and the sum is the whole."""

from hypothesis import given
from hypothesis import strategies as st

from minillm.text_stream import TextStream


class Bytes:
    """A tokenizer whose tokens are single bytes: every multi-byte character is split."""

    def decode(self, ids):
        return bytes(ids).decode("utf-8", errors="replace")


def stream(data, stop=()):
    text = TextStream(Bytes(), stop)
    deltas = []
    for byte in data:
        deltas.append(text.push(byte))
        if text.stopped:
            break
    return text, [*deltas, text.finish()]


@given(st.text())
def test_any_text_comes_out_whole_and_in_whole_characters(text):
    whole, deltas = stream(text.encode())
    assert "".join(deltas) == whole.text == text
    assert all("\ufffd" not in delta for delta in deltas) or "\ufffd" in text


@given(st.binary(max_size=40))
def test_broken_bytes_come_out_in_the_end(data):
    whole, deltas = stream(data)
    assert "".join(deltas) == whole.text == data.decode("utf-8", errors="replace")


@given(st.text("abc", max_size=30), st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3))
def test_stop_strings_end_the_text_and_are_never_shown(text, stop):
    whole, deltas = stream(text.encode(), tuple(stop))
    # The first stop to be complete, character by character, is where an ideal reader stops.
    for end in range(len(text) + 1):
        found = [end - len(s) for s in stop if text[:end].endswith(s)]
        if found:
            assert whole.stopped
            assert whole.text == text[: min(found)]
            break
    else:
        assert not whole.stopped
        assert whole.text == text
    assert "".join(deltas) == whole.text


def test_text_is_held_back_only_while_it_may_become_a_stop():
    text = TextStream(Bytes(), ("END",))
    shown = [text.push(byte) for byte in b"aEbENc"]
    assert shown == ["a", "", "Eb", "", "", "ENc"]
    assert text.finish() == ""


def test_a_character_appears_with_its_last_byte():
    text = TextStream(Bytes())
    assert [text.push(byte) for byte in "é中".encode()] == ["", "é", "", "", "中"]
