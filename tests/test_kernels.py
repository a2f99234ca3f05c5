"""The fused kernels against plain PyTorch in float64, through Triton's interpreter or on a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="Triton is made for Linux only")

from minillm.kernels import attend, attend_many, fetch, gemv, place, swiglu
from minillm.presets import load
from minillm.rope import Rope

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3}  # of values around 1


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def random(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape).to(dtype).to(DEVICE)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", [(512, 256), (37, 200), (10, 1500)])  # the last two fill no block
@pytest.mark.parametrize(
    ("norm", "silu", "residual"), [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 0, 1), (1, 1, 1)]
)
def test_row_times_matrix(dtype, shape, norm, silu, residual):
    outputs, inputs = shape
    x, scale = random(inputs, dtype=dtype), random(inputs, dtype=dtype)
    weight = random(outputs * (1 + silu), inputs, dtype=dtype) / inputs**0.5
    extra = random(outputs, dtype=dtype)
    found = gemv.gemv(x, weight, (scale, 1e-6) if norm else None, bool(silu), extra if residual else None)
    x, scale, weight, extra = (each.double() for each in (x, scale, weight, extra))
    expected = gemv.gemv_reference(
        x, weight, (scale, 1e-6) if norm else None, bool(silu), extra if residual else None
    )
    assert found.dtype == dtype
    assert (found - expected).abs().max() < TOLERANCE[dtype] * max(1, expected.abs().max())


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", [(1, 3, 5), (2, 1, 1024), (1, 2, 1500)])
def test_gates_and_ups(dtype, shape):
    gate_up = random(*shape[:2], 2 * shape[2], dtype=dtype)
    found, expected = swiglu.swiglu(gate_up), swiglu.swiglu_reference(gate_up.double())
    assert found.dtype == dtype
    assert found.shape == shape
    assert (found - expected).abs().max() < TOLERANCE[dtype] * max(1, expected.abs().max())


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1,), (2, 3, 1), (1, 5, 1000)])
def test_numbers_come_from_host_memory(dtype, shape):
    source = (torch.randn(shape) * 1000).to(dtype)
    source = source.pin_memory() if DEVICE == "cuda" else source
    target = torch.zeros(shape, dtype=dtype, device=DEVICE)
    for value in (3, -7):
        source.view(-1)[-1] = value
        fetch.fetch(source, target)
        assert torch.equal(target.cpu(), source)


def test_numbers_that_are_read_once():
    source = torch.tensor([[5, -1, 0], [2**40, 7, -1]])
    source = source.pin_memory() if DEVICE == "cuda" else source
    target = torch.tensor([[1, 2, 3], [4, 5, 6]], device=DEVICE)
    for _ in range(2):  # the second time there is nothing new
        fetch.fetch(source, target, once=True)
        assert target.tolist() == [[5, 2, 0], [2**40, 7, 6]]
        assert source.unique().tolist() == [-1]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("D", [16, 48, 128])
@pytest.mark.parametrize("positions", [[[7]], [[5], [0], [300]], [[0, 1, 2, 3, 4]], [[9, 10], [310, 311]]])
def test_token_to_query_and_cache(dtype, D, positions):
    H, K, positions = 6, 2, torch.tensor(positions, device=DEVICE)
    B, T = positions.shape
    rotation = Rope(load("Qwen3-8B").rope, D, DEVICE).at(positions)
    qkv, norms = random(B, T, (H + 2 * K) * D, dtype=dtype), (random(D, dtype=dtype), random(D, dtype=dtype))
    caches = [[torch.zeros(B, K, 320, D, dtype=dtype, device=DEVICE) for _ in range(2)] for _ in range(2)]
    found = place.place(qkv, norms, 1e-6, rotation, *caches[0])
    expected = place.place_reference(qkv, norms, 1e-6, rotation, *caches[1])
    assert found.shape == (B, T, H, D)
    pairs = [(found, expected), *zip(*caches, strict=True)]
    assert max((a - b).abs().max().item() for a, b in pairs) < 4 * TOLERANCE[dtype]
    assert torch.equal(caches[0][1], caches[1][1]), "values are stored as they are"


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("H", "K", "D"), [(6, 2, 48), (4, 4, 16), (8, 1, 128)])
@pytest.mark.parametrize("lengths", [[64], [65], [130, 1, 319]])
def test_attention_of_one_token(dtype, H, K, D, lengths):
    B, positions = len(lengths), torch.tensor(lengths, device=DEVICE)[:, None] - 1
    q = random(B, 1, H, D, dtype=dtype)
    keys, values = (random(B, K, 320, D, dtype=dtype) for _ in range(2))
    expected = attend.attend_reference(q.double(), keys.double(), values.double(), positions)
    for row, length in enumerate(lengths):  # what is beyond the end must not even be looked at
        keys[row, :, length:] = values[row, :, length:] = float("nan")
    for parts in (1, 4):
        found = attend.attend(q, keys, values, positions, parts)
        assert found.shape == (B, 1, H * D)
        assert (found - expected).abs().max() < TOLERANCE[dtype]


def test_the_cache_may_be_rows_of_a_larger_one():
    q, positions = random(2, 1, 4, 16, dtype=torch.float32), torch.tensor([[3], [8]], device=DEVICE)
    keys, values = (random(5, 2, 40, 16, dtype=torch.float32)[1:3, :, :20] for _ in range(2))
    expected = attend.attend_reference(q, keys, values, positions)
    assert torch.allclose(attend.attend(q, keys, values, positions), expected, atol=1e-5)


def far_caches() -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values [3, 2, 40, 16] whose last row begins 2³¹ numbers after the first.

    As much lies before them, so that an offset that has become negative is a wrong number and no crash. Of
    host memory only the pages that are written to are taken.
    """
    shape, strides = (3, 2, 40, 16), (2**30, 40 * 16, 16, 1)
    if DEVICE == "cuda" and torch.cuda.mem_get_info()[0] < 9 << 30:
        pytest.skip("needs 9 GiB of a GPU's memory")
    block = torch.empty(2**32 + 4 * 40 * 16, dtype=torch.float16, device=DEVICE)
    return tuple(block.as_strided(shape, strides, 2**31 + each * 2 * 40 * 16) for each in range(2))


def test_rows_of_a_cache_may_lie_further_apart_than_32_bits_can_say(monkeypatch):
    far, near = far_caches(), [random(3, 2, 40, 16, dtype=torch.float16) for _ in range(2)]
    for target, source in zip(far, near, strict=True):
        target.copy_(source)
    positions = torch.tensor([[5], [0], [30]], device=DEVICE)
    rotation = Rope(load("Qwen3-8B").rope, 16, DEVICE).at(positions)
    qkv, norms = random(3, 1, (4 + 2 * 2) * 16, dtype=torch.float16), [random(16, dtype=torch.float16)] * 2
    place.place(qkv, norms, 1e-6, rotation, *near)
    q = place.place(qkv, norms, 1e-6, rotation, *far)
    assert all(torch.equal(a, b) for a, b in zip(far, near, strict=True))
    assert torch.equal(attend.attend(q, *far, positions), attend.attend(q, *near, positions))
    if DEVICE == "cpu":  # a GPU takes it for wider heads alone
        monkeypatch.setattr(attend_many, "ROWS", 16)
        monkeypatch.setattr(attend_many, "BLOCK", 32)
        assert torch.equal(attend_many.attend_many(q, *far, 31), attend_many.attend_many(q, *near, 31))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("B", "H", "K", "D"), [(1, 6, 2, 64), (2, 4, 4, 128)])
@pytest.mark.parametrize(("T", "end"), [(2, 2), (16, 32), (33, 33), (17, 300), (260, 290)])
def test_attention_of_many_tokens(dtype, B, H, K, D, T, end, monkeypatch):
    """Prompts, and later parts of them; float32 only where the products are exact, without a GPU."""
    if DEVICE == "cpu":
        monkeypatch.setattr(attend_many, "ROWS", 16)
        monkeypatch.setattr(attend_many, "BLOCK", 32)
    elif not attend_many.suits(torch.device(DEVICE), dtype, D):
        pytest.skip("another kernel is taken here")
    q = random(B, T, H, D, dtype=dtype)
    keys, values = (random(B + 1, K, 320, D, dtype=dtype)[1:] for _ in range(2))
    keys[:, :, end:] = values[:, :, end:] = float("nan")  # what is beyond the end must not be looked at
    expected = attend_many.attend_many_reference(q.double(), keys.double(), values.double(), end)
    found = attend_many.attend_many(q, keys, values, end)
    assert found.shape == (B, T, H * D)
    assert (found - expected).abs().max() < TOLERANCE[dtype]


@pytest.mark.parametrize("capability", [75, 80, 86, 89, 90, 120])
def test_they_compile_for_gpus_from_turing_to_blackwell(capability):
    """By the real compiler, which needs no GPU; shared memory within what a program may have there.

    That is 64 KiB on Turing and 99 KiB on 86, 89 and 120; data-centre GPUs have more, but the tiles are the
    same (CUDA programming guide, "Technical Specifications per Compute Capability").
    """
    words = [sys.executable, str(Path(__file__).parent / "compile_kernels.py"), str(capability)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    shared = [(line.split()[0], int(line.split()[-1])) for line in done.stdout.splitlines()]
    assert len(shared) >= 10
    limits = {"_attend_many": 227}  # KiB, of Hopper alone
    for name, size in shared:
        assert size <= limits.get(name, 64 if capability == 75 else 99) * 1024, name
