"""Experts in training: all at once gives what transformers' loop gives; the balance loss; a stored model."""

import argparse
import itertools
import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM
from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func

from minillm import LLM
from training import experts, loop, train
from training.packing import Packer
from training.skills import training_random

TINY = Path(__file__).parents[1] / "data" / "tiny"
TOKENIZER = Tokenizer.from_file(str(TINY / "tokenizer.json"))


@pytest.fixture
def model():
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=2048,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        num_experts=6,
        num_experts_per_tok=2,
        moe_intermediate_size=8,
        norm_topk_prob=True,
        router_aux_loss_coef=0.01,
        initializer_range=0.1,
        tie_word_embeddings=True,
    )
    model = Qwen3MoeForCausalLM(config)
    model.config._attn_implementation = "causal_rows"
    experts.prepare(model)
    return model


def loss_and_gradients(model, implementation, compiled=False):
    model.config._experts_implementation = implementation
    model.zero_grad()
    tokens = torch.arange(2 * 40).view(2, 40) * 7 % 2048
    loss_of = torch.compile(loop.weighted_loss, backend="aot_eager", fullgraph=True) if compiled else None
    loss = (loss_of or loop.weighted_loss)(model, tokens, torch.ones(2, 40), routed=True)
    loss.backward()
    return loss.item(), {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("compiled", [False, True])
def test_loss_and_gradients_are_those_of_the_loop_over_experts(model, compiled):
    expected, wanted = loss_and_gradients(model, "eager")
    got, gradients = loss_and_gradients(model, experts.AT_ONCE, compiled)
    assert got == pytest.approx(expected, abs=1e-5)
    for name, gradient in wanted.items():
        assert gradient.abs().max() > 0, name
        torch.testing.assert_close(gradients[name], gradient, atol=1e-6, rtol=1e-4, msg=name)


def test_only_the_chosen_experts_count(model):
    block = model.model.layers[0].mlp.experts
    hidden, chosen = torch.randn(1, 32), torch.tensor([[1, 4]])
    weights = torch.tensor([[0.7, 0.3]])
    before = experts.experts_at_once(block, hidden, chosen, weights)
    with torch.no_grad():
        block.down_proj[[0, 2, 3, 5]] = 9.0
    assert torch.equal(experts.experts_at_once(block, hidden, chosen, weights), before)
    with torch.no_grad():
        block.down_proj[4] = 9.0
    assert not torch.equal(experts.experts_at_once(block, hidden, chosen, weights), before)


def test_balance_of_one_layer_is_the_librarys_and_layers_do_not_make_up_for_each_other():
    one, other = torch.randn(50, 6), torch.randn(50, 6)
    for layer in (one, other):
        expected = load_balancing_loss_func((layer,), 6, 2).item()
        assert experts.balance_loss((layer,), 2).item() == pytest.approx(expected, rel=1e-5)
    lopsided = torch.tensor([[9.0, 9.0, -9, -9], [9.0, 9.0, -9, -9]])
    mirrored = lopsided.flip(-1)
    assert load_balancing_loss_func((lopsided, mirrored), 4, 2).item() == pytest.approx(2, abs=1e-3)
    assert experts.balance_loss((lopsided, mirrored), 2).item() == pytest.approx(4, abs=1e-3)


def test_what_is_stored_loads_in_both_programs_with_the_same_logits(model, tmp_path):
    batch = Packer(TOKENIZER, 128, training_random(0)).batch(2)
    model.config._experts_implementation = experts.AT_ONCE
    loop.train(model, itertools.repeat(batch), loop.Limit(steps=5), 1e-2, "cpu")
    train.store(model, argparse.Namespace(out=tmp_path, tokenizer=TINY), TOKENIZER)
    assert "implementation" not in json.dumps(json.loads((tmp_path / "config.json").read_text()))
    theirs, info = AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype=torch.float32, output_loading_info=True
    )
    assert not any(info.values())
    prompt = list(range(100, 140))
    with LLM(tmp_path, device="cpu", dtype="float32") as llm, torch.inference_mode():
        expected = theirs(torch.tensor([prompt])).logits[0]
        torch.testing.assert_close(llm.logits(prompt), expected, atol=1e-5, rtol=0)
