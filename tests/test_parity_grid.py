"""Our engine against Hugging Face on a part of the grid; and that a broken model does not pass."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from experiments import grid_parity
from minillm import LLM
from tests import grid

ALL = grid.cases()
PART = ALL[:12]


# ---- the grid holds what it promises ----


@pytest.mark.parametrize(
    "kind",
    [
        lambda c: c.heads == c.kv_heads,
        lambda c: c.heads == 2 * c.kv_heads,
        lambda c: c.heads == 4 * c.kv_heads,
        lambda c: c.heads == 8 * c.kv_heads,
        lambda c: c.head_dim == 16,
        lambda c: c.head_dim == 128,
        lambda c: c.layers == 1,
        lambda c: c.layers == 9,
        lambda c: c.tied and not c.experts,
        lambda c: c.tied and c.experts,
        lambda c: not c.tied and c.experts,
        lambda c: c.bias,
        lambda c: c.experts and c.norm_topk,
        lambda c: c.experts and not c.norm_topk,
        lambda c: c.mlp_only,
        lambda c: c.sparse_step > 1,
        lambda c: c.fused and c.old_spelling,
        lambda c: c.fused and not c.old_spelling,
        lambda c: c.experts and not c.fused,
        lambda c: c.experts and c.head_dim is None,
        lambda c: c.experts and c.shards > 1,
        lambda c: c.vocab % 2,
        lambda c: c.yarn > 1 and c.old_spelling,
        lambda c: c.yarn > 1 and not c.old_spelling,
        lambda c: c.stored == "bfloat16",
        lambda c: c.stored == "float16",
        lambda c: c.eos == 2,
        lambda c: max(c.prompt_lengths) == 700 and min(c.prompt_lengths) == 1,
    ],
)
def test_grid_has_each_kind_at_least_twice(kind):
    assert sum(bool(kind(case)) for case in ALL) >= 2


def test_grid_is_the_same_each_time_and_large_enough():
    assert grid.cases() == ALL
    assert len({case.name for case in ALL}) == len(ALL) >= 40
    odd = [case for case in ALL if case.head_dim not in (None, case.hidden / case.heads)]
    assert len(odd) > len(ALL) * 3 / 4


# ---- parity ----


@pytest.mark.parametrize("case", PART, ids=lambda case: case.name)
def test_tokens_logits_and_counter_are_the_references(case):
    row = grid_parity.measure(case, long=48, short=16)
    assert row["wrong"] == []
    assert len(row["ties"]) <= 1
    assert row["max_logit_error"] <= grid_parity.LOGIT_GOAL
    assert row["tokens_fed"] == row["tokens_to_feed"]


def test_some_answers_of_the_part_end_early(tmp_path):
    case = next(case for case in PART if case.eos)
    row = grid_parity.measure(case, long=1, short=48)
    assert row["ended_early"] > 0
    assert row["wrong"] == []


# ---- a broken model is caught ----


def swap_norms(tensors: dict, config: dict) -> None:
    q, k = (f"model.layers.0.self_attn.{name}_norm.weight" for name in "qk")
    tensors[q], tensors[k] = tensors[k], tensors[q]


def exchange_block_norms(tensors: dict, config: dict) -> None:
    a, b = (f"model.layers.1.{name}_layernorm.weight" for name in ("input", "post_attention"))
    tensors[a], tensors[b] = tensors[b], tensors[a]


def nudge_one_weight(tensors: dict, config: dict) -> None:
    tensors["model.layers.1.mlp.down_proj.weight"][0, 0] += 0.05


def other_theta(tensors: dict, config: dict) -> None:
    config["rope_parameters"]["rope_theta"] *= 1.01


def other_epsilon(tensors: dict, config: dict) -> None:
    config["rms_norm_eps"] = 1e-3


def other_head_order(tensors: dict, config: dict) -> None:
    key = "model.layers.0.self_attn.k_proj.weight"
    tensors[key] = tensors[key].roll(tensors[key].shape[0] // 2, 0)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A small dense case with two KV heads, its folder, reference and end tokens."""
    case = next(c for c in ALL if not c.experts and c.kv_heads == 2 and c.layers > 1 and not c.old_spelling)
    folder = tmp_path_factory.mktemp("saved")
    model, eos = grid.build(case, folder)
    return case, folder, model, eos


def compare_changed(saved, tmp_path, change) -> dict:
    """The row of a copy of the checkpoint that `change` has altered, against the unaltered reference."""
    case, folder, model, eos = saved
    tensors = {k: v.clone() for path in folder.glob("*.safetensors") for k, v in load_file(path).items()}
    config = json.loads((folder / "config.json").read_text())
    change(tensors, config)
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    with LLM(tmp_path, device="cpu", dtype="float32") as llm:
        return grid_parity.compare_engine(llm, model, case, eos, 48, 8)


def test_unchanged_copy_passes(saved, tmp_path):
    row = compare_changed(saved, tmp_path, lambda tensors, config: None)
    assert row["wrong"] == []
    assert row["max_logit_error"] <= grid_parity.LOGIT_GOAL


@pytest.mark.parametrize(
    "change",
    [swap_norms, exchange_block_norms, nudge_one_weight, other_theta, other_epsilon, other_head_order],
)
def test_changed_copy_is_caught(saved, tmp_path, change):
    row = compare_changed(saved, tmp_path, change)
    assert row["max_logit_error"] > grid_parity.LOGIT_GOAL
    checks = {c["name"]: c["met"] for c in grid_parity.checks([row], 1)}
    assert checks["grid: largest logit error"] is False


def test_a_wrong_norm_changes_tokens_too(saved, tmp_path):
    row = compare_changed(saved, tmp_path, exchange_block_norms)
    assert row["wrong"] != []
    checks = {c["name"]: c["met"] for c in grid_parity.checks([row], 1)}
    assert checks["grid: share of greedy answers right in float32"] is False


def test_counter_that_is_off_by_one_is_caught(saved, tmp_path):
    row = compare_changed(saved, tmp_path, lambda tensors, config: None)
    assert grid_parity.one_a_step([row])
    assert not grid_parity.one_a_step([row | {"tokens_fed": row["tokens_fed"] + 1}])


def test_nan_is_an_infinite_error(saved):
    case, _, model, _ = saved

    class Broken:
        def logits(self, token_ids):
            return torch.full((len(token_ids), case.vocab), float("nan"))

    assert grid_parity.logit_error(Broken(), model, [1, 2]) == float("inf")
