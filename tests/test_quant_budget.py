"""`quantize --budget-gib`: the mix fits, no uniform format that fits is better; errors are one line."""

import json
import random

import pytest
import torch
from command_line import fails, good_model, prompts_file, succeeds
from saved_models import logits

from minillm import LLM, ModelConfig, memory
from minillm.cli import calibration, quantize
from minillm.cli.prompts import from_file
from minillm.model_source import shipped_folder
from minillm.quant.fit import Sizes, fill, fit
from minillm.quant.mix import quantised
from minillm.quant.sensitivity import Probe, choose, format_name, total
from minillm.units import GIB
from minillm.weight_files import INDEX

PROMPTS = ({"token_ids": [5, 17, 90, 33, 8]}, {"token_ids": [50, 3, 77]})


@pytest.fixture
def case(small_model, tmp_path):
    """The folder of a small model, its sizes, and the options that name calibration prompts for it."""
    folder = small_model()
    sizes = Sizes.of(ModelConfig.from_folder(folder))
    return folder, sizes, ("--calibration", prompts_file(tmp_path / "prompts.jsonl", *PROMPTS))


def between(sizes: Sizes, share: float) -> float:
    return (sizes.least + share * (sizes.full - sizes.least)) / GIB


def test_sizes_are_those_of_the_plan(case):
    folder, sizes, _ = case
    config = ModelConfig.from_folder(folder)
    weights = [memory.plan(c, 4, 1).weights for c in (config, quantised(config, "int4"))]
    assert [sizes.full, sizes.least] == weights


@pytest.mark.parametrize("share", [0.0001, 0.1, 0.3, 0.7])
def test_what_is_saved_fits_and_is_no_worse_than_a_uniform_format(case, tmp_path, capsys, share):
    folder, sizes, calibrate = case
    budget = between(sizes, share)
    text = succeeds(capsys, "quantize", folder, tmp_path / "out", "--budget-gib", budget, *calibrate)
    assert text.endswith(f"\n{tmp_path / 'out'}\n")
    assert json.loads((tmp_path / "out" / INDEX).read_text())["metadata"]["total_size"] <= budget * GIB
    mix = ModelConfig.from_folder(tmp_path / "out").quantize
    assert f"mix  {mix}\n" in text
    assert torch.equal(logits(tmp_path / "out"), logits(folder, quantize=str(mix)))
    fitting = [n for n in sizes.formats if memory.plan(uniform(folder, n), 4, 1).weights <= budget * GIB]
    with LLM(folder, device="cpu") as llm:
        probe = Probe(llm, [row["token_ids"] for row in PROMPTS])
        assert fitting
        assert probe.damage(mix) <= min(map(probe.damage, fitting)) + 1e-9


def uniform(folder, name: str) -> ModelConfig:
    return quantised(ModelConfig.from_folder(folder), name)


def test_dry_run_writes_nothing(case, tmp_path, capsys):
    folder, sizes, calibrate = case
    ask = ("--budget-gib", between(sizes, 0.3), "--dry-run", *calibrate)
    before = sorted(tmp_path.iterdir())
    text = succeeds(capsys, "quantize", folder, *ask)
    assert text == succeeds(capsys, "quantize", folder, tmp_path / "out", *ask)
    assert text.splitlines()[-1].endswith("nats a token, 2 prompts of 8 tokens")
    assert sorted(tmp_path.iterdir()) == before
    fewer = succeeds(capsys, "quantize", folder, *ask, "--calibration-prompts", "1")
    assert "1 prompts of 5 tokens" in fewer


def test_shipped_prompts_are_the_default(tmp_path, capsys, monkeypatch):
    folder = good_model(tmp_path / "model")
    sizes = Sizes.of(ModelConfig.from_folder(folder))
    ask = ("quantize", folder, "--budget-gib", between(sizes, 0.5), "--dry-run")
    assert f"{calibration.PROMPTS} prompts of " in succeeds(capsys, *ask)
    assert len(from_file(calibration.SHIPPED)) >= calibration.PROMPTS
    monkeypatch.setattr(calibration, "SHIPPED", tmp_path / "none")
    fails(capsys, 2, *ask, says=("without calibration prompts", "--calibration FILE"))


def test_shipped_models_are_measured_on_what_they_were_trained_on():
    of_tiny = calibration.read(None, None, shipped_folder("tiny"))
    lines = calibration.OF_SHIPPED_MODELS.read_text(encoding="utf-8").splitlines()
    rows = {row["turns"][0]: row["category"] for row in map(json.loads, lines)}
    assert len(of_tiny) == calibration.PROMPTS
    assert {rows[prompt.text] for prompt in of_tiny} == set(rows.values()), "every kind is among them"
    assert len(calibration.read(None, 3, shipped_folder("tiny-moe"))) == 3
    assert len(calibration.read(None, 10**6, shipped_folder("tiny"))) == len(lines)
    others = from_file(calibration.SHIPPED)[: calibration.PROMPTS]
    assert calibration.read(None, None, None) == others
    assert calibration.read(str(calibration.SHIPPED), None, shipped_folder("tiny")) == others


def test_budgets_out_of_range(case, capsys):
    folder, sizes, calibrate = case
    ask = ("quantize", folder, "--dry-run", *calibrate, "--budget-gib")
    line = fails(capsys, 2, *ask, (sizes.least - 1) / GIB, says=("smallest formats take",))
    said = line.split("take ")[1].split(" GiB")[0]
    assert float(said) * GIB >= sizes.least
    fails(capsys, 2, *ask, sizes.full / GIB, says=("as it is", "nothing needs quantising"))
    for odd in ("0", "nan", "inf"):
        fails(capsys, 2, *ask, odd, says=("--budget-gib", "finite number above 0"))
    fails(capsys, 2, *ask[:-1], "--budget-gib=-1", says=("--budget-gib", "above 0"))
    fails(capsys, 2, *ask, "x", says=("'x' is not a number",))


def test_options_that_do_not_go_together(case, tmp_path, capsys):
    folder, sizes, calibrate = case
    ask, budget = ("quantize", folder, tmp_path / "out"), ("--budget-gib", between(sizes, 0.5))
    fails(capsys, 2, *ask, *budget, "--quantize", "int8", says=("--quantize and --budget-gib", "one of"))
    fails(capsys, 2, *ask, says=("--quantize FORMAT or --budget-gib GIB",))
    fails(capsys, 2, "quantize", folder, *budget, says=("OUT",))
    for extra in (("--dry-run",), calibrate, ("--calibration-prompts", "3")):
        says = (extra[0], "goes with --budget-gib: leave it out", "in place of --quantize")
        fails(capsys, 2, *ask, "--quantize", "int8", *extra, says=says)
    fails(capsys, 2, *ask, *budget, "--calibration", tmp_path / "no", says=("cannot read the prompts file",))
    assert not (tmp_path / "out").exists()


def test_models_that_cannot_be_measured(saved_model, tmp_path, capsys, monkeypatch):
    folder, out = saved_model("int4")
    budget = between(Sizes.of(ModelConfig.from_folder(folder)), 0.5)
    calibrate = ("--calibration", prompts_file(tmp_path / "prompts.jsonl", *PROMPTS))
    ask = ("--budget-gib", budget, "--dry-run", *calibrate)
    fails(capsys, 2, "quantize", out, *ask, says=("is stored as int4 already",))
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    fails(capsys, 1, "quantize", folder, *ask, "--device", "cpu", says=("of memory", "1000 B are available"))


def test_logits_that_are_no_numbers(case, capsys, monkeypatch):
    folder, sizes, calibrate = case
    monkeypatch.setattr(Probe, "damage", lambda *_: float("nan"))
    ask = ("quantize", folder, "--dry-run", "--budget-gib", between(sizes, 0.5), *calibrate)
    fails(capsys, 1, *ask, says=("not finite", "float32"))


def test_interrupted_while_measuring(case, tmp_path, capsys, monkeypatch):
    folder, sizes, calibrate = case

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(quantize, "_measured", stop)
    ask = ["quantize", folder, tmp_path / "out", "--budget-gib", between(sizes, 0.5), *calibrate]
    from minillm.__main__ import main

    before = sorted(tmp_path.iterdir())
    assert main([str(part) for part in ask]) == 130
    assert capsys.readouterr().err == "minillm: interrupted: nothing was kept\n"
    assert sorted(tmp_path.iterdir()) == before


# ---- what a chosen mix leaves of its budget ----


def test_a_step_after_one_that_does_not_fit():
    damages = {(0, part, "int8"): 0.0 for part in ("attention", "mlp")}
    num_bytes = {(0, "attention", "int4"): 1, (0, "attention", "int8"): 2}
    num_bytes |= {(0, "mlp", "int4"): 10, (0, "mlp", "int8"): 20}
    damages |= {(0, "attention", "int4"): 1.0, (0, "mlp", "int4"): 20.0}  # for a byte: 1.0 and 2.0
    mix = choose(damages, num_bytes, 20)
    assert str(mix) == "attn=int4,mlp=int4"  # the MLP's step comes first and does not fit
    assert str(fill(mix, damages, num_bytes, 20)) == "attn=int8,mlp=int4"
    assert fill(mix, damages, num_bytes, 11) == mix  # nothing is left


@pytest.mark.parametrize("seed", range(40))
def test_filled_mixes_fit_save_more_and_leave_no_step_that_fits(seed):
    rng = random.Random(seed)
    blocks = [(layer, part) for layer in range(3) for part in ("attention", "mlp")]
    choices = [(*block, name) for block in blocks for name in ("none", "int8", "int4")]
    damages = {choice: rng.randrange(50) / 10 for choice in choices}
    num_bytes = {choice: rng.randrange(1, 60) for choice in choices}
    least = sum(min(num_bytes[*block, name] for name in ("none", "int8", "int4")) for block in blocks)
    for budget in range(least, least + 200, 7):
        mix = choose(damages, num_bytes, budget)
        filled = fill(mix, damages, num_bytes, budget)
        left = budget - total(num_bytes, filled)
        assert left >= 0
        assert total(damages, filled) <= total(damages, mix)
        for choice in choices:
            now = (*choice[:2], format_name(filled, *choice[:2]))
            assert damages[choice] >= damages[now] or num_bytes[choice] - num_bytes[now] > left


class Sums:
    """A probe whose damages are given and do add up."""

    def __init__(self, damages):
        self.known = damages

    def damages(self, formats, advance):
        return self.known

    def damage(self, mix):
        return total(self.known, mix)


def test_fit_spends_what_the_choice_leaves():
    num_bytes, damages = {}, {}
    for part, size, damage in (("attention", 1, 1.0), ("mlp", 10, 20.0)):
        for name, times, share in (("int4", 1, 1.0), ("int8", 2, 0.1), ("none", 4, 0.0)):
            num_bytes[0, part, name] = times * size * 10**6
            damages[0, part, name] = damage * share
    found = fit(Sums(damages), Sizes(num_bytes, ("int8", "int4"), rest=5), 20_000_005 / GIB)
    assert str(found.mix) == "attn=none,mlp=int4"
    assert found.measured == found.predicted == 20.0
