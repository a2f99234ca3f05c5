"""The acceptance experiment: shares, passes counted by hand, a draft that is the target itself."""

import json

import pytest
from conftest import make_reference

from experiments import acceptance
from experiments.results import all_met
from minillm import LLM


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    folder = tmp_path_factory.mktemp("target")
    make_reference().save_pretrained(folder)
    with LLM(folder, device="cpu", dtype="float32") as llm:
        yield llm


@pytest.mark.parametrize(
    ("accepted", "length", "passes"),
    [
        ([1], 2, 0),  # the prompt's own pass wrote it
        ([1, 1, 1, 1], 2, 1),  # two drafted and one more
        ([0, 1, 1, 1], 2, 1),  # the first token is not drafted
        ([1, 0, 0, 0], 4, 3),  # each pass adds its own token alone
        ([1, 1, 0, 1, 1, 1], 2, 2),  # 1 0 | 1 1 1
        ([1, 1, 1, 1, 1, 1], 4, 1),
        ([1, 1, 1, 1, 1, 1, 1], 4, 2),
    ],
)
def test_passes_are_those_counted_on_paper(accepted, length, passes):
    assert acceptance.passes(accepted, length) == passes


def test_a_model_accepts_all_of_its_own_tokens(target):
    row = acceptance.measure(target, target, [5, 6, 7, 8], 12)
    assert row["tokens"] == row["accepted"] == len(row["each"]) == 12
    assert row["prompt_tokens"] == 4


def test_another_model_does_not(target, tmp_path):
    make_reference(seed=1).save_pretrained(tmp_path)
    with LLM(tmp_path, device="cpu", dtype="float32") as other:
        row = acceptance.measure(target, other, [5, 6, 7, 8], 12)
    assert row["accepted"] == sum(row["each"]) < 6


def test_figures_are_shares_of_tokens():
    rows = [
        {"key": "a/01", "tokens": 4, "accepted": 3, "each": [1, 1, 1, 0]},
        {"key": "b/02", "tokens": 1, "accepted": 0, "each": [0]},
    ]
    checks = acceptance.figures(rows)
    values = {c["name"].removeprefix("acceptance: "): c["value"] for c in checks}
    assert values["share of tokens"] == 3 / 5
    assert values["share of tokens, a"] == 3 / 4
    assert values["share of tokens, b"] == 0
    assert values["tokens a pass, 2 drafted"] == 3
    assert all_met(checks)
    rows[0]["accepted"] = 2
    assert not all_met(acceptance.figures(rows))


def test_two_prompts_from_the_command_line(tmp_path):
    command = ["--prompts", "2", "--tokens", "8", "--machine", "box", "--out", str(tmp_path)]
    assert acceptance.main(command) == 0
    stored = json.loads((tmp_path / "acceptance__box.json").read_text())
    assert [row["key"] for row in stored["rows"]] == ["arithmetic/01", "arithmetic/02"]
    assert stored["settings"]["draft"] == "tiny-draft"
