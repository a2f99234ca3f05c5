"""GGUF files as models: blocks lie and move packed, and every store gives what the expanded weights give."""

import pytest
import torch
from command_line import fails, succeeds
from conftest import make_reference
from gguf_files import make_llama, write_gguf

from minillm import LLM, SamplingParams, memory
from minillm.errors import InputError
from minillm.geometry import PARTS
from minillm.model_source import find_model
from minillm.quant.gguf import blocks, names
from minillm.quant.gguf.file import GGUFFile
from minillm.quant.stored import auto_dtype
from minillm.quant.weight import PackedWeight

WIDE = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4}  # whole blocks of 32
K_WIDE = {  # whole blocks of 256
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "head_dim": 64,
    "num_hidden_layers": 3,
}
PROMPT = [1, 2, 3, 50, 7]
PLACEMENTS = [
    {"offload": "prefetch", "gpu_layer_budget": 1},
    {"offload": "prefetch", "gpu_layer_budget": 2, "slots": 1},
    {"offload": "prefetch", "gpu_layer_budget": 2, "slots": 2},
    {"offload": "naive", "gpu_layer_budget": 1},
    {"offload": "naive", "gpu_layer_budget": 2},
]


def several(name: str) -> str:
    """Types as mixed files have them: v another one than q and k, layer 1 all others, one matrix plain."""
    if name.startswith("model.layers.1."):
        return "Q4_1" if ".mlp." in name else "F16"
    return {"v_proj": "Q8_0", "down_proj": "Q5_0", "o_proj": "F16", "embed_tokens": "Q8_0"}.get(
        name.split(".")[-2], "Q4_0"
    )


def k_blocks(name: str) -> str:
    """The types of llama.cpp's Q4_K_M."""
    first = name.startswith("model.layers.0.") and name.split(".")[-2] in ("v_proj", "down_proj")
    return "Q6_K" if first or "embed_tokens" in name else "Q5_K" if "layers.2.mlp.up" in name else "Q4_K"


FILES = {
    "qwen3 Q4_0": (lambda: make_reference(**WIDE), "Q4_0"),
    "qwen3 Q8_0, tied, biases": (
        lambda: make_reference(**WIDE, tie_word_embeddings=True, attention_bias=True),
        "Q8_0",
    ),
    "qwen3, several types": (lambda: make_reference(**WIDE), several),
    "qwen3, blocks of 256": (lambda: make_reference(**K_WIDE), k_blocks),
    "llama Q4_1": (lambda: make_llama(num_hidden_layers=4), "Q4_1"),
    "llama, several types": (lambda: make_llama(num_hidden_layers=4), several),
    "llama F16": (lambda: make_llama(num_hidden_layers=4), "F16"),
}


@pytest.fixture(params=FILES)
def model(request, tmp_path):
    """(path of the file, transformers' model with the weights that it stands for)."""
    make, kind = FILES[request.param]
    reference = make()
    path = write_gguf(tmp_path / "model.gguf", reference, kind)
    with torch.no_grad():
        for name, stored in stored_in(path).items():
            reference.state_dict()[name].copy_(stored)
    return path, reference


def stored_in(path) -> dict[str, torch.Tensor]:
    """Every tensor of the file, expanded, in Hugging Face's names and order."""
    file = GGUFFile(path)
    shapes = find_model(path).config.parameter_shapes()
    return {
        name: blocks.dequantise(stored.format, names.rows_of(file, name, stored)).view(stored.shape)
        for name, stored in names.match(file, shapes).items()
    }


def open_model(path, **options) -> LLM:
    return LLM(path, **{"device": "cpu", "dtype": "float32", "max_model_len": 64} | options)


def test_logits_are_transformers_and_the_same_in_every_store(model):
    path, reference = model
    with torch.inference_mode():
        expected = reference(torch.tensor([PROMPT])).logits[0]
    with open_model(path) as llm:
        logits = llm.logits(PROMPT)
        tokens = llm.generate(PROMPT, SamplingParams(max_tokens=6, ignore_eos=True))[0].token_ids
    torch.testing.assert_close(logits, expected, atol=2e-4, rtol=2e-4)
    assert logits.std() > 0.1
    for options in PLACEMENTS:
        with open_model(path, **options) as llm:
            assert torch.equal(llm.logits(PROMPT), logits), options
            out = llm.generate(PROMPT, SamplingParams(max_tokens=6, ignore_eos=True))[0]
            assert out.token_ids == tokens, options


def test_matrices_lie_packed_as_the_file_has_them_and_all_else_is_plain(model):
    path, _ = model
    file = GGUFFile(path)
    with open_model(path) as llm:
        found = {
            name: stored.format for name, stored in names.match(file, llm.config.parameter_shapes()).items()
        }
        for index, layer in enumerate(llm.model.model.layers):
            for module_name, module in layer.named_modules():
                name = f"model.layers.{index}.{module_name}.weight"
                if name not in found:
                    continue
                kind = found[name].name.removeprefix("gguf-")
                packed = isinstance(module.weight, PackedWeight)
                assert packed == (kind not in blocks.FLOATS), name
                if packed:
                    assert module.weight.format == found[name]
                    rows = names.rows_of(file, name, file.tensors[theirs(file, name)])
                    assert torch.equal(module.weight.parts["packed"], rows), name


def theirs(file: GGUFFile, name: str) -> str:
    return next(their for their in file.tensors if names.hugging_face_name(their) == name)


def test_what_is_copied_in_a_pass_are_the_bytes_of_the_layout(model):
    path, _ = model
    with open_model(path, offload="naive", gpu_layer_budget=1) as llm:
        store, config = llm.model.model.layers, llm.config
        llm.logits(PROMPT)
        layout = sum(
            memory.block_bytes(config, index, part, 4)
            for index in llm.decision.placement.streamed
            for part in PARTS
        )
        assert store.bytes_copied == layout == sum(each.num_bytes for each in store.layouts)
        assert llm.residency.arena.size < layout + 256 + config.vocab_size * config.hidden_size * 4 + 256


def test_projections_of_one_input_are_one_product_where_their_types_are_one(tmp_path):
    path = write_gguf(tmp_path / "model.gguf", make_reference(**WIDE), several)
    with open_model(path) as llm:
        layers = llm.model.model.layers
        assert layers[0].self_attn.stacked is None  # v has another type
        q, k, v = (getattr(layers[0].self_attn, f"{name}_proj").weight for name in "qkv")
        assert q.stack is k.stack is not v.stack
        assert layers[0].mlp.stacked.format.name == "gguf-Q4_0"
        assert isinstance(layers[1].self_attn.stacked, torch.Tensor)  # F16 in the file: plain numbers


def test_a_file_of_plain_numbers_can_be_quantised(tmp_path):
    reference = make_reference(**WIDE)
    path = write_gguf(tmp_path / "model.gguf", reference, "F16")
    reference.half().save_pretrained(tmp_path / "folder")
    with open_model(path, quantize="int8") as llm, open_model(tmp_path / "folder", quantize="int8") as other:
        for layer, same in zip(llm.model.model.layers, other.model.model.layers, strict=True):
            for module in ("self_attn.k_proj", "mlp.down_proj"):
                parts, expected = (each.get_submodule(module).weight.parts for each in (layer, same))
                assert parts.keys() == {"packed", "scale"}
                assert all(torch.equal(part, expected[name]) for name, part in parts.items())


@pytest.mark.parametrize(("kind", "said"), [("Q4_0", "Q4_0"), (several, "Q4_0 and Q")])
def test_a_packed_file_is_not_quantised_again(tmp_path, capsys, kind, said):
    path = write_gguf(tmp_path / "model.gguf", make_reference(**WIDE), kind)
    with pytest.raises(InputError, match=f"is stored as {said}.* already: leave quantize out"):
        open_model(path, quantize="int8")
    fails(capsys, 2, "plan", path, "--quantize", "int8", says=("'int8'", "already: leave quantize out"))
    ask = ("quantize", path, tmp_path / "out", "--quantize", "int8")
    fails(capsys, 2, *ask, says=("is a GGUF file: quantize reads folders",))
    assert not (tmp_path / "out").exists()


def test_quantize_refuses_plain_numbers_too(tmp_path, capsys):
    path = write_gguf(tmp_path / "model.gguf", make_reference(**WIDE), "F16")
    fails(capsys, 2, "quantize", path, tmp_path / "out", "--quantize", "int8", says=("is a GGUF file",))


def test_plan_and_report_say_what_is_saved(tmp_path, capsys):
    path = write_gguf(tmp_path / "model.gguf", make_reference(**WIDE), "Q8_0")
    line = next(row for row in succeeds(capsys, "plan", path).splitlines() if row.startswith("stored as"))
    with open_model(path, dtype="bfloat16", gpu_layer_budget=2) as llm:
        report = llm.report()
    assert line.split(maxsplit=2)[2] in report
    assert line.split(maxsplit=2)[2].startswith("Q8_0: ")


@pytest.mark.parametrize("left", [0.3, 0.9, 0.999])
def test_a_file_that_is_cut_off_is_one_line(tmp_path, capsys, left):
    path = write_gguf(tmp_path / "model.gguf", make_reference(**WIDE), "Q4_0")
    data = path.read_bytes()
    path.write_bytes(data[: int(left * len(data))])
    fails(capsys, 2, "generate", path, "--prompt", "x", says=("download",))


@pytest.mark.parametrize(("kind", "on_cpu"), [("Q4_0", "float32"), ("F16", "float16"), ("F32", "float32")])
def test_auto_dtype_of_a_packed_file_on_the_cpu_is_float32(tmp_path, capsys, kind, on_cpu):
    path = write_gguf(tmp_path / "model.gguf", make_reference(**WIDE), kind)
    with LLM(path, device="cpu") as llm:
        assert str(llm.dtype) == f"torch.{on_cpu}"
    config = find_model(path).config
    assert auto_dtype(config, on_cpu=True) == on_cpu
    assert auto_dtype(config, on_cpu=False) == config.dtype
    first = succeeds(capsys, "plan", path).splitlines()[0]
    assert first.endswith("(on a CPU float32: --dtype float32 plans that)" if kind == "Q4_0" else on_cpu)
    assert succeeds(capsys, "plan", path, "--hardware", "laptop").splitlines()[0].endswith(f", {on_cpu}")
