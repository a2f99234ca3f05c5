"""GPTQ and AWQ checkpoints, packed here value by value, as models: logits against transformers' Qwen3."""

import pytest
import torch
from conftest import edit_config, make_reference
from int4_files import write_int4
from safetensors.torch import load_file, save_file

from minillm import LLM, ModelConfig
from minillm.errors import InputError
from minillm.quant import codec

SHAPE = {  # eight rows are packed together, groups divide the columns
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "head_dim": 16,
}
GROUP = 32
PROMPT = [1, 2, 3, 50, 7]
Q, DOWN = "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"


def logits(model, **options) -> torch.Tensor:
    with LLM(model, device="cpu", max_model_len=64, dtype="float32", **options) as llm:
        return llm.logits(PROMPT)


def expected(reference) -> torch.Tensor:
    with torch.inference_mode():
        return reference(torch.tensor([PROMPT])).logits[0]


def changed(folder, change: dict) -> None:
    """Replace tensors of the checkpoint, or drop those that become None."""
    path = folder / "model.safetensors"
    tensors = {name: tensor for name, tensor in (load_file(path) | change).items() if tensor is not None}
    save_file(tensors, path)


@pytest.mark.parametrize(
    ("kind", "group", "settings"),
    [
        ("gptq", GROUP, {}),
        ("gptq", GROUP, {"desc_act": True, "sym": False}),  # what counts is g_idx, and that is in order
        ("awq", GROUP, {"version": "gemm", "zero_point": True}),
        ("awq", 16, {}),
    ],
)
@pytest.mark.parametrize("config", [{}, {"tie_word_embeddings": True, "attention_bias": True}])
def test_logits_are_those_of_the_dequantised_weights(tmp_path, kind, group, settings, config, monkeypatch):
    reference = make_reference(**SHAPE | config)
    folder = write_int4(tmp_path / "model", reference, kind, group, **settings)
    monkeypatch.setattr(codec, "write", None)  # nothing is quantised again
    ours = logits(folder)
    torch.testing.assert_close(ours, expected(reference), atol=1e-4, rtol=1e-4)
    assert ours.std() > 0.5
    for options in (
        {"offload": "prefetch", "gpu_layer_budget": 1},
        {"offload": "prefetch", "gpu_layer_budget": 2, "slots": 2},
        {"offload": "naive", "gpu_layer_budget": 2},
    ):
        assert torch.equal(logits(folder, **options), ours), options


def test_experts(tmp_path):
    reference = make_reference(**SHAPE, num_experts=4, moe_intermediate_size=32)
    reference.save_pretrained(tmp_path / "dense")
    dense = make_reference(**SHAPE, num_experts=4, moe_intermediate_size=32, seed=1)
    weights = {}
    for path in (tmp_path / "dense").glob("*.safetensors"):
        weights |= load_file(path)
    assert "model.layers.0.mlp.experts.3.up_proj.weight" in weights

    class Stored:  # experts by one name each, as files have them
        config = dense.config

        @staticmethod
        def state_dict():
            return weights

    folder = write_int4(tmp_path / "model", Stored, "gptq", GROUP)
    save_file(weights, tmp_path / "dense" / "model.safetensors")
    torch.testing.assert_close(logits(folder), logits(tmp_path / "dense"), atol=1e-4, rtol=1e-4)


def test_a_group_of_the_whole_row(tmp_path):
    reference = make_reference(**SHAPE | {"intermediate_size": 64})
    folder = write_int4(tmp_path / "model", reference, "gptq", 64, group_size=-1)
    torch.testing.assert_close(logits(folder), expected(reference), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("awq", {"modules_to_not_convert": ["mlp.down_proj", "mlp.gate", "model.layers.1.mlp.up"]}),
        (
            "gptq",
            {
                "modules_in_block_to_quantize": [
                    ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
                    ["self_attn.o_proj"],
                    ["mlp.up_proj", "mlp.gate_proj"],
                ]
            },
        ),
    ],
)
def test_matrices_that_were_left_dense(tmp_path, kind, settings):
    reference = make_reference(**SHAPE)
    folder = write_int4(tmp_path / "model", reference, kind, GROUP, dense=("down_proj",), **settings)
    torch.testing.assert_close(logits(folder), expected(reference), atol=1e-4, rtol=1e-4)


def test_the_second_version_of_gptq_stores_zeros_as_they_are(tmp_path):
    reference = make_reference(**SHAPE)
    folder = write_int4(tmp_path / "model", reference, "gptq", GROUP)
    plain = logits(folder)
    edit_config(folder, quantization_config=settings("gptq", checkpoint_format="gptq_v2"))
    wrong = logits(folder)  # these zeros are of the first version
    assert not torch.allclose(wrong, plain, atol=0.1)
    stored = load_file(folder / "model.safetensors")
    more = 0x11111111  # each of the eight zeros of an int32 by one
    changed(folder, {name: zeros + more for name, zeros in stored.items() if name.endswith("qzeros")})
    assert torch.equal(logits(folder), plain)


def settings(kind: str, **others) -> dict:
    return {"quant_method": kind, "bits": 4, "group_size": GROUP} | others


def test_biases_of_zeros_are_no_biases(tmp_path):
    """Older programs wrote one for every matrix of a model that has none."""
    folder = write_int4(tmp_path / "model", make_reference(**SHAPE), "gptq", GROUP)
    plain = logits(folder)
    changed(folder, {f"{Q}.bias": torch.zeros(64).half(), f"{DOWN}.bias": torch.zeros(64).half()})
    assert torch.equal(logits(folder), plain)
    changed(folder, {f"{DOWN}.bias": torch.tensor([0.0] * 63 + [1e-3])})
    with pytest.raises(InputError, match=r"down_proj\.bias is unknown"):
        logits(folder)


# ---- what is refused ----


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("gptq", {f"{DOWN}.qzeros": None}, r"down_proj\.qzeros is missing"),
        ("gptq", {f"{Q}.weight": torch.zeros(64, 64)}, r"q_proj\.weight is unknown"),
        ("awq", {f"{Q}.g_idx": torch.zeros(64)}, r"q_proj\.g_idx is unknown"),
        ("gptq", {f"{Q}.qweight": torch.zeros(8, 64)}, r"q_proj\.qweight is torch\.float32"),
        (
            "gptq",
            {f"{Q}.scales": torch.ones(2, 32).half()},
            r"q_proj\.scales has shape \[2, 32\], but \[2, 64\]",
        ),
        (
            "gptq",
            {f"{Q}.g_idx": (torch.arange(64) % 2).int()},
            r"q_proj: g_idx is out of order .* desc_act false",
        ),
        (
            "awq",
            {f"{Q}.scales": torch.full((2, 64), 1e-9)},
            r"q_proj: scales of torch\.float32 exceed float16",
        ),
    ],
)
def test_tensors_that_are_refused(tmp_path, kind, change, words):
    folder = write_int4(tmp_path / "model", make_reference(**SHAPE), kind, GROUP)
    changed(folder, change)
    with pytest.raises(InputError, match=words) as caught:
        logits(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (settings("gptq", bits=8), "gptq with 8 bits is not supported: minillm reads 4"),
        (settings("awq", bits=3), "awq with 3 bits"),
        (settings("awq", bits=None), "awq with None bits"),
        (settings("awq", version="gemv"), "awq of version 'gemv' .* reads gemm"),
        (settings("gptq", group_size=48), "group_size 48 of gptq does not divide the 64 columns of layers.0"),
        (settings("gptq", group_size=31), "group_size 31 of gptq does not divide"),
        (settings("gptq", group_size=0), "group_size is 0"),
        (settings("gptq", group_size="many"), "group_size is 'many'"),
        (settings("gptq", group_size=16), "q_proj has groups of 32, config.json says 16"),
        (settings("gptq", dynamic={"-:lm_head": {}}), "dynamic"),
        (settings("gptq", lm_head=True), "lm_head"),
        (settings("hqq"), "'hqq' is not supported: minillm reads minillm, gptq, awq"),
        (settings("awq"), r"down_proj\.g_idx.* unknown"),  # two quantisers: the tensors are those of gptq
        ({"quant_method": "minillm", "quantize": "int8"}, r"q_proj\.weight\.packed, .* missing"),
        ("gptq", "quant_method 'gptq' is not supported"),
    ],
)
def test_configurations_that_are_refused(tmp_path, values, words):
    folder = write_int4(tmp_path / "model", make_reference(**SHAPE), "gptq", GROUP)
    edit_config(folder, quantization_config=values)
    with pytest.raises(InputError, match=words) as caught:
        logits(folder)
    assert "\n" not in str(caught.value)


def test_tensors_of_the_other_quantiser_do_not_fit(tmp_path):
    """Square matrices apart, where nothing but the values would tell."""
    folder = write_int4(tmp_path / "model", make_reference(**SHAPE), "awq", GROUP)
    edit_config(folder, quantization_config=settings("gptq"))
    with pytest.raises(InputError, match="q_proj"):
        logits(folder)


@pytest.mark.parametrize("kind", ["gptq", "awq"])
def test_what_is_quantised_is_not_quantised_again(tmp_path, kind):
    folder = write_int4(tmp_path / "model", make_reference(**SHAPE), kind, GROUP)
    with pytest.raises(
        InputError, match=rf"'int8', but the model is stored as {kind} already: leave quantize out"
    ):
        logits(folder, quantize="int8")


def test_the_configuration_alone_says_the_formats(tmp_path):
    folder = write_int4(tmp_path / "model", make_reference(**SHAPE), "awq", GROUP)
    config = ModelConfig.from_folder(folder)
    assert str(config.quantize) == "awq"
    names = {name: format.name for name, format in config.formats(2, "mlp").items()}
    assert names == {f"mlp.{name}_proj.weight": "int4-zero32" for name in ("gate", "up", "down")}
    assert hash(config) == hash(ModelConfig.from_folder(folder))
