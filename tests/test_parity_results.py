"""The results writer: checks from values, rows stored at once, continuing only what is the same run."""

import json

import pytest

from experiments import machine
from experiments.results import Results, all_met, check, report, reported, table, write_json


@pytest.fixture(autouse=True)
def quick_description(monkeypatch):
    """Bandwidths take seconds and are tested elsewhere."""
    monkeypatch.setattr(
        machine, "describe", lambda: {"date": "now", "commit": "abc", "command": "python -m x"}
    )


@pytest.mark.parametrize(
    ("value", "goal", "better", "met"),
    [
        (0.98, 0.98, "higher", True),
        (0.97, 0.98, "higher", False),
        (1.1, 1.1, "lower", True),
        (1.2, 1.1, "lower", False),
        (True, True, "higher", True),
        (False, True, "higher", False),
        (None, 1.0, "lower", False),
        (float("nan"), 1.0, "lower", False),
        (3.0, None, "higher", None),
    ],
)
def test_check_compares_with_its_goal(value, goal, better, met):
    assert check("x", value, goal, better)["met"] is met


def test_check_stores_numbers():
    assert check("x", True, True) == {"name": "x", "value": 1, "goal": 1, "better": "higher", "met": True}
    assert check("x", float("inf"), 1.0, "lower")["value"] is None


def test_check_refuses_a_third_direction():
    with pytest.raises(ValueError, match="'higher' or 'lower'"):
        check("x", 1, 1, "better")


def test_one_missed_goal_is_enough():
    reported, met, missed = check("a", 1), check("b", 1, 1), check("c", 1, 2)
    assert all_met([reported, met])
    assert not all_met([reported, met, missed])


def test_table_marks_what_is_missed():
    lines = table([check("speed", 1.5, 2.0), check("size", 1, 2, "lower"), check("count", 7)]).splitlines()
    assert lines[1].split() == ["speed", "1.5", ">=", "2", "NO"]
    assert lines[2].split() == ["size", "1", "<=", "2", "yes"]
    assert lines[3].split() == ["count", "7"]


def test_finished_file_holds_rows_and_checks(tmp_path, capsys):
    results = Results("toy", "box", tmp_path, {"n": 1})
    results.row("a", lambda: {"speed": 2.0})
    checks = [check("speed", 2.0, 3.0)]
    assert report(results.finish(checks), checks) == 1
    assert "NO" in capsys.readouterr().out
    stored = json.loads((tmp_path / "toy__box.json").read_text())
    assert stored["experiment"] == "toy"
    assert stored["machine"] == "box"
    assert stored["commit"] == "abc"
    assert stored["checks"] == checks
    assert stored["rows"][0]["key"] == "a"
    assert stored["rows"][0]["speed"] == 2.0
    assert list(tmp_path.iterdir()) == [tmp_path / "toy__box.json"]


def test_short_report_leaves_out_what_has_no_goal(tmp_path, capsys):
    checks = [check("speed", 2.0, 1.0), check("count", 7)]
    assert report(tmp_path / "x.json", checks, short=True) == 0
    shown = capsys.readouterr().out
    assert "speed" in shown
    assert "count" not in shown


def test_a_row_is_there_by_its_whole_key(tmp_path):
    results = Results("x", "box", tmp_path)
    results.row("8B/resident-eager", dict)
    assert results.has("8B/resident-eager")
    assert not results.has("8B/resident")


def cut_short(folder, settings):
    """A run that measured "a" and then died in "b"."""
    results = Results("toy", "box", folder, settings)
    results.row("a", lambda: {"speed": 2.0})
    with pytest.raises(KeyboardInterrupt):
        results.row("b", interrupted)


def interrupted():
    raise KeyboardInterrupt


def test_cut_short_run_continues_at_the_first_missing_row(tmp_path):
    cut_short(tmp_path, {"n": 1})
    results = Results("toy", "box", tmp_path, {"n": 1})
    assert results.row("a", interrupted)["speed"] == 2.0
    assert results.row("b", lambda: {"speed": 3.0})["speed"] == 3.0
    stored = json.loads(results.finish([]).read_text())
    assert [row["key"] for row in stored["rows"]] == ["a", "b"]
    assert [run["command"] for run in stored["earlier_runs"]] == ["python -m x"]


def test_cut_short_run_continues_from_another_folder(tmp_path):
    cut_short(tmp_path / "first", {"n": 1})
    results = Results("toy", "box", tmp_path / "second", {"n": 1}, resume=tmp_path / "first")
    assert [row["key"] for row in results.rows()] == ["a"]


def test_finished_part_is_continued_where_it_is_named(tmp_path):
    results = Results("toy", "box", tmp_path)
    results.row("a", lambda: {"speed": 2.0})
    results.finish([check("speed", 2.0)])
    assert Results("toy", "box", tmp_path).rows() == []  # a new run, not a part
    results = Results("toy", "box", tmp_path / "second", resume=tmp_path)
    results.row("b", lambda: {"speed": 3.0})
    stored = json.loads(results.finish([check("speed", 3.0)]).read_text())
    assert [row["key"] for row in stored["rows"]] == ["a", "b"]
    assert [c["value"] for c in stored["checks"]] == [3.0]
    assert "checks" not in stored["earlier_runs"][0]


def test_second_result_of_a_command_shares_the_description(tmp_path, monkeypatch):
    first = Results("toy", "box", tmp_path)
    monkeypatch.setattr(machine, "describe", lambda: pytest.fail("measured again"))
    second = Results("other", "box", tmp_path, about=first.description)
    assert second.content["commit"] == "abc"
    assert second.content["experiment"] == "other"


def test_reported_figures_have_nothing_to_meet():
    assert reported([check("speed", 1, 2)]) == [check("speed", 1)]


@pytest.mark.parametrize("change", ["settings", "commit"])
def test_another_run_starts_again(tmp_path, monkeypatch, capsys, change):
    cut_short(tmp_path, {"n": 1})
    if change == "commit":
        monkeypatch.setattr(machine, "describe", lambda: {"commit": "def", "command": "python -m x"})
    results = Results("toy", "box", tmp_path, {"n": 2 if change == "settings" else 1})
    assert results.rows() == []
    assert "starting again" in capsys.readouterr().err


def test_older_result_stays_until_the_new_one_is_whole(tmp_path):
    write_json(tmp_path / "toy__box.json", {"rows": ["old"]})
    cut_short(tmp_path, {"n": 1})
    assert json.loads((tmp_path / "toy__box.json").read_text()) == {"rows": ["old"]}


def test_a_number_that_json_lacks_is_null(tmp_path):
    write_json(tmp_path / "x.json", {"rows": [{"a": float("nan"), "b": [1.5, float("inf")]}]})
    assert json.loads((tmp_path / "x.json").read_text()) == {"rows": [{"a": None, "b": [1.5, None]}]}
