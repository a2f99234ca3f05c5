"""The ceilings experiment: repetitions, block costs by geometry, a resident speed that follows from them."""

import json
from functools import partial

import pytest
from test_offloaded import SHAPE

from experiments import ceilings as experiment
from experiments import machine, offload_options
from minillm import ModelConfig, ceilings, presets


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "Small", ModelConfig(**SHAPE))
    monkeypatch.setattr(offload_options, "PATIENCE_S", 0.0)
    monkeypatch.setattr(machine, "describe", lambda: {"date": "now", "commit": "abc", "command": "x"})
    monkeypatch.setattr(ceilings, "measure", partial(ceilings.measure, 2**20, 1))


def test_command_stores_bandwidths_and_block_costs(tmp_path, capsys):
    command = ["--device", "cpu", "--models", "random:Small", "--tokens", "1", "16", "--link-gb-s", "5"]
    assert experiment.main([*command, "--machine", "box", "--out", str(tmp_path)]) == 0
    stored = json.loads((tmp_path / "ceilings__box.json").read_text())
    rows = {row["key"]: row for row in stored["rows"]}
    assert list(rows) == ["machine/0", "machine/1", "machine/2", "Small/1", "Small/16"]
    one = rows["Small/1"]
    seconds = 5 * (one["attention_s"] + one["mlp_s"]) + one["head_s"]
    assert one["simulated_tokens_per_s"] == pytest.approx(1 / seconds)
    assert 0 < one["link_gb_s"] < 5.01  # a busy machine is slower than the link that was asked for
    assert "simulated_tokens_per_s" not in rows["Small/16"]
    assert "Small/1" in capsys.readouterr().out


def test_figures_are_medians_of_what_there_is():
    rows = [dict.fromkeys(experiment.FIGURES) | {"host_copy_gb_s": rate} for rate in (10.0, 30.0, 20.0)]
    (found,) = experiment.machine_checks(rows)
    assert (found["name"], found["value"]) == ("copy in main memory, GB/s read and written", 20.0)
