"""The model's parts, each against an independent reference: formulas in float64, loops, transformers."""

import math

import pytest
import torch
import torch.nn.functional as F
from conftest import make_reference
from hypothesis import given, settings
from hypothesis import strategies as st

from minillm.attention import attend
from minillm.config import ModelConfig
from minillm.flat import ALIGNMENT, aligned_buffer, bind, layout_of
from minillm.layer import DecoderLayer
from minillm.linear import Linear, linear, project, side_by_side
from minillm.moe import MoE
from minillm.norm import rms_norm
from minillm.rope import Rope
from minillm.rope_config import RopeConfig

GQA = [(4, 4), (4, 2), (8, 1), (6, 3)]


# ---- norm ----


@pytest.mark.parametrize("shape", [(1, 1, 256), (2, 3, 4, 16), (1, 5, 7)])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e3])
def test_rms_norm_is_the_formula(shape, scale):
    x, weight = torch.randn(shape) * scale, torch.rand(shape[-1]) + 0.5
    exact = x.double() / (x.double().square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight.double()
    torch.testing.assert_close(rms_norm(x, weight, 1e-6).double(), exact, rtol=1e-6, atol=1e-7)


def test_rms_norm_of_zeros_is_zero_and_eps_counts():
    assert rms_norm(torch.zeros(1, 8), torch.ones(8), 1e-6).abs().max() == 0
    small = torch.full((1, 8), 1e-3)
    assert rms_norm(small, torch.ones(8), 1e-6)[0, 0] == pytest.approx(1 / math.sqrt(2), rel=1e-5)


def test_rms_norm_in_bfloat16_rounds_once():
    x, weight = torch.randn(4, 64).bfloat16(), (torch.rand(64) + 0.5).bfloat16()
    exact = rms_norm(x.float(), weight.float(), 1e-6)
    torch.testing.assert_close(rms_norm(x, weight, 1e-6), exact.bfloat16())


# ---- rope ----


def reference_rope(**rope_parameters):
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

    return Qwen3RotaryEmbedding(make_reference(rope_parameters=rope_parameters).config)


@pytest.mark.parametrize(
    "yarn",
    [
        {},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
        {"rope_type": "yarn", "factor": 2.5, "original_max_position_embeddings": 64, "beta_fast": 16.0},
        {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32, "attention_factor": 1.1},
    ],
)
def test_frequencies_are_those_of_transformers(yarn):
    reference = reference_rope(**({"rope_type": "default", "rope_theta": 1e4} | yarn))
    ours = Rope(RopeConfig(**{"rope_theta": 1e4} | yarn), head_dim=16)
    torch.testing.assert_close(ours.inv_freq, reference.inv_freq, rtol=1e-6, atol=0)
    assert ours.scale == pytest.approx(reference.attention_scaling)


def test_rotation_is_complex_multiplication():
    """A pair (x[i], x[i + D/2]) is a complex number that turns by position · frequency."""
    rope = Rope(RopeConfig(), head_dim=8)
    x, positions = torch.randn(2, 3, 5, 8), torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 10, 11]])
    turned = torch.complex(x[..., :4], x[..., 4:]) * torch.polar(
        torch.ones(()), positions[:, None, :, None] * rope.inv_freq
    )
    expected = torch.cat((turned.real, turned.imag), -1)
    torch.testing.assert_close(rope.at(positions).apply(x), expected)


def test_only_the_distance_counts():
    rope, q, k = Rope(RopeConfig(), 16), torch.randn(1, 1, 1, 16), torch.randn(1, 1, 1, 16)

    def score(i, j):
        return (rope.at(torch.tensor([[i]])).apply(q) * rope.at(torch.tensor([[j]])).apply(k)).sum()

    torch.testing.assert_close(score(3, 10), score(103, 110), rtol=1e-4, atol=1e-4)
    assert not torch.isclose(score(3, 10), score(3, 11))


def test_far_positions_keep_float32_angles_in_a_bfloat16_model():
    """In bfloat16 positions 40000 and 40001 would be one position."""
    rope, x = Rope(RopeConfig(rope_theta=1e6), 128), torch.ones(1, 1, 1, 128).bfloat16()
    near, far = (rope.at(torch.tensor([[p]])).apply(x) for p in (40000, 40001))
    assert not torch.equal(near, far)
    exact = 40001 * rope.inv_freq.double()
    assert far[0, 0, 0, 5].item() == pytest.approx((exact.cos() - exact.sin())[5].item(), abs=2e-2)


# ---- attention ----


def attention_by_loops(q, k, v, seen):
    """One head, one query and one key at a time, in float64; query t sees `seen[b][t]` keys."""
    B, H, T, D = q.shape
    group = H // k.shape[1]
    out = torch.zeros(B, H, T, D, dtype=torch.float64)
    for b in range(B):
        for h in range(H):
            for t in range(T):
                keys = k[b, h // group, : seen[b][t]].double()
                scores = torch.tensor([float(q[b, h, t].double() @ key) / math.sqrt(D) for key in keys])
                weights = scores.exp() / scores.exp().sum()
                out[b, h, t] = sum(w * x.double() for w, x in zip(weights, v[b, h // group], strict=False))
    return out.transpose(1, 2).flatten(2)


@pytest.mark.parametrize(("H", "K"), GQA)
@pytest.mark.parametrize(("T", "S"), [(1, 1), (1, 9), (7, 7), (5, 5)])
def test_attention_equals_loops(H, K, T, S):
    q, k, v = torch.randn(2, H, T, 8), torch.randn(2, K, S, 8), torch.randn(2, K, S, 8)
    seen = [[S - T + t + 1 for t in range(T)]] * 2
    torch.testing.assert_close(
        attend(q, k, v, None).double(), attention_by_loops(q, k, v, seen), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize(("H", "K"), GQA)
@pytest.mark.parametrize("T", [1, 4])
def test_masked_attention_equals_loops(H, K, T):
    S, lengths = 9, [9, 5]
    q, k, v = torch.randn(2, H, T, 8), torch.randn(2, K, S, 8), torch.randn(2, K, S, 8)
    seen = [[n - T + t + 1 for t in range(T)] for n in lengths]
    mask = torch.arange(S) < torch.tensor(seen)[:, None, :, None]
    torch.testing.assert_close(
        attend(q, k, v, mask).double(), attention_by_loops(q, k, v, seen), atol=1e-5, rtol=1e-5
    )


# ---- products ----


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 70),
    columns=st.integers(1, 70),
    batch=st.sampled_from([(), (1,), (1, 1), (3,), (2, 2)]),
    threads=st.integers(1, 4),
)
def test_the_product_is_the_product_with_any_number_of_threads(rows, columns, batch, threads):
    x, weight, bias = torch.randn(*batch, columns), torch.randn(rows, columns), torch.randn(rows)
    exact = F.linear(x.double(), weight.double(), bias.double())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: threads)
        ours, without_bias = linear(x, weight, bias), linear(x, weight)
    assert ours.shape == without_bias.shape == (*batch, rows)
    torch.testing.assert_close(ours.double(), exact, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(without_bias + bias, ours, atol=1e-4, rtol=1e-4)


def test_weights_side_by_side_are_one_product():
    buffer = torch.randn(10, 6)
    parts = Linear(6, 4, bias=False), Linear(6, 6, bias=False)
    parts[0].weight.data, parts[1].weight.data = buffer[:4], buffer[4:]
    stacked = side_by_side(*parts)
    assert stacked is not None
    assert torch.equal(stacked, buffer)
    x = torch.randn(1, 3, 6)
    torch.testing.assert_close(project(x, parts, stacked), project(x, parts, None))


@pytest.mark.parametrize("change", ["gap", "order", "bias"])
def test_weights_that_are_not_side_by_side_are_not_merged(change):
    buffer = torch.randn(12, 6)
    parts = [Linear(6, 4, bias=change == "bias") for _ in range(2)]
    begins = {"gap": (0, 5), "order": (4, 0), "bias": (0, 4)}[change]
    for part, begin in zip(parts, begins, strict=True):
        part.weight.data = buffer[begin : begin + 4]
    assert side_by_side(*parts) is None


# ---- experts ----


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (2, 5)])
def test_experts_equal_a_loop_over_tokens(normalise, shape):
    config = ModelConfig(
        model_type="qwen3_moe", vocab_size=10, hidden_size=12, intermediate_size=8, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, head_dim=4, num_experts=5, num_experts_per_tok=3,
        moe_intermediate_size=6, norm_topk_prob=normalise,
    )  # fmt: skip
    moe = MoE(config)
    x = torch.randn(*shape, 12)
    expected = torch.zeros(*shape, 12, dtype=torch.float64)
    moe64 = MoE(config).double()
    moe64.load_state_dict(moe.state_dict())
    for b in range(shape[0]):
        for t in range(shape[1]):
            token = x[b, t].double()
            shares = moe64.gate(token).exp() / moe64.gate(token).exp().sum()
            best = sorted(range(5), key=lambda e: -shares[e])[:3]
            total = sum(shares[e] for e in best) if normalise else 1.0
            expected[b, t] = sum(shares[e] / total * moe64.experts[e](token) for e in best)
    torch.testing.assert_close(moe(x).double(), expected, atol=1e-5, rtol=1e-4)


# ---- the flat buffer ----


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("experts", [0, 3])
def test_flat_buffer_holds_every_parameter_once_aligned_attention_first(dtype, experts):
    config = ModelConfig(
        model_type="qwen3_moe", vocab_size=10, hidden_size=12, intermediate_size=7, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, head_dim=4, num_experts=experts,
        num_experts_per_tok=min(experts, 2), moe_intermediate_size=5,
    )  # fmt: skip
    with torch.device("meta"):
        layer = DecoderLayer(config, 0)
    names = [name for name, _ in layer.named_parameters()]
    layout = layout_of(layer, dtype)
    buffer = aligned_buffer(layout.num_bytes, "cpu")
    buffer.fill_(0xFF)  # NaN in every float format
    bind(layer, layout, buffer, dtype)
    with torch.no_grad():
        for value, parameter in enumerate(layer.parameters()):
            parameter.fill_(value)
    assert sorted(field.name for field in layout.fields) == sorted(names)
    assert all(p.data_ptr() % ALIGNMENT == 0 for p in layer.parameters())
    assert all(bool((p == value).all()) for value, p in enumerate(layer.parameters())), "parameters overlap"
    attention, mlp = layout.ranges["attention"], layout.ranges["mlp"]
    assert (attention[0], attention[1], mlp[1]) == (0, mlp[0], layout.num_bytes)
    for field in layout.fields:
        inside = attention if field.name.startswith(("input_layernorm", "self_attn")) else mlp
        assert inside[0] <= field.offset < inside[1]


def test_neighbours_in_two_storages_are_not_merged():
    """A GPU's allocator packs small tensors side by side; here two views of one memory play the part."""
    memory = torch.zeros(8 * 6 * 4, dtype=torch.uint8).numpy()
    first, second = (torch.frombuffer(memory[at : at + 96], dtype=torch.float32) for at in (0, 96))
    parts = Linear(6, 4, bias=False), Linear(6, 4, bias=False)
    parts[0].weight.data, parts[1].weight.data = first.view(4, 6), second.view(4, 6)
    assert parts[0].weight.data_ptr() + 96 == parts[1].weight.data_ptr()
    assert side_by_side(*parts) is None
