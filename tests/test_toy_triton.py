"""The stand-in for Triton's interpreter: on it, kernels give what their plain versions give."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch

import minillm
from checks import nb07, toy_triton
from minillm.presets import load
from minillm.rope import Rope

FOLDER = Path(minillm.__file__).parent / "kernels"


@pytest.fixture
def kernels(monkeypatch):
    """`kernels("gemv")`: the engine's file, loaded anew on the stand-in."""
    for name, module in toy_triton.modules().items():
        monkeypatch.setitem(sys.modules, name, module)

    def fresh(name: str):
        spec = spec_from_file_location(f"toy_{name}", FOLDER / f"{name}.py")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    torch.manual_seed(0)
    return fresh


@pytest.mark.parametrize(("silu", "extra"), [(False, True), (True, False)])
def test_row_times_matrix(kernels, silu, extra):
    gemv = kernels("gemv")
    x, weight, scale = torch.randn(200), torch.randn(37 * (1 + silu), 200) / 14, torch.rand(200)
    residual = torch.randn(37) if extra else None
    found, expected = (
        way(x, weight, (scale, 1e-6), silu, residual) for way in (gemv.gemv, gemv.gemv_reference)
    )
    assert torch.allclose(found, expected, atol=1e-5)


def test_token_to_query_and_cache(kernels):
    place, positions = kernels("place"), torch.tensor([[9, 10], [3, 4]])
    rotation = Rope(load("Qwen3-8B").rope, 12).at(positions)
    qkv, norms = torch.randn(2, 2, 8 * 12), (torch.rand(12), torch.rand(12))
    caches = torch.zeros(2, 2, 2, 2, 16, 12)
    found = place.place(qkv, norms, 1e-6, rotation, *caches[0])
    assert torch.allclose(found, place.place_reference(qkv, norms, 1e-6, rotation, *caches[1]), atol=1e-5)
    assert torch.allclose(caches[0], caches[1], atol=1e-5)


@pytest.mark.parametrize("parts", [1, 4])
def test_attention_in_parts(kernels, parts):
    attend, q, positions = kernels("attend"), torch.randn(2, 1, 4, 12), torch.tensor([[20], [69]])
    keys, values = torch.randn(2, 2, 2, 80, 12)
    expected = attend.attend_reference(q, keys, values, positions)
    keys[:, :, 70:] = values[:, :, 70:] = torch.nan
    assert torch.allclose(attend.attend(q, keys, values, positions, parts), expected, atol=1e-5)


def test_the_exercise_can_be_answered_on_it():
    tl = toy_triton.modules()["triton.language"]

    def silu_up(gate_up, out, width, BLOCK):
        column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        gate, up = (tl.load(gate_up + start + column, mask=column < width) for start in (0, width))
        tl.store(out + column, gate * tl.sigmoid(gate) * up, mask=column < width)

    assert nb07.kernel.verdict(toy_triton.Kernel(silu_up)) == "right."

    def blank(gate_up, out, width, BLOCK):
        raise NotImplementedError

    assert nb07.kernel.verdict(toy_triton.Kernel(blank)) == nb07.kernel.verdict(blank)
