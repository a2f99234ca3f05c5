"""The judge of greedy answers: equal, a tie, wrong; on logits made by hand."""

import pytest
import torch

from experiments.greedy import Comparison, compare, first_difference, largest_gap
from experiments.reference import Greedy

PROMPT = [5, 6]
VOCAB = 10


def logits_with(best: dict[int, tuple[int, ...]]):
    """A reference whose best tokens after `position` new ones are given; all others are 1 below."""

    def logits(token_ids: list[int]) -> torch.Tensor:
        rows = torch.zeros(len(token_ids), VOCAB)
        for position in range(len(token_ids) - len(PROMPT) + 1):
            rows[len(PROMPT) - 1 + position, list(best.get(position, ()))] = 1.0
        return rows

    return logits


def never(token_ids: list[int]) -> torch.Tensor:
    raise AssertionError("the reference was asked although the answers are equal")


def judge(ours, theirs, margins, logits, limit=3, eos=()) -> Comparison:
    return compare(PROMPT, ours, Greedy(theirs, margins), logits, limit, eos)


def test_equal_answers_are_right():
    verdict = judge([1, 2, 3], [1, 2, 3], [1.0, 1.0, 1.0], never)
    assert verdict == Comparison(True)
    assert not verdict.tie


def test_difference_at_a_clear_margin_is_wrong():
    verdict = judge([1, 4, 3], [1, 2, 3], [1.0, 0.5, 1.0], logits_with({}))
    assert not verdict.right
    assert (verdict.position, verdict.margin) == (1, 0.5)
    assert "4, not 2" in verdict.note


def test_difference_at_a_tie_is_right_when_the_rest_follows():
    verdict = judge([1, 4, 7], [1, 2, 3], [1.0, 1e-5, 1.0], logits_with({0: (1,), 1: (2, 4), 2: (7,)}))
    assert verdict.right
    assert verdict.tie
    assert verdict.position == 1


def test_tie_does_not_excuse_what_comes_after():
    verdict = judge([1, 4, 8], [1, 2, 3], [1.0, 1e-5, 1.0], logits_with({0: (1,), 1: (2, 4), 2: (7,)}))
    assert not verdict.right


def test_tie_does_not_excuse_a_third_token():
    verdict = judge([1, 9, 7], [1, 2, 3], [1.0, 1e-5, 1.0], logits_with({0: (1,), 1: (2, 4), 2: (7,)}))
    assert not verdict.right


@pytest.mark.parametrize(("ours", "theirs"), [([1, 2], [1, 2, 3]), ([1, 2, 3], [1, 2])])
def test_answer_of_another_length_is_wrong(ours, theirs):
    verdict = judge(ours, theirs, [1e-9] * len(theirs), never)
    assert not verdict.right
    assert "tokens, not" in verdict.note


def test_after_a_tie_an_answer_still_has_to_end_rightly():
    follows = logits_with({0: (1,), 1: (2, 4), 2: (7,)})
    margins = [1.0, 1e-5, 1.0]
    assert judge([1, 4], [1, 2, 3], margins, follows, eos=(4,)).right
    assert not judge([1, 4], [1, 2, 3], margins, follows).right
    assert not judge([1, 4, 7], [1, 2, 3], margins, follows, eos=(4,)).right


@pytest.mark.parametrize(
    ("a", "b", "position"), [([1, 2], [1, 2], None), ([1, 3], [1, 2], 1), ([1], [1, 2], 1)]
)
def test_first_difference(a, b, position):
    assert first_difference(a, b) == position


def test_largest_gap_reads_the_row_before_each_token():
    follows = logits_with({0: (1,), 1: (2,)})
    assert largest_gap(PROMPT, [1, 2], follows) == 0.0
    assert largest_gap(PROMPT, [1, 3], follows) == 1.0
    assert largest_gap(PROMPT, [0, 2], follows, start=1) == 0.0
