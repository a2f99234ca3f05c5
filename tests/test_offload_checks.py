"""Checks of the offloading experiments: from rows written down here, against figures computed on paper."""

import pytest

from experiments.offload_checks import locked_checks, over, pace, peak_checks, row_table, same_checks
from minillm.units import GIB


def figures(checks):
    return {c["name"]: (c["value"], c["met"]) for c in checks}


@pytest.mark.parametrize(
    ("value", "other", "ratio"), [(3.0, 2.0, 1.5), (None, 2.0, None), (3.0, None, None), (3.0, 0, None)]
)
def test_ratio_of_what_is_missing_is_missing(value, other, ratio):
    assert over(value, other) == ratio


def test_pace_leaves_the_first_token_out_and_compares_thirds():
    assert pace([9.0, 1.0, 1.0, 1.0, 5.0, 5.0, 5.0, 2.0, 2.0, 2.0]) == 2.0
    assert pace([9.0, 1.0, 1.0, 1.0, 1.0]) == 1.0
    assert pace([9.0, 1.0, 1.0]) is None
    assert pace([]) is None


def peak(predicted, measured, cap=None):
    sizes = {"predicted_peak_bytes": predicted, "peak_bytes": measured, "held_bytes": measured}
    return {"cap_gib": cap, **sizes}


def test_peaks_are_judged_by_the_worst_row_in_both_directions():
    checks = figures(peak_checks("m", [peak(100, 100), peak(97, 100), peak(101, 100)]))
    assert checks["m: predicted over measured peak memory, lowest"] == (0.97, False)
    assert checks["m: predicted over measured peak memory, highest"] == (1.01, True)
    assert len(checks) == 2  # nothing had a cap


def test_cap_counts_what_libraries_hold():
    row = peak(GIB, GIB, cap=2.0) | {"held_bytes": 3 * GIB}
    assert figures(peak_checks("m", [row]))["m: peak memory over the cap, highest"] == (1.5, False)
    row = peak(GIB, GIB, cap=2.0)
    assert figures(peak_checks("m", [row]))["m: peak memory over the cap, highest"] == (0.5, True)


def test_locked_memory_is_judged_where_some_is_locked():
    assert locked_checks([{"locked_bytes": None, "asked_bytes": 100}]) == []
    (value, met), *_ = figures(locked_checks([{"locked_bytes": 128, "asked_bytes": 100}])).values()
    assert (value, met) == (1.28, False)


def generation(answer, question_id, copied=7):
    return {"answer": answer, "question_id": question_id, "copied_bytes_a_pass": copied, "streamed_bytes": 7}


def test_answers_are_compared_prompt_by_prompt():
    name = "every placement wrote the same tokens"
    same = [generation("a", 1), generation("b", 2), generation("a", 1)]
    assert figures(same_checks(same))[name] == (1, True)
    assert figures(same_checks([*same, generation("a", 2)]))[name] == (0, False)


def test_bytes_that_were_not_scheduled_are_seen():
    name = "bytes copied a pass are the schedule's"
    assert figures(same_checks([generation("a", 1)]))[name] == (1, True)
    assert figures(same_checks([generation("a", 1, copied=8)]))[name] == (0, False)


def test_table_shows_what_there_is():
    rows = [
        {"key": "a/1", "tokens_per_s": 5.9386, "resident": 12, "peak_bytes": GIB * 3 // 2},
        {"key": "b", "tokens_per_s": None},
        {"key": "c", "tokens_per_s": 1364.28},
    ]
    head, first, second, third = row_table(rows).splitlines()
    assert head.split() == ["resident", "tok/s", "peak,", "GiB"]
    assert first.split() == ["a/1", "12", "5.94", "1.5"]
    assert second.split() == ["b", "-", "-", "-"]
    assert third.split() == ["c", "-", "1,364", "-"]
