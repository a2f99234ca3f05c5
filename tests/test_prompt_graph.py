"""Lengths that prompts are filled up to, and the room for it in a cache."""

from hypothesis import given
from hypothesis import strategies as st

from minillm.prompt_graph import LONGEST, filled_up, with_room


@given(tokens=st.integers(1, 100_000))
def test_a_length_is_filled_up_by_at_most_a_quarter_or_63_tokens(tokens):
    width = filled_up(tokens)
    assert tokens <= width <= max(tokens + 63, tokens * 5 // 4)
    assert filled_up(width) == width


@given(capacity=st.integers(1, 2 * LONGEST), tokens=st.integers(1, 2 * LONGEST))
def test_a_prompt_that_fits_can_be_filled_up(capacity, tokens):
    room = with_room(capacity)
    assert capacity <= room <= max(capacity, LONGEST)
    if tokens <= min(capacity, LONGEST):
        assert filled_up(tokens) <= room
