"""Packing and the training loop on the CPU, with a model of one layer."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import Qwen3Config, Qwen3ForCausalLM

from training import loop
from training.packing import Batches, Packer, encode
from training.sample import END_OF_TEXT, Sample, Turn, ask
from training.skills import training_random

TOKENIZER_FILE = Path(__file__).parents[1] / "data" / "tiny" / "tokenizer.json"
TOKENIZER = Tokenizer.from_file(str(TOKENIZER_FILE))
SEPARATOR = TOKENIZER.token_to_id(END_OF_TEXT)
SMALL = {
    "vocab_size": 2048,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "head_dim": 16,
}


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Qwen3ForCausalLM(Qwen3Config(**SMALL, num_attention_heads=2, num_key_value_heads=1))


def test_an_encoded_sample_is_its_text_with_weights():
    sample = Sample("json", ("k",), (Turn(ask("Hi"), "Hello"), Turn("\nmore", "x")))
    ids, weights = encode(TOKENIZER, sample)
    text = (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\nmorex<|im_end|><|endoftext|>"
    )
    assert TOKENIZER.decode(ids, skip_special_tokens=False) == text
    assert len(weights) == len(ids)
    answered = [i for i, w in zip(ids, weights, strict=True) if w == 100]
    assert TOKENIZER.decode(answered, skip_special_tokens=False) == "Hello<|im_end|>x<|im_end|>"
    assert weights[-1] == 0


def test_a_raw_text_is_closed_once_and_stories_weigh_less():
    ids, weights = encode(TOKENIZER, Sample("stories", ("k",), (Turn("One", " two"),), END_OF_TEXT))
    assert ids.count(SEPARATOR) == 1
    assert weights == [5] * len(TOKENIZER.encode("One").ids) + [30] * (
        len(ids) - len(TOKENIZER.encode("One").ids)
    )


def test_rows_begin_with_a_sample_and_are_nearly_full():
    tokens, weights = Packer(TOKENIZER, 1024, training_random(0)).batch(12)
    assert tokens.shape == weights.shape == (12, 1024)
    starts = {TOKENIZER.decode(row[:1].tolist(), skip_special_tokens=False) for row in tokens}
    assert starts <= {"<|im_start|>", "Q", "Once", "Long", "One", "In", "There", "Every", "It"}
    assert (weights == 0).mean() < 0.1


def test_batches_come_in_the_same_order_as_without_processes():
    with Batches(TOKENIZER_FILE, rows=2, length=256, workers=2, seed=5) as batches:
        got = list(itertools.islice(batches, 3))
    packers = [Packer(TOKENIZER, 256, training_random(5, stream)) for stream in range(2)]
    for (tokens, weights), packer in zip(got, (packers[0], packers[1], packers[0]), strict=True):
        expected = packer.batch(2)
        assert np.array_equal(tokens, expected[0])
        assert np.array_equal(weights, expected[1])


def test_loss_is_the_weighted_mean_of_the_models_own(model):
    tokens = torch.randint(0, 2048, (2, 12))
    weights = torch.zeros(2, 12)
    weights[:, 5:9] = 0.3
    labels = torch.where(weights > 0, tokens, -100)
    expected = model(input_ids=tokens, labels=labels).loss
    model.config._attn_implementation = "causal_rows"
    assert loop.weighted_loss(model, tokens, weights, routed=False).item() == pytest.approx(
        expected.item(), abs=1e-5
    )
    weights[0, 11] = 0.3
    assert loop.weighted_loss(model, tokens, weights, routed=False).item() != pytest.approx(
        expected.item(), abs=1e-5
    )


def test_learning_rate_rises_holds_and_falls():
    assert loop.lr_share(0, 0.0) == pytest.approx(1 / loop.WARMUP_STEPS)
    assert loop.lr_share(1_000, 0.2) == loop.lr_share(5_000, 0.4) == 1
    assert loop.lr_share(9_000, 0.7) == pytest.approx(0.5)
    assert loop.lr_share(9_000, 1.0) == loop.LAST_LR_SHARE


def test_a_limit_is_seconds_or_steps():
    assert loop.Limit(steps=10).progress(5) == 0.5
    assert 0 <= loop.Limit(seconds=1e6).progress(5) < 0.01
    for both in ({}, {"seconds": 1, "steps": 1}):
        with pytest.raises(ValueError, match="seconds or steps"):
            loop.Limit(**both)


def test_training_learns_a_batch_and_stops_at_its_limit(model):
    batch = Packer(TOKENIZER, 128, training_random(0)).batch(2)
    tokens, weights = loop.to_device(batch, "cpu")
    before = loop.weighted_loss(model, tokens, weights, routed=False).item()
    facts = loop.train(model, itertools.repeat(batch), loop.Limit(steps=60), 2e-2, "cpu")
    assert facts["steps"] == 60
    assert facts["tokens"] == 60 * 256
    assert loop.weighted_loss(model, tokens, weights, routed=False).item() < before / 2
