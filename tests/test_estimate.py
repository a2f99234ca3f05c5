"""Estimates: parameter counts as Qwen publishes them, and placements worked out on paper."""

from dataclasses import replace

import pytest

from minillm.estimate import GPU_RESERVE_BYTES, HOST_RESERVE_BYTES, bytes_per_token, estimate, weight_bytes
from minillm.hardware import PUBLISHED, Hardware
from minillm.presets import PRESETS
from minillm.units import GIB

QWEN3_8B = PRESETS["Qwen3-8B"]
# On paper, for Qwen3-8B: q and o 4096², k and v 4096 × 1024, three 4096 × 12288; norms 2 × 4096 + 2 × 128.
LAYER = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 12288 + 2 * 4096 + 2 * 128
HEAD = 151936 * 4096
MACHINE = Hardware(
    name="m",
    host_memory_bytes=64 * GIB,
    host_gb_s=40.0,
    gpu_memory_bytes=8 * GIB,
    gpu_gb_s=400.0,
    link_gb_s=25.0,
)


# Model cards: total parameters, and for the mixtures the activated ones, in billions.
@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("Qwen3-0.6B", 0.6),
        ("Qwen3-1.7B", 1.7),
        ("Qwen3-4B", 4.0),
        ("Qwen3-8B", 8.2),
        ("Qwen3-14B", 14.8),
        ("Qwen3-32B", 32.8),
        ("Qwen3-30B-A3B", 30.5),
        ("Qwen3-235B-A22B", 235.0),
    ],
)
def test_weights_are_as_published(name, total):
    assert weight_bytes(PRESETS[name]) / 2e9 == pytest.approx(total, rel=0.02)


@pytest.mark.parametrize(("name", "active"), [("Qwen3-30B-A3B", 3.3), ("Qwen3-235B-A22B", 22.0)])
def test_experts_count_as_far_as_they_are_used(name, active):
    embedding = PRESETS[name].vocab_size * PRESETS[name].hidden_size
    assert bytes_per_token(PRESETS[name]) / 2 + embedding == pytest.approx(active * 1e9, rel=0.03)


def test_a_token_reads_layers_and_head():
    assert bytes_per_token(QWEN3_8B) == 2 * (36 * LAYER + HEAD)
    assert weight_bytes(QWEN3_8B) == 2 * (36 * LAYER + 2 * HEAD + 4096)
    assert bytes_per_token(QWEN3_8B, bits=4) == bytes_per_token(QWEN3_8B) // 4


def test_tied_head_is_read_once():
    tied = PRESETS["Qwen3-0.6B"]
    assert weight_bytes(tied) - bytes_per_token(tied) == 2 * 1024  # the last norm


def test_all_on_the_gpu():
    roomy = replace(MACHINE, gpu_memory_bytes=24 * GIB)
    answer = estimate(QWEN3_8B, roomy)
    assert (answer.placement, answer.resident_layers) == ("GPU", 36)
    assert answer.tokens_per_s == pytest.approx(400e9 / bytes_per_token(QWEN3_8B))


def test_the_rest_over_the_link():
    answer = estimate(QWEN3_8B, replace(MACHINE, host_gb_s=1.0))
    free = 8 * GIB - GPU_RESERVE_BYTES - 2 * (2 * HEAD + 4096)
    resident = free // (2 * LAYER) - 1
    assert (answer.placement, answer.resident_layers) == ("GPU + link", resident)
    assert answer.tokens_per_s == pytest.approx(25e9 / (2 * LAYER * (36 - resident)), rel=1e-6)


def test_a_fast_processor_beats_a_slow_link():
    answer = estimate(QWEN3_8B, replace(MACHINE, link_gb_s=5.0))
    assert answer.placement == "CPU"
    assert answer.tokens_per_s == pytest.approx(40e9 / bytes_per_token(QWEN3_8B))


def test_what_does_not_fit_gets_no_number():
    needed = weight_bytes(QWEN3_8B) + HOST_RESERVE_BYTES
    laptop = replace(PUBLISHED["laptop"], host_memory_bytes=needed - 1)
    assert estimate(QWEN3_8B, laptop).tokens_per_s is None
    assert estimate(QWEN3_8B, laptop).placement == "does not fit"
    assert estimate(QWEN3_8B, replace(laptop, host_memory_bytes=needed)).placement == "CPU"


@pytest.mark.parametrize("card", PUBLISHED.values(), ids=list(PUBLISHED))
def test_fewer_bits_are_never_slower(card):
    for config in PRESETS.values():
        speeds = [estimate(config, card, bits).tokens_per_s or 0.0 for bits in (16, 8, 4)]
        assert speeds == sorted(speeds)
