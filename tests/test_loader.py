"""Loading: every storage form gives the same model; the match of names is strict in both directions."""

import json
import re

import pytest
import torch
from conftest import edit_config, make_reference
from safetensors.torch import load_file, save_file

from minillm import LLM
from minillm.config import ModelConfig
from minillm.errors import InputError
from minillm.loader import fill_from_checkpoint
from minillm.weights import build

FORMS = {
    "single": {},
    "sharded": {"max_shard_size": "20KB"},
    "fused experts": {"save_original_format": False},
}
MODELS = {
    "dense": {},
    "tied": {"tie_word_embeddings": True},
    "bias": {"attention_bias": True},
    "moe": {"num_experts": 6, "mlp_only_layers": [1]},
}


def load(folder, dtype=torch.float32):
    config = ModelConfig.from_folder(folder)
    return build(config, dtype, "cpu", fill_from_checkpoint(folder, config))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("model", MODELS)
def test_every_form_gives_the_reference_weights(make_checkpoint, form, model):
    folder, reference = make_checkpoint(save=FORMS[form], **MODELS[model])
    ours = load(folder)
    theirs = reference.state_dict()
    for name, parameter in ours.named_parameters():
        if name in theirs:
            assert torch.equal(parameter, theirs[name]), name
        else:
            layer, _, rest = name.partition(".mlp.experts.")
            expert, kind = int(rest.split(".")[0]), rest.split(".")[1]
            fused = theirs[f"{layer}.mlp.experts.{'down_proj' if kind == 'down_proj' else 'gate_up_proj'}"]
            rows = {"gate_proj": slice(0, 24), "up_proj": slice(24, 48), "down_proj": slice(None)}[kind]
            assert torch.equal(parameter, fused[expert][rows]), name
    assert dict(ours.named_parameters()).keys() == ours.config.parameter_shapes().keys()


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("wanted", [torch.float16, torch.bfloat16, torch.float32])
def test_stored_dtypes_are_converted_as_torch_does(make_checkpoint, stored, wanted):
    folder, _ = make_checkpoint()
    weights = {name: tensor.to(stored) for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors")
    for name, parameter in load(folder, wanted).named_parameters():
        assert torch.equal(parameter, weights[name].to(wanted)), name


def test_a_tied_checkpoint_may_store_its_head_and_it_is_not_allocated(make_checkpoint):
    """Qwen3-1.7B's own files do."""
    folder, reference = make_checkpoint(tie_word_embeddings=True)
    weights = load_file(folder / "model.safetensors")
    assert "lm_head.weight" not in weights
    save_file(weights | {"lm_head.weight": torch.full((101, 48), 7.0)}, folder / "model.safetensors")
    with LLM(folder, dtype="float32", device="cpu") as llm:
        assert llm.model.lm_head is None
        with torch.inference_mode():
            expected = reference(torch.tensor([[1, 2, 3]])).logits[0]
        torch.testing.assert_close(llm.logits([1, 2, 3]), expected, atol=1e-4, rtol=1e-4)


def test_an_untied_checkpoint_needs_its_head(make_checkpoint):
    folder, _ = make_checkpoint(tie_word_embeddings=True)
    edit_config(folder, tie_word_embeddings=False)
    with pytest.raises(InputError, match=r"lm_head\.weight is missing"):
        load(folder)


def test_old_rotary_buffers_are_ignored(make_checkpoint):
    folder, _ = make_checkpoint()
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
    save_file(weights, folder / "model.safetensors")
    load(folder)


CHANGES = {
    "missing": (lambda w: w.pop("model.norm.weight"), r"model\.norm\.weight is missing"),
    "extra": (lambda w: w.update(x=torch.ones(1)), r"x is unknown to qwen3"),
    "shape": (
        lambda w: w.update({"model.norm.weight": torch.ones(47)}),
        r"model\.norm\.weight has shape \[47\], config\.json asks for \[48\]",
    ),
    "dtype": (
        lambda w: w.update({"model.norm.weight": torch.ones(48, dtype=torch.int32)}),
        r"model\.norm\.weight is stored as I32",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_tensor_that_does_not_match_is_named(make_checkpoint, change):
    folder, _ = make_checkpoint()
    load(folder)
    weights = load_file(folder / "model.safetensors")
    alter, message = CHANGES[change]
    alter(weights)
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(InputError, match=f"^{re.escape(str(folder))}: {message}"):
        load(folder)


def test_fused_experts_of_another_width_are_refused(make_checkpoint):
    folder, _ = make_checkpoint(num_experts=6, save={"save_original_format": False})
    load(folder)
    edit_config(folder, moe_intermediate_size=25)
    with pytest.raises(InputError, match=r"experts\.\w+ has shape"):
        load(folder)


def test_an_index_that_lies_is_refused(make_checkpoint):
    folder, _ = make_checkpoint(save={"max_shard_size": "20KB"})
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    name, shard = next(iter(index["weight_map"].items()))
    other = next(file for file in index["weight_map"].values() if file != shard)
    index["weight_map"][name] = other
    path.write_text(json.dumps(index))
    with pytest.raises(InputError, match=f"{other} holds {name}, but it does not"):
        load(folder)


def test_loaded_weights_do_not_depend_on_the_file_afterwards(make_checkpoint):
    """Views into the memory-mapped file are copied from, never computed with."""
    folder, _ = make_checkpoint()
    llm = LLM(folder, device="cpu")
    before = llm.logits([1, 2, 3])
    path = folder / "model.safetensors"
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\xff" * (path.stat().st_size // 3))
    assert torch.equal(llm.logits([1, 2, 3]), before)


def test_reference_models_are_not_flat():
    """The fixtures would prove little if their logits hardly differed."""
    logits = make_reference()(torch.arange(20)[None]).logits
    assert logits.std() > 0.3
