"""The routing experiment: counts against transformers' router, figures against ones known on paper."""

import json

import pytest
import torch
from conftest import make_reference

from experiments import routing
from experiments.results import all_met
from minillm import LLM

PROMPT = list(range(20, 40))


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """A mixture of three layers and six experts in both programs."""
    folder = tmp_path_factory.mktemp("mixture")
    model = make_reference(num_experts=6)
    model.save_pretrained(folder)
    with LLM(folder, device="cpu", dtype="float32") as llm:
        yield llm, model


def test_counts_are_the_choices_of_the_reference(programs):
    llm, model = programs
    (out,) = llm.generate(PROMPT)
    row = routing.measure(llm, [PROMPT], len(out.token_ids))
    text = PROMPT + out.token_ids[:-1]
    with torch.inference_mode():
        logits = model(torch.tensor([text]), output_router_logits=True).router_logits
    chosen = torch.stack([layer.topk(2).indices for layer in logits])  # [layers, T, 2]
    for name, part in (("prompt", chosen[:, : len(PROMPT)]), ("answer", chosen[:, len(PROMPT) :])):
        expected = [layer.flatten().bincount(minlength=6).tolist() for layer in part]
        assert row[f"{name}_choices"] == expected
        assert row[f"{name}_tokens"] == part.shape[1]


def test_the_engine_is_left_as_it_was(programs):
    llm, _ = programs
    before = llm.logits(PROMPT)
    with routing.choices(llm) as (prompt, answer):
        assert torch.equal(llm.logits(PROMPT), before)
        assert (prompt.sum().item(), answer.sum().item()) == (3 * 2 * len(PROMPT), 0)
    llm.logits(PROMPT)
    assert prompt.sum().item() == 3 * 2 * len(PROMPT), "nothing is counted afterwards"
    assert all("route" not in vars(module) for module in llm.model.modules())


def figures_of(counts):
    rows = [{"prompt_choices": counts, "answer_choices": [[0] * len(c) for c in counts]}]
    checks = routing.figures(rows)
    return {c["name"].removeprefix("routing: "): c["value"] for c in checks}, all_met(checks)


def test_even_use_has_no_skew():
    values, met = figures_of([[7] * 8, [7] * 8])
    assert met
    assert values["experts"] == 16
    assert values["share of experts in use"] == values["largest share over an even one"] == 1
    assert values["share of dead experts"] == 0
    assert values["entropy over the largest possible, lowest layer"] == pytest.approx(1)
    assert values["Gini coefficient, mean of layers"] == pytest.approx(0, abs=1e-12)
    assert values["share of a layer's 4 busiest experts"] == pytest.approx(0.5)


def test_one_expert_alone_is_all_skew():
    values, met = figures_of([[40, 0, 0, 0, 0, 0, 0, 0], [5] * 8])
    assert not met
    assert values["share of experts in use"] == 9 / 16
    assert values["share of dead experts"] == 7 / 16
    assert values["largest share over an even one"] == 8
    assert values["entropy over the largest possible, lowest layer"] == pytest.approx(0)
    assert values["Gini coefficient, mean of layers"] == pytest.approx((7 / 8 + 0) / 2)


def test_answers_of_a_category_may_be_narrower_than_all_of_it():
    rows = [
        {"prompt_choices": [[4, 4, 4, 4, 4, 4, 4, 4]], "answer_choices": [[8, 8, 8, 8, 0, 0, 0, 0]]},
        {"prompt_choices": [[4, 4, 4, 4, 4, 4, 4, 4]], "answer_choices": [[0, 0, 0, 0, 8, 8, 8, 8]]},
    ]
    values = {c["name"].removeprefix("routing: "): c["value"] for c in routing.figures(rows)}
    assert values["share of a layer's 4 busiest experts"] == pytest.approx(0.5)
    assert values["… within a category"] == pytest.approx(0.75)
    assert values["… within a category's answers"] == pytest.approx(1)


def test_used_now_and_then_is_dead_all_the_same():
    values, _ = figures_of([[1, 99, 100, 100, 100, 100, 100, 200]])
    assert values["share of experts in use"] == 1
    assert values["share of dead experts"] == 1 / 8


def test_every_category_has_a_row(tmp_path):
    command = ["--prompts", "1", "--tokens", "4", "--machine", "box", "--out", str(tmp_path)]
    routing.main(command)
    stored = json.loads((tmp_path / "routing__box.json").read_text())
    keys = [row["key"] for row in stored["rows"]]
    assert keys == ["arithmetic", "recall", "json", "tools", "stories", "chat"]
    for row in stored["rows"]:
        assert torch.tensor(row["prompt_choices"]).sum(-1).tolist() == [2 * row["prompt_tokens"]] * 6
        assert torch.tensor(row["answer_choices"]).sum(-1).tolist() == [2 * row["answer_tokens"]] * 6
