"""The generators: the same seed gives the same text, held-out content stays out, answers are right."""

import json
import random
import re

import pytest

from training import arithmetic, skills
from training.skills import REGISTRY, SKILLS, held_out, training_random, training_sample


@pytest.mark.parametrize("skill", REGISTRY)
def test_same_seed_same_samples(skill):
    first = [training_sample(training_random(3, 7), skill) for _ in range(2)]
    assert first[0] == first[1]
    assert training_sample(training_random(3, 8), skill) != first[0]


def test_training_seeds_and_held_out_seeds_are_disjoint(monkeypatch):
    seen = []
    real = random.Random
    monkeypatch.setattr(skills.random, "Random", lambda seed: seen.append(seed) or real(seed))
    skills._held_out.__wrapped__("json")
    assert seen
    assert max(seen) < skills.TRAINING_SEEDS_FROM
    seen.clear()
    training_random(0, 0)
    training_random(999, 999_999)
    assert min(seen) >= skills.TRAINING_SEEDS_FROM


@pytest.mark.parametrize(("seed", "stream"), [(-1, 0), (0, -1), (1_000, 0), (0, 1_000_000)])
def test_training_refuses_seeds_outside_its_range(seed, stream):
    with pytest.raises(ValueError, match=str(seed if stream == 0 else stream)):
        training_random(seed, stream)


@pytest.mark.parametrize("skill", REGISTRY)
def test_training_shares_no_content_with_held_out_prompts(skill):
    rng = training_random(0, 0)
    count = 200 if skill == "recall" else 4_000
    trained = [training_sample(rng, skill) for _ in range(count)]
    kept = held_out(skill, skills.HELD_OUT_COUNT)
    assert not {key for s in trained for key in s.keys} & {key for s in kept for key in s.keys}
    if skill in SKILLS:
        assert not {s.prompt for s in trained} & {s.prompt for s in kept}


def test_without_the_check_training_would_meet_held_out_requests():
    rng = training_random(0, 0)
    kept = skills.held_out_keys("tools")
    assert any(not kept.isdisjoint(REGISTRY["tools"].train(rng).keys) for _ in range(4_000))


def test_no_operand_pair_is_both_trained_and_held_out():
    rng = training_random(0, 1)
    pattern = re.compile(r"(\d+)\D+?(\d+)")
    trained = {frozenset(pattern.search(arithmetic.train(rng).prompt).groups()) for _ in range(20_000)}
    kept = {frozenset(pattern.search(s.prompt).groups()) for s in held_out("arithmetic", 600)}
    assert len(trained) > 4_000
    assert len(kept) > 200
    assert not trained & kept


def test_held_out_prompts_are_distinct_and_fixed():
    for skill in REGISTRY:
        samples = held_out(skill, 500)
        assert len({s.prompt for s in samples}) == 500
        assert samples[:7] == held_out(skill, 7)


def test_held_out_refuses_unknown_skills_and_too_many():
    with pytest.raises(ValueError, match=r"'cooking'.*arithmetic"):
        held_out("cooking", 1)
    with pytest.raises(ValueError, match=r"601.*600"):
        held_out("json", 601)
    assert held_out("json", 0) == []


def result_of(prompt):
    """The answer to a sum in words or signs, worked out from the prompt alone."""
    a, b = (int(n) for n in re.findall(r"\d+", prompt))
    if "Subtract" in prompt:
        return b - a
    return a + b if re.search(r"\+|plus|Add", prompt) else a - b


def test_sums_are_right():
    for sample in held_out("arithmetic", 600):
        assert int(sample.answer) == result_of(sample.prompt)


def test_recall_answers_stand_in_the_list():
    for sample in held_out("recall", 50):
        asked = re.search(r"Find:\n(\S+)<", sample.prompt)[1]
        codes = dict(re.findall(r"^(\w+): (\d+)$", sample.prompt, flags=re.M))
        assert sample.answer == f"{asked}: {codes[asked]}"


def test_extracted_values_stand_in_the_sentence():
    for sample in held_out("json", 300):
        facts = json.loads(sample.answer)
        assert all(str(value) in sample.prompt for value in facts.values())
        assert all(name in sample.prompt for name in facts)


def test_calls_fit_the_signature_that_the_prompt_offers():
    for sample in held_out("tools", 300):
        offered = [
            json.loads(line)["function"] for line in re.findall(r'^{"type".*$', sample.prompt, flags=re.M)
        ]
        call = json.loads(sample.answer.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>"))
        tool = next(f for f in offered if f["name"] == call["name"])
        assert list(call["arguments"]) == tool["parameters"]["required"]
        request = sample.prompt[sample.prompt.index("<|im_start|>user") :]
        assert all(str(value) in request for value in call["arguments"].values())
