"""Damage of quantised blocks against a model that is really loaded so; choices against all there are."""

import itertools
import math
import random

import pytest
import torch

from minillm import LLM
from minillm.errors import InputError
from minillm.quant import sensitivity
from minillm.quant.mix import Mix
from minillm.quant.sensitivity import Probe, choose, divergence, mix_of, total

PROMPTS = [[5, 17, 900, 33, 8], [250, 3, 77]]
NAMES = ("none", "int8", "int4")


@pytest.fixture(scope="module")
def llm():
    with LLM("tiny-draft", device="cpu", dtype="float32") as llm:
        yield llm


@pytest.fixture(scope="module")
def probe(llm):
    return Probe(llm, PROMPTS)


def problem(seed: int, blocks: int = 5) -> tuple[dict, dict]:
    """Random damages and bytes, not always in an order that makes sense: measurements are noisy."""
    rng = random.Random(seed)
    damages, num_bytes = {}, {}
    for block in itertools.islice(itertools.product(range(blocks), ("attention", "mlp")), blocks):
        for name in NAMES:
            damages[*block, name] = 0.0 if name == "none" else rng.randrange(1, 50) / 10
            num_bytes[*block, name] = rng.randrange(1, 60)
    return damages, num_bytes


def every_mix(damages: dict, num_bytes: dict) -> list[tuple[int, float]]:
    """(bytes, damage) of all mixes."""
    blocks = list(dict.fromkeys(choice[:2] for choice in damages))
    return [
        (
            sum(num_bytes[*block, name] for block, name in zip(blocks, names, strict=True)),
            sum(damages[*block, name] for block, name in zip(blocks, names, strict=True)),
        )
        for names in itertools.product(NAMES, repeat=len(blocks))
    ]


# ---- measuring ----


def test_divergence_on_paper():
    reference, logits = torch.tensor([[0.0, 0.0]]), torch.tensor([[math.log(3.0), 0.0]])
    expected = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
    assert divergence(reference, logits).item() == pytest.approx(expected)
    assert divergence(logits, logits).item() == 0.0


@pytest.mark.parametrize("mix", ["int4", "layers.1.mlp=int4-sym", "attn=fp8,mlp=int8"])
def test_damage_is_that_of_a_model_loaded_so(probe, mix):
    with LLM("tiny-draft", device="cpu", dtype="float32", quantize=mix) as loaded:
        pairs = zip(probe.reference, map(loaded.logits, PROMPTS), strict=True)
        expected = torch.cat([divergence(*pair) for pair in pairs]).mean().item()
    assert expected > 0
    assert probe.damage(mix) == pytest.approx(expected, rel=1e-2, abs=1e-9)


def test_every_block_in_every_format(probe):
    damages = probe.damages(("int8", "int4"))
    assert list(damages) == list(itertools.product(range(2), ("attention", "mlp"), NAMES))
    for layer, part in itertools.product(range(2), ("attention", "mlp")):
        assert (
            0.0 == damages[layer, part, "none"] < damages[layer, part, "int8"] < damages[layer, part, "int4"]
        )


def test_weights_are_put_back(llm, probe, monkeypatch):
    before = {name: p.clone() for name, p in llm.model.named_parameters()}
    probe.damages(("int4",))
    monkeypatch.setattr(llm, "logits", lambda ids: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        probe.damage("int4")
    assert all(torch.equal(before[name], p) for name, p in llm.model.named_parameters())


def test_experts_are_changed_too():
    with LLM("tiny-moe", device="cpu", dtype="float32") as llm:
        assert Probe(llm, PROMPTS).damage("layers.2.mlp=fp8") > 0


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"quantize": "int8"}, "quantize is 'int8': measure on the model without it"),
        ({"offload": "naive", "gpu_layer_budget": 1}, "2 layers stream: measure on a model that stays"),
    ],
)
def test_models_that_cannot_be_measured(options, line):
    options |= {"device": "cpu", "dtype": "float32"}
    with LLM("tiny-draft", **options) as llm, pytest.raises(InputError, match=line):
        Probe(llm, PROMPTS)


def test_no_prompt_and_no_such_layer(llm, probe):
    with pytest.raises(InputError, match="no prompt to measure damage on"):
        Probe(llm, [])
    with pytest.raises(InputError, match="the model has 2 layers"):
        probe.damage("layers.2=int4")


def test_sizes_are_those_of_a_loaded_model(llm):
    num_bytes = sensitivity.sizes(llm.config, 4)
    mix = "attn=int8,mlp=int4,layers.1.mlp=none"
    options = {"offload": "prefetch", "gpu_layer_budget": 1}
    with LLM("tiny-draft", device="cpu", dtype="float32", quantize=mix, **options) as loaded:
        layouts = loaded.model.model.layers.layouts
        assert total(num_bytes, Mix.parse(mix)) == sum(layout.num_bytes for layout in layouts)


# ---- choosing ----


@pytest.mark.parametrize("seed", range(40))
def test_no_mix_of_as_many_bytes_is_better(seed):
    damages, num_bytes = problem(seed)
    mixes = every_mix(damages, num_bytes)
    for budget in range(min(mixes)[0], max(mixes)[0] + 1, 7):
        mix = choose(damages, num_bytes, budget)
        used, damage = total(num_bytes, mix), total(damages, mix)
        assert used <= budget
        assert damage <= min(other for size, other in mixes if size <= used) + 1e-9


@pytest.mark.parametrize("seed", range(40))
def test_more_bytes_are_never_worse(seed):
    damages, num_bytes = problem(seed)
    least, most = min(every_mix(damages, num_bytes))[0], max(every_mix(damages, num_bytes))[0]
    mixes = [choose(damages, num_bytes, budget) for budget in range(least, most + 1)]
    for blocks in damages:
        each = [damages[*blocks[:2], sensitivity.format_name(mix, *blocks[:2])] for mix in mixes]
        assert each == sorted(each, reverse=True)  # block by block, not only in the sum
    assert total(damages, mixes[-1]) == 0.0


def test_a_step_is_worth_its_bytes():
    damages = {(0, part, name): 0.0 for part in ("attention", "mlp") for name in NAMES}
    damages |= {(0, "attention", "int4"): 1.0, (0, "mlp", "int4"): 1.5}
    num_bytes = {(0, "attention", "int4"): 10, (0, "attention", "int8"): 20, (0, "attention", "none"): 40}
    num_bytes |= {(0, "mlp", "int4"): 20, (0, "mlp", "int8"): 40, (0, "mlp", "none"): 80}
    said = [str(choose(damages, num_bytes, budget)) for budget in (30, 39, 40, 59, 60, 999)]
    assert said == [
        "attn=int4,mlp=int4",
        "attn=int4,mlp=int4",
        "attn=int8,mlp=int4",  # 1.0 for 10 bytes before 1.5 for 20
        "attn=int8,mlp=int4",
        "attn=int8,mlp=int8",
        "attn=int8,mlp=int8",  # nothing to save by "none"
    ]


def test_a_budget_too_small_says_what_the_least_is():
    damages, num_bytes = problem(0)
    least = min(every_mix(damages, num_bytes))[0]
    line = f"a budget of {least - 1} bytes for the layers: the smallest mix takes {least}, give that"
    with pytest.raises(InputError, match=line):
        choose(damages, num_bytes, least - 1)


@pytest.mark.parametrize("seed", range(20))
def test_the_text_of_a_mix_gives_each_block_its_format(seed):
    rng = random.Random(seed)
    blocks = itertools.product(range(rng.randrange(1, 9)), ("attention", "mlp"))
    chosen = {block: rng.choice(NAMES) for block in blocks}
    mix = mix_of(chosen)
    assert {block: sensitivity.format_name(mix, *block) for block in chosen} == chosen
    assert Mix.parse(str(mix)) == mix


def test_the_text_of_a_mix_is_short():
    chosen = dict.fromkeys(itertools.product(range(6), ("attention", "mlp")), "int4")
    assert str(mix_of(chosen)) == "attn=int4,mlp=int4"
    chosen |= {(2, "mlp"): "int8", (3, "mlp"): "int8", (5, "mlp"): "none"}
    assert str(mix_of(chosen)) == "attn=int4,mlp=int4,layers.2-3.mlp=int8,layers.5.mlp=none"
