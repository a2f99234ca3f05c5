"""Whole GGUF files: configuration, names, row order and weights against the models they were written from."""

import sys
from dataclasses import fields

import gguf
import numpy as np
import pytest
import torch
from conftest import make_reference
from gguf_files import add, dequantised, make_llama, permuted, write_gguf

from minillm import weights
from minillm.config import ModelConfig
from minillm.errors import InputError
from minillm.quant.gguf import blocks, names
from minillm.quant.gguf.config import read_config
from minillm.quant.gguf.file import GGUFFile
from minillm.quant.gguf.loader import fill_from_gguf

WIDE = {"hidden_size": 64, "intermediate_size": 96}  # whole blocks of 32
KINDS = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]  # what the library can pack


@pytest.fixture
def qwen3(tmp_path):
    """`qwen3(kind, **config)` → (file, reference model)."""

    def make(kind: str = "F32", extra=None, **config):
        model = make_reference(**(WIDE | config))
        return GGUFFile(write_gguf(tmp_path / "model.gguf", model, kind, extra)), model

    return make


def by_name(file: GGUFFile, shapes) -> dict[str, torch.Tensor]:
    """Every tensor of the file, dequantised, under Hugging Face's names and in its row order."""
    found = names.match(file, shapes)
    return {
        name: blocks.dequantise(stored.format, names.rows_of(file, name, stored)).view(stored.shape)
        for name, stored in found.items()
    }


def shapes_of(model) -> dict[str, tuple[int, ...]]:
    tied = model.config.tie_word_embeddings
    return {
        name: tuple(value.shape)
        for name, value in model.state_dict().items()
        if not (tied and name == "lm_head.weight")
    }


# ---- what a good file gives ----


@pytest.mark.parametrize("kind", KINDS)
def test_qwen3_weights(qwen3, kind):
    file, model = qwen3(kind)
    ours = by_name(file, shapes_of(model))
    for name, value in model.state_dict().items():
        assert torch.equal(ours[name], dequantised(value, kind)), name


@pytest.mark.parametrize("tied", [True, False])
def test_qwen3_configuration(qwen3, make_checkpoint, tied):
    file, _ = qwen3(tie_word_embeddings=tied)
    folder, _ = make_checkpoint(**WIDE, tie_word_embeddings=tied, eos_token_id=2)
    ours, expected = ModelConfig.from_dict(read_config(file)), ModelConfig.from_folder(folder)
    for field in fields(ModelConfig):
        a, b = getattr(ours, field.name), getattr(expected, field.name)
        assert a == (pytest.approx(b) if isinstance(b, float) else b), field.name


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_the_engine_runs_a_qwen3_file(qwen3, kind):
    """Filled into the engine's own model: the same parameters as the dequantised reference."""
    file, model = qwen3(kind, tie_word_embeddings=False)
    config = ModelConfig.from_dict(read_config(file))
    built = weights.build(config, torch.float32, "cpu", fill_from_gguf(file, config))
    parameters = dict(built.named_parameters())
    assert parameters.keys() == model.state_dict().keys()
    for name, value in model.state_dict().items():
        assert torch.equal(parameters[name], dequantised(value, kind)), name


@pytest.mark.parametrize("config", [{}, {"attention_bias": True}, {"num_key_value_heads": 4}])
@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_llama_weights_come_back_in_order(tmp_path, config, kind):
    model = make_llama(**config)
    file = GGUFFile(write_gguf(tmp_path / "llama.gguf", model, kind))
    ours = by_name(file, shapes_of(model))
    stored = file.tensors["blk.0.attn_q.weight"]
    as_stored = blocks.dequantise(stored.format, stored.packed)
    assert not torch.equal(as_stored, ours["model.layers.0.self_attn.q_proj.weight"])
    for name, value in model.state_dict().items():
        assert torch.equal(ours[name], dequantised(value, kind)), name


def test_permuted_rows_are_restored_packed():
    rows = np.arange(48 * 3, dtype=np.uint8).reshape(48, 3)
    back = names.restored_rows(torch.from_numpy(permuted(rows, heads=3)), heads=3)
    assert np.array_equal(back.numpy(), rows)


@pytest.mark.parametrize(("tied", "bias"), [(True, False), (False, True)])
def test_llama_configuration(tmp_path, tied, bias):
    model = make_llama(tie_word_embeddings=tied, attention_bias=bias)
    values = read_config(GGUFFile(write_gguf(tmp_path / "llama.gguf", model)))
    for key in values.keys() - {"dtype", "eos_token_id", "rms_norm_eps"}:
        assert values[key] == getattr(model.config, key), key
    assert values["rms_norm_eps"] == pytest.approx(model.config.rms_norm_eps)
    assert values["eos_token_id"] == [2]
    assert values["dtype"] == "float32"


@pytest.mark.parametrize("make", [make_llama, lambda: make_reference(**WIDE, head_dim=128)])
def test_transformers_reads_the_same_from_it(tmp_path, make):
    from transformers import AutoModelForCausalLM

    path = write_gguf(tmp_path / "model.gguf", make(), "Q4_0")
    reference = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name, dtype=torch.float32)
    ours = by_name(GGUFFile(path), shapes_of(reference))
    assert all(
        torch.equal(ours[name], value) for name, value in reference.state_dict().items() if name in ours
    )
    assert len(ours) > 20


@pytest.mark.parametrize(
    ("kind", "dtype"), [("F32", "float32"), ("F16", "float16"), ("BF16", "bfloat16"), ("Q4_0", "bfloat16")]
)
def test_dtype_is_that_of_the_matrices(qwen3, kind, dtype):
    assert read_config(qwen3(kind)[0])["dtype"] == dtype


def test_metadata_are_what_the_library_reads(qwen3):
    def extra(writer):
        writer.add_token_list(["a", "ü", "", "中文"])
        writer.add_token_types([1, 3, 4, 5])
        writer.add_array("scores", [0.5, -2.0])
        writer.add_array("truths", [True, False])
        writer.add_bool("truth", True)

    file, _ = qwen3(extra=extra)
    library = gguf.GGUFReader(file.path)
    assert file.get("tokenizer.ggml.tokens") == ["a", "ü", "", "中文"]
    assert len(library.fields) > 20
    for key, field in library.fields.items():
        assert file.get(key) == field.contents(), key
    assert file.get("absent", 5) == 5


def test_yarn_and_both_end_tokens_are_read(qwen3):
    def extra(writer):
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(128)
        writer.add_eot_token_id(7)

    config = ModelConfig.from_dict(read_config(qwen3(extra=extra)[0]))
    assert (config.rope.rope_type, config.rope.factor) == ("yarn", 4.0)
    assert config.rope.original_max_position_embeddings == 128
    assert config.eos_token_ids == (2, 7)


# ---- what is refused ----


def one_line(error) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def test_a_file_cut_short_anywhere(qwen3, tmp_path):
    whole = qwen3()[0].path.read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in [0, 3, 4, 10, 24, *range(30, len(whole) - 1, len(whole) // 60), len(whole) - 1]:
        cut.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"cut\.gguf") as error:
            GGUFFile(cut)
        assert "again" in one_line(error), length
    cut.write_bytes(whole)
    GGUFFile(cut)


def test_damaged_headers_never_end_in_a_traceback(qwen3, tmp_path):
    whole = qwen3()[0].path.read_bytes()
    rng, refused = np.random.default_rng(0), 0
    damaged = tmp_path / "damaged.gguf"
    for _ in range(150):
        data = bytearray(whole)
        data[rng.integers(0, 3000)] = rng.integers(0, 256)
        damaged.write_bytes(data)
        try:
            names.match(
                GGUFFile(damaged), ModelConfig.from_dict(read_config(GGUFFile(damaged))).parameter_shapes()
            )
        except InputError as error:
            refused += "\n" not in str(error)
    assert refused > 50


@pytest.mark.parametrize("name", ["blk.1.ffn_up.weight", "token_embd.weight"])
def test_a_tensor_of_another_type_than_its_header_says(qwen3, name):
    path = qwen3("Q8_0")[0].path
    reader = gguf.GGUFReader(path, "r+")
    tensor = next(tensor for tensor in reader.tensors if tensor.name == name)
    tensor.field.parts[4][0] = gguf.GGMLQuantizationType.Q4_0
    reader.data.flush()
    with pytest.raises(
        InputError, match=rf"{name} takes \d+ bytes by its header's type Q4_0, but \d+ are"
    ) as error:
        GGUFFile(path)
    one_line(error)


def test_an_unsupported_type_is_named_with_those_that_are(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "iq.gguf", "qwen3")
    kind = gguf.GGMLQuantizationType.IQ4_NL
    writer.add_tensor("token_embd.weight", np.zeros((4, 18), np.uint8), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(
        InputError, match=r"token_embd\.weight has type IQ4_NL: minillm reads F32, .*Q6_K"
    ) as error:
        GGUFFile(tmp_path / "iq.gguf")
    one_line(error)


def test_no_file_and_another_file(tmp_path):
    with pytest.raises(InputError, match="no file"):
        GGUFFile(tmp_path / "absent.gguf")
    (tmp_path / "text.gguf").write_text("not a model" * 100)
    with pytest.raises(InputError, match=r"not a whole GGUF file .*magic"):
        GGUFFile(tmp_path / "text.gguf")


def test_without_the_library(qwen3, monkeypatch):
    path = qwen3()[0].path
    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.delitem(sys.modules, "minillm.quant.gguf.reader")
    with pytest.raises(InputError, match=r"need the gguf library: pip install 'minillm\[gguf\]'"):
        GGUFFile(path)


@pytest.mark.parametrize(
    ("extra", "line"),
    [
        (lambda w: w.add_expert_count(8), "expert_count is 8: minillm has no experts here"),
        (lambda w: w.add_sliding_window(64), "a sliding window"),
        (lambda w: w.add_uint16("split.count", 3), "one of 3 files"),
        (lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR), "rope.scaling.factor"),
        (lambda w: add(w, "rope_freqs.weight", np.full(8, 2.0, np.float32), "F32"), "Llama 3.1"),
    ],
)
def test_what_would_change_the_computation(tmp_path, extra, line):
    with pytest.raises(InputError) as error:
        read_config(GGUFFile(write_gguf(tmp_path / "llama.gguf", make_llama(), extra=extra)))
    assert line in one_line(error)


def test_rope_frequencies_of_one_change_nothing(tmp_path):
    def extra(writer):
        add(writer, "rope_freqs.weight", np.ones(8, np.float32), "F32")

    model = make_llama()
    file = GGUFFile(write_gguf(tmp_path / "llama.gguf", model, extra=extra))
    assert read_config(file)["rope_parameters"] == {"rope_theta": 50000.0, "rope_type": "default"}
    assert len(by_name(file, shapes_of(model))) == len(shapes_of(model))


def test_another_architecture(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "other.gguf", "gemma3")
    add(writer, "token_embd.weight", np.zeros((4, 32), np.float32), "F32")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(InputError, match="architecture 'gemma3': minillm reads qwen3, llama"):
        read_config(GGUFFile(tmp_path / "other.gguf"))


def test_tensors_that_are_missing_left_over_or_of_another_shape(qwen3):
    file, model = qwen3()
    shapes = shapes_of(model)
    names.match(file, shapes)
    norm = "model.norm.weight"
    with pytest.raises(InputError, match=r"model\.more\.weight is missing"):
        names.match(file, shapes | {"model.more.weight": (3,)})
    with pytest.raises(InputError, match=r"output_norm\.weight is unknown"):
        names.match(file, {name: shape for name, shape in shapes.items() if name != norm})
    with pytest.raises(
        InputError, match=r"output_norm\.weight has shape \[64\], its metadata ask for \[65\]"
    ):
        names.match(file, shapes | {norm: (65,)})
