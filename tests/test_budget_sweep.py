"""The budget sweep: every row it promises, judged by figures written down here, continued when cut short."""

import json

import pytest
from test_offloaded import SHAPE

from experiments import budget_sweep, machine, offload_options
from experiments.offloaded import Offloaded
from minillm import ModelConfig, presets
from minillm.errors import RunError

COMMAND = ["--device", "cpu", "--model", "random:Small", "--link-gb-s", "5", "--machine", "box"]
COMMAND += ["--prompt-tokens", "8", "--new-tokens", "4"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A model of five layers; bandwidths take seconds and are tested elsewhere."""
    monkeypatch.setitem(presets.PRESETS, "Small", ModelConfig(**SHAPE))
    monkeypatch.setattr(offload_options, "PATIENCE_S", 0.0)
    monkeypatch.setattr(machine, "describe", lambda: {"date": "now", "commit": "abc", "command": "x"})


def stored(folder, experiment="budget_sweep"):
    return json.loads((folder / f"{experiment}__box.json").read_text())


def test_sweep_writes_a_row_a_budget_and_mode_and_the_simulators(tmp_path, capsys):
    assert budget_sweep.main([*COMMAND, "--out", str(tmp_path)]) == 0
    keys = [row["key"] for row in stored(tmp_path)["rows"]]
    modes = [f"{mode}/{budget}" for budget in (1, 2, 4, 5) for mode in ("prefetch", "naive")]
    assert keys == ["blocks", "loaded", *modes, "resident/5"]
    rows = {row["key"]: row for row in stored(tmp_path)["rows"]}
    assert [rows[f"prefetch/{n}"]["resident"] for n in (1, 2, 4, 5)] == [0, 1, 3, 5]
    assert rows["prefetch/5"]["limit_tokens_per_s"] is None
    assert len(rows["naive/2"]["token_s"]) == 4
    pairs = {row["key"]: row for row in stored(tmp_path, "simulator")["rows"]}
    assert list(pairs) == [*modes, "resident/5"]
    for key, pair in pairs.items():
        assert pair["measured_tokens_per_s"] == rows[key]["tokens_per_s"]
        assert pair["ratio"] == rows[key]["simulated_tokens_per_s"] / rows[key]["tokens_per_s"]
    shown = capsys.readouterr()
    assert "prefetch/4" in shown.out
    assert "blocks: link" in shown.err


def test_cut_short_it_goes_on_and_measures_the_link_again(tmp_path, monkeypatch):
    command = [*COMMAND, "--out", str(tmp_path), "--budgets", "2", "--lifted"]
    run, calls = Offloaded.run, []

    def cut(self, *arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return run(self, *arguments)

    monkeypatch.setattr(Offloaded, "run", cut)
    with pytest.raises(KeyboardInterrupt):
        budget_sweep.main(command)
    assert budget_sweep.main(command) == 0
    assert len(calls) == 4  # one before the cut, the cut, and the two that were missing
    keys = [row["key"] for row in stored(tmp_path)["rows"]]
    assert keys == ["blocks", "loaded", "prefetch/2", "blocks/1", "naive/2", "resident/5"]
    assert len(stored(tmp_path)["earlier_runs"]) == 1


def test_budget_that_does_not_fit_is_told_and_left_out(tmp_path, monkeypatch, capsys):
    place = Offloaded.place

    def full(self, mode, budget, slots=None):
        if mode == "resident":
            raise RunError("no room")
        place(self, mode, budget, slots)

    monkeypatch.setattr(Offloaded, "place", full)
    assert budget_sweep.main([*COMMAND, "--out", str(tmp_path), "--budgets", "2", "--lifted"]) == 0
    assert "resident/5 is left out: no room" in capsys.readouterr().err
    checks = {c["name"]: c["value"] for c in stored(tmp_path)["checks"]}
    assert checks["resident: tok/s"] is None
    assert checks["prefetch/2: tok/s over min(limit of the design, resident)"] is not None


def row(key, speed, limit=None):
    mode, budget = key.split("/")
    return {
        "key": key,
        "mode": mode,
        "budget": int(budget),
        "tokens_per_s": speed,
        "limit_tokens_per_s": limit,
    }


def test_speed_is_over_the_slower_of_link_and_computing():
    rows = [
        row("prefetch/1", 3.9, 4.0),
        row("naive/1", 2.6, 4.0),
        row("prefetch/2", 3.9, 4.0),
        row("prefetch/30", 9.9, 20.0),
        row("resident/36", 10.0),
    ]
    checks = {c["name"]: (c["value"], c["met"]) for c in budget_sweep.speed_checks(rows, [1, 2, 30, 36])}
    of_bound = {
        n: checks[f"prefetch/{n}: tok/s over min(limit of the design, resident)"] for n in (1, 2, 30, 36)
    }
    assert of_bound == {1: (0.975, True), 2: (0.975, False), 30: (0.99, True), 36: (None, False)}
    assert checks["prefetch/1: tok/s over naive"] == (pytest.approx(1.5), None)
    assert checks["prefetch/2: tok/s over naive"] == (None, None)


@pytest.mark.parametrize(
    ("ratio", "met"), [(0.94, [False, True]), (1.0, [True, True]), (1.06, [True, False])]
)
def test_simulator_may_err_by_a_twentieth(ratio, met):
    assert [c["met"] for c in budget_sweep.ratio_checks({"key": "prefetch/1", "ratio": ratio})] == met


def test_default_budgets_are_those_that_the_model_has():
    options = budget_sweep.read_options(["--device", "cpu", "--model", "random:Qwen3-8B"])
    assert (options.budgets, options.lifted) == ([1, 2, 4, 8, 13], [16, 24, 32, 34, 35, 36])
    options = budget_sweep.read_options(["--device", "cpu", "--model", "random:Qwen3-1.7B"])
    assert (options.budgets, options.lifted) == ([1, 2, 4, 8, 13], [16, 24, 28])
