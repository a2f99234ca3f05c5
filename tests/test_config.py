"""Configurations: both spellings read alike, bad values named."""

import json
from math import prod

import pytest

from minillm.config import ModelConfig
from minillm.errors import InputError
from minillm.presets import PRESETS, load

DENSE = {
    "model_type": "qwen3",
    "vocab_size": 100,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
MOE = DENSE | {"model_type": "qwen3_moe", "num_experts_per_tok": 2, "moe_intermediate_size": 8}


def test_both_spellings_of_rope_and_dtype_read_alike():
    yarn = {"factor": 4.0, "original_max_position_embeddings": 128}
    old = ModelConfig.from_dict(
        DENSE | {"rope_theta": 5e5, "rope_scaling": {"type": "yarn", **yarn}, "torch_dtype": "bfloat16"}
    )
    new = ModelConfig.from_dict(
        DENSE | {"rope_parameters": {"rope_type": "yarn", "rope_theta": 5e5, **yarn}, "dtype": "bfloat16"}
    )
    assert old == new
    assert (old.rope.rope_theta, old.rope.factor, old.dtype) == (5e5, 4.0, "bfloat16")


def test_both_spellings_of_the_expert_count_read_alike():
    counts = [ModelConfig.from_dict(MOE | {key: 6}) for key in ("num_experts", "num_local_experts")]
    assert counts[0] == counts[1]
    assert counts[0].num_experts == 6


def test_yarn_extends_the_context_and_no_yarn_does_not():
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    stretched = ModelConfig.from_dict(
        DENSE | {"max_position_embeddings": 40960, "rope_theta": 1e6, "rope_scaling": scaling}
    )
    plain = ModelConfig.from_dict(DENSE | {"max_position_embeddings": 40960})
    assert (stretched.context_length, plain.context_length) == (131072, 40960)


def test_yarn_without_an_original_length_stretches_the_context():
    yarn = {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 2.0}}
    lengths = [
        ModelConfig.from_dict(DENSE | yarn | {"max_position_embeddings": length}).context_length
        for length in (4096, None)
    ]
    assert lengths == [8192, 2 * 32768]


NEUTRAL = [
    {"hidden_act": None, "tie_word_embeddings": None, "attention_bias": None, "rms_norm_eps": None},
    {"num_key_value_heads": None, "max_position_embeddings": None, "dtype": None, "eos_token_id": None},
    {"layer_types": ["full_attention"] * 3, "quantization_config": None, "partial_rotary_factor": 1.0},
    {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 1, "mscale": None}},
    {"rope_parameters": None, "rope_scaling": None, "rope_theta": None, "unknown": 3},
]


@pytest.mark.parametrize("change", NEUTRAL)
def test_null_counts_as_absent_and_neutral_values_change_nothing(change):
    absent = ModelConfig.from_dict({k: v for k, v in DENSE.items() if k not in change})
    assert ModelConfig.from_dict(DENSE | change) == absent


def test_a_byte_order_mark_is_no_error(tmp_path):
    (tmp_path / "config.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(DENSE).encode())
    assert ModelConfig.from_folder(tmp_path) == ModelConfig.from_dict(DENSE)


def test_experts_in_all_are_bounded_before_they_are_listed():
    many = MOE | {"num_experts": 4096, "num_hidden_layers": 32}
    assert ModelConfig.from_dict(many).num_experts == 4096
    with pytest.raises(InputError, match="num_hidden_layers 33 with num_experts 4096"):
        ModelConfig.from_dict(many | {"num_hidden_layers": 33})


def test_end_tokens_come_from_generation_config_when_it_has_them(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(DENSE | {"eos_token_id": 7}))
    assert ModelConfig.from_folder(tmp_path).eos_token_ids == (7,)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 9]}))
    assert ModelConfig.from_folder(tmp_path).eos_token_ids == (7, 9)


def test_moe_layers_follow_step_and_exceptions():
    config = ModelConfig.from_dict(
        MOE | {"num_experts": 4, "num_hidden_layers": 6, "decoder_sparse_step": 2, "mlp_only_layers": [3]}
    )
    assert [config.is_moe_layer(i) for i in range(6)] == [False, True, False, False, False, True]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"hidden_size": -4}, "hidden_size is -4"),
        ({"hidden_size": "48"}, "hidden_size is '48'"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True"),
        ({"num_hidden_layers": 2.5}, "num_hidden_layers is 2.5"),
        ({"num_key_value_heads": 3}, "num_attention_heads 4 is not a multiple of num_key_value_heads 3"),
        ({"head_dim": 15}, "head_dim 15 is odd"),
        ({"rms_norm_eps": 0}, "rms_norm_eps is 0"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no'"),
        ({"dtype": "int8"}, "dtype 'int8' is not supported"),
        ({"model_type": "gpt2"}, "model_type 'gpt2' is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported"),
        ({"use_sliding_window": True}, "use_sliding_window true is not supported"),
        ({"rope_parameters": {"rope_type": "llama3"}}, "rope type 'llama3' is not supported"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "factor is missing"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": -1}}, "factor is -1"),
        ({"rope_theta": "big"}, "rope_theta is 'big'"),
        ({"eos_token_id": ["x"]}, "eos_token_id is"),
    ],
)
def test_a_bad_value_is_named_and_the_good_one_accepted(change, named):
    assert ModelConfig.from_dict(DENSE).hidden_size == 48
    with pytest.raises(InputError, match=named) as caught:
        ModelConfig.from_dict(DENSE | change)
    assert "\n" not in str(caught.value)


def test_more_experts_asked_than_there_are():
    with pytest.raises(InputError, match="num_experts_per_tok 2 is more than the 1 experts"):
        ModelConfig.from_dict(MOE | {"num_experts": 1})


def test_presets_have_the_published_parameter_counts():
    """Parameters in units of 10^9, as the model cards give them."""
    published = {
        "Qwen3-0.6B": 0.6,
        "Qwen3-1.7B": 1.7,
        "Qwen3-4B": 4.0,
        "Qwen3-8B": 8.2,
        "Qwen3-14B": 14.8,
        "Qwen3-32B": 32.8,
        "Qwen3-30B-A3B": 30.5,
        "Qwen3-235B-A22B": 235,
    }
    assert set(published) == set(PRESETS)
    for name, billions in published.items():
        total = sum(prod(shape) for shape in load(name).parameter_shapes().values())
        assert total / 1e9 == pytest.approx(billions, rel=0.015)


def test_an_unknown_preset_lists_the_names():
    with pytest.raises(InputError, match=r"'Qwen3-9B'.*Qwen3-8B"):
        load("Qwen3-9B")
