"""The shipped mixture of experts through both programs; when a routing tie excuses a difference."""

import pytest
import torch
from conftest import make_reference

from experiments import shipped_parity
from experiments.greedy import Comparison
from minillm import LLM

WRONG = Comparison(False, 5, 0.5, "1, not 2")
PROMPT, ANSWER = list(range(40)), list(range(40, 50))


@pytest.fixture(scope="module")
def programs():
    return shipped_parity.programs("tiny-moe", "cpu")


def test_tokens_and_logits_are_the_same(programs):
    llm, model, _ = programs
    prompt = shipped_parity.prompts(llm, 4)[2]
    row = shipped_parity.measure(llm, model, prompt, 16)
    assert row["wrong"] == []
    assert row["tokens"] == 16
    assert row["max_logit_error"] <= 1e-4
    assert row["tokens_fed"] == row["tokens_to_feed"] == len(prompt) + 15


def test_a_router_that_chooses_others_is_told(programs):
    _, model, _ = programs
    with LLM("tiny-moe", device="cpu", dtype="float32") as damaged:
        with torch.inference_mode():
            for layer in range(6):
                damaged.model.get_parameter(f"model.layers.{layer}.mlp.gate.weight").neg_()
        prompt = shipped_parity.prompts(damaged, 4)[2]
        rows = [shipped_parity.measure(damaged, model, prompt, 8)]
    assert rows[0]["wrong"]
    assert rows[0]["max_logit_error"] > 1


def test_no_difference_is_excused_without_a_routing_tie_before_it():
    model = make_reference(num_experts=6)
    assert shipped_parity.excused(WRONG, model, PROMPT, ANSWER) is WRONG


def test_a_routing_tie_excuses_what_comes_after_it_alone():
    model = make_reference(num_experts=6)
    with torch.no_grad():
        router = model.model.layers[0].mlp.gate.weight
        router[1] = router[0]
    verdict = shipped_parity.excused(WRONG, model, PROMPT, ANSWER)
    assert verdict.right
    assert verdict.tie
    assert "routing tie" in verdict.note
    first = Comparison(False, 0, 0.5, "first token")
    assert shipped_parity.excused(first, model, PROMPT[:1], ANSWER) is first, "no tie at that position"


def test_prompts_are_spread_over_the_categories(programs):
    texts = [programs[0].tokenizer.decode(ids) for ids in shipped_parity.prompts(programs[0], 5)]
    assert len(set(texts)) == 5
    assert any("tool" in text for text in texts)
    assert any("JSON" in text for text in texts)
