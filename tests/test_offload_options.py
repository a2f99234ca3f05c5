"""What the experiments of offloading are asked: one line for what no run could come of, before it begins."""

import pytest
from test_offloaded import SHAPE

from experiments import budget_sweep, offload_compare, offload_options
from minillm import ModelConfig, presets
from minillm.errors import InputError

COMMAND = ["--device", "cpu", "--model", "random:Small"]
LAYERS = SHAPE["num_hidden_layers"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "Small", ModelConfig(**SHAPE))


BAD = [
    ("--prompts", "0", "--prompts is 0"),
    ("--prompts", "-5", "--prompts is -5"),
    ("--prompts", "21", "--prompts is 21: it must be a whole number of at least 1 and at most 20"),
    ("--new-tokens", "0", "--new-tokens is 0"),
    ("--lengths", "0", "--lengths is 0"),
    ("--budget", "0", "--budget for random:Small is 0"),
    ("--budget", str(LAYERS + 1), f"at most {LAYERS}"),
    ("--link-gb-s", "0", "link_gb_s is 0"),
    ("--link-gb-s", "nan", "link_gb_s is nan"),
    ("--cap-gib", "-1", "--cap-gib is -1"),
    ("--dtype", "int8", "dtype is 'int8'"),
    ("--out", "/proc/x", "--out is /proc/x"),
    ("--out", __file__, "--out is "),
]


@pytest.mark.parametrize(("option", "value", "says"), BAD)
def test_what_no_run_could_come_of_is_one_line(tmp_path, capsys, monkeypatch, option, value, says):
    monkeypatch.setattr(offload_compare, "measure", lambda *_: pytest.fail("it was measured"))
    good = [*COMMAND, "--out", str(tmp_path / "new" / "folder")]
    assert offload_compare.read_options([*good, "--budget", str(LAYERS), "--prompts", "1"]).prompts == 1
    assert offload_options.run(lambda: offload_compare.main([*good, f"{option}={value}"])) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert says in err


@pytest.mark.parametrize("option", ["--budgets", "--lifted"])
@pytest.mark.parametrize("value", [0, -1, LAYERS + 1])
def test_each_budget_of_several_is_checked(tmp_path, option, value):
    good = [*COMMAND, "--out", str(tmp_path)]
    assert budget_sweep.read_options([*good, option, "1", str(LAYERS)])
    with pytest.raises(InputError, match=f"{option} for random:Small is {value}"):
        budget_sweep.read_options([*good, option, "1", str(value)])
