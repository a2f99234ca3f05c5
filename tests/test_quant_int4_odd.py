"""GPTQ and AWQ checkpoints with odd settings or tensors: read right, or refused in one line."""

import json

import pytest
import torch
from conftest import edit_config, make_reference
from int4_files import write_int4
from safetensors.torch import load_file
from test_quant_int4_models import DOWN, GROUP, SHAPE, Q, changed, logits, settings

from minillm import ModelConfig
from minillm.errors import InputError

NO_NAMES = [5, True, 0, 1.5, "q_proj", "", {"a": 1}, {}, [5], [None], [True], [{}], ["x", 5]]
NO_LISTS = [*NO_NAMES, [["x"], 5], [[5]], [[["x"]]]]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict:
    """A checkpoint of each kind."""
    folder = tmp_path_factory.mktemp("int4")
    return {kind: write_int4(folder / kind, make_reference(**SHAPE), kind, GROUP) for kind in ("gptq", "awq")}


@pytest.fixture
def copy_of(made, tmp_path):
    """`copy_of(kind, tensors, **settings)` → a folder with tensors and settings replaced or added."""

    def make(kind: str, tensors: dict | None = None, **more):
        folder = tmp_path / "model"
        folder.mkdir()
        for path in made[kind].iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        edit_config(folder, quantization_config=settings(kind, **more))
        changed(folder, tensors or {})
        return folder

    return make


def refused(folder, *words: str) -> None:
    with pytest.raises(InputError) as error:
        logits(folder)
    text = str(error.value)
    assert all(word in text for word in words), text
    assert "\n" not in text


# ---- config.json ----


@pytest.mark.parametrize("value", [*NO_NAMES, [["x"]]])
def test_names_that_are_none(copy_of, value):
    refused(copy_of("awq", modules_to_not_convert=value), "modules_to_not_convert is", "a list of names")


@pytest.mark.parametrize("value", NO_LISTS)
def test_names_in_lists_that_are_none(copy_of, value):
    folder = copy_of("gptq", modules_in_block_to_quantize=value)
    refused(folder, "modules_in_block_to_quantize is", "a list of names or of lists of names")


@pytest.mark.parametrize(
    ("kind", "key"), [("awq", "modules_to_not_convert"), ("gptq", "modules_in_block_to_quantize")]
)
@pytest.mark.parametrize("value", [None, []])
def test_no_names_are_fine(copy_of, made, kind, key, value):
    assert torch.equal(logits(copy_of(kind, **{key: value})), logits(made[kind]))


@pytest.mark.parametrize("value", ["gptq_v3", "marlin", "bitblas", "gptq ", "", 5, 0, [], {}, ["gptq"], True])
def test_a_checkpoint_format_that_is_not_read(copy_of, value):
    folder = copy_of("gptq", checkpoint_format=value)
    refused(folder, f"checkpoint_format {value!r} is not supported: minillm reads gptq and gptq_v2")


@pytest.mark.parametrize("more", [{}, {"checkpoint_format": "gptq"}])
def test_marlins_own_order(copy_of, more):
    refused(copy_of("gptq", is_marlin_format=True, **more), "checkpoint_format 'marlin' is not supported")


@pytest.mark.parametrize("more", [{"checkpoint_format": "gptq"}, {"checkpoint_format": None}])
def test_the_first_format_by_name(copy_of, made, more):
    folder = copy_of("gptq", is_marlin_format=False, **more)
    assert torch.equal(logits(folder), logits(made["gptq"]))


@pytest.mark.parametrize("value", [False, None, "false", 0])
def test_awq_without_zeros(copy_of, value):
    refused(copy_of("awq", zero_point=value), f"zero_point {value!r} is not supported: minillm reads true")


# ---- desc_act ----


def without_order(folder, one: bool = False) -> dict:
    names = load_file(folder / "model.safetensors")
    return {name: None for name in names if name.endswith("g_idx") and (not one or name.startswith(DOWN))}


@pytest.mark.parametrize("value", [True, "true", 1])
@pytest.mark.parametrize("one", [False, True])
def test_act_order_whose_order_is_lost(copy_of, made, value, one):
    folder = copy_of("gptq", without_order(made["gptq"], one), desc_act=value)
    refused(folder, DOWN if one else Q, "g_idx is missing, but config.json says desc_act")


@pytest.mark.parametrize("value", [False, None])
def test_no_order_is_needed_without_act_order(copy_of, made, value):
    folder = copy_of("gptq", without_order(made["gptq"]), desc_act=value)
    assert torch.equal(logits(folder), logits(made["gptq"]))


def test_nor_where_the_whole_row_is_a_group(tmp_path):
    reference = make_reference(**SHAPE | {"intermediate_size": 64})
    folder = write_int4(tmp_path / "model", reference, "gptq", 64, group_size=-1)
    plain = logits(folder)
    changed(folder, without_order(folder))
    config = json.loads((folder / "config.json").read_text())
    edit_config(folder, quantization_config=config["quantization_config"] | {"desc_act": True})
    assert ModelConfig.from_folder(folder).quantize.needs_order
    assert torch.equal(logits(folder), plain)


# ---- tensors ----


@pytest.mark.parametrize("kind", ["gptq", "awq"])
@pytest.mark.parametrize("key", ["qweight", "qzeros", "scales"])
@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.flatten()[0],
        lambda x: x.flatten(),
        lambda x: x[:0],
        lambda x: x[..., :0],
        lambda x: x[None],
        lambda x: x.long(),
        lambda x: x.to(torch.int8),
        lambda x: x.bool(),
        lambda x: x.double(),
    ],
    ids=["number", "vector", "no rows", "no columns", "three", "int64", "int8", "bool", "float64"],
)
def test_a_tensor_of_another_kind(copy_of, made, kind, key, change):
    stored = load_file(made[kind] / "model.safetensors")[f"{Q}.{key}"]
    refused(copy_of(kind, {f"{Q}.{key}": change(stored).clone()}), Q)


@pytest.mark.parametrize("kind", ["gptq", "awq"])
@pytest.mark.parametrize("keys", [("qzeros", "scales"), ("qweight", "qzeros", "scales")])
def test_no_groups(copy_of, made, kind, keys):
    stored = load_file(made[kind] / "model.safetensors")
    empty = {f"{Q}.{key}": stored[f"{Q}.{key}"][:0].clone() for key in keys}
    refused(copy_of(kind, empty), f"{Q} has", "columns in 0 groups")


@pytest.mark.parametrize("kind", ["gptq", "awq"])
@pytest.mark.parametrize("odd", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_scales_that_are_no_numbers(copy_of, made, kind, odd, dtype):
    scales = load_file(made[kind] / "model.safetensors")[f"{DOWN}.scales"].to(dtype)
    scales[1, 3] = odd
    refused(copy_of(kind, {f"{DOWN}.scales": scales}), f"{DOWN}: scales hold infinity or NaN")
