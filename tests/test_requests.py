"""What engines are asked, and the figures of an answer, on paper."""

import pytest

from experiments import requests
from experiments.prompt_files import read_lines
from experiments.requests import Answer, Request


@pytest.mark.parametrize(
    ("count", "indices"),
    [
        (1, [10]),
        (2, [0, 19]),
        (3, [0, 10, 19]),
        (4, [0, 6, 13, 19]),
        (20, list(range(20))),
        (99, list(range(20))),
    ],
)
def test_prompts_are_spread_from_the_shortest_to_the_longest(count, indices):
    assert requests.spread(count) == indices
    lines = read_lines("prompts.jsonl")
    assert len(lines) == requests.SHARED
    assert len(lines[0]["token_ids"]) == min(len(line["token_ids"]) for line in lines)
    assert len(lines[19]["token_ids"]) == max(len(line["token_ids"]) for line in lines)


def test_answers_are_asked_of_the_shared_prompts():
    first, last = requests.generations("M/e/resident", 1000, [0, 19], 7)
    line = read_lines("prompts.jsonl")[19]
    assert (first.key, last.key) == ("M/e/resident/0", "M/e/resident/19")
    assert last.question_id == line["question_id"]
    assert last.prompt == [each % 1000 for each in line["token_ids"]]
    assert (last.new_tokens, last.repeats, last.whole_context) == (7, 1, False)


def test_a_prefill_makes_one_token_and_is_repeated():
    short, long = requests.prefills("M/e", 10**6, [5, 9000])
    assert (long.key, len(long.prompt), long.new_tokens) == ("M/e/prefill/9000", 9000, 1)
    assert short.prompt == long.prompt[:5] == read_lines("prompts.jsonl")[0]["token_ids"][:5]
    assert long.repeats > 1


def test_most_memory_is_a_long_prompt_and_the_whole_context():
    request = requests.peak("M/e/uva", 100, 40)
    assert (request.key, len(request.prompt), request.new_tokens) == ("M/e/uva/peak", 40, 2)
    assert request.whole_context
    assert max(request.prompt) < 100


def test_decoding_is_counted_from_the_second_token_on():
    answer = Answer(token_ids=[1, 2, 3, 4, 5], ttft_s=0.5, total_s=2.5)
    assert answer.tokens_per_s == 2.0
    assert Answer([1], 0.5, 0.5).tokens_per_s is None


def test_figures_are_medians_of_the_repeats_and_the_most_memory():
    request = Request("k", [1, 2], 2, repeats=3)
    answers = [Answer([4, 5], ttft, ttft + 0.5, peak) for ttft, peak in ((0.3, 10), (0.1, 30), (0.2, None))]
    found = requests.figures(request, answers)
    assert (found["ttft_s"], found["ttft_best_s"], found["repeats"]) == (0.2, 0.1, 3)
    assert found["tokens_per_s"] == pytest.approx(2.0)
    assert (found["peak_bytes"], found["reserved_bytes"]) == (30, None)
    assert "graph_replays" not in found
    assert requests.figures(request, [Answer([4, 5], 0.1, 0.2, graph_replays=1)])["graph_replays"] == 1


def test_short_answers_come_first_and_are_not_counted():
    asked = []

    def answer(request):
        asked.append((request.new_tokens, request.whole_context))
        return Answer(list(range(request.new_tokens)), 1.0 / len(asked), 2.0)

    row = requests.measured(Request("k", [1], 9, repeats=2, whole_context=True), answer)
    assert asked == [(3, True), (3, True), (9, True), (9, True)]
    assert row["ttft_s"] == pytest.approx((1 / 3 + 1 / 4) / 2)
    assert row["key"] == "k"
    assert row["seconds"] > 0


def test_an_answer_of_another_length_is_no_measurement():
    with pytest.raises(RuntimeError, match="k: 4 tokens, asked for 9"):
        requests.measured(Request("k", [1], 9), lambda request: Answer([1, 2, 3, 4], 0.1, 0.2))
