"""Quantised weights on CUDA: the same bits wherever they are made and lie, and the CPU's numbers."""

import pytest
import torch

from minillm import LLM, SamplingParams, kernels
from minillm.quant import codec
from minillm.quant.formats import FORMATS as ALL
from minillm.quant.weight import PackedWeight

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA GPU; torch finds none here"
)
FORMATS = ["int8", "fp8", "int4", "int4-sym", "attn=int8,mlp=int4"]
PROMPT = [(7919 * (i + 1)) % 150000 for i in range(60)]


def answer(llm: LLM, prompt: list[int], count: int) -> list[int]:
    return llm.generate(prompt, SamplingParams(max_tokens=count, ignore_eos=True))[0].token_ids


@pytest.fixture(params=["eager", "fast"], autouse=True)
def path(request, monkeypatch):
    if request.param == "eager":
        monkeypatch.setattr(kernels, "found", lambda: False)


@pytest.mark.parametrize("quantize", FORMATS)
def test_float32_is_as_on_the_cpu(quantize):
    same = {"dtype": "float32", "quantize": quantize}
    with LLM("tiny", device="cpu", **same) as cpu, LLM("tiny", device="cuda", **same) as gpu:
        prompt = cpu.chat_prompt([{"role": "user", "content": "What is 17 + 25?"}])
        assert torch.allclose(gpu.logits(prompt), cpu.logits(prompt), atol=5e-3)
        assert answer(gpu, prompt, 24) == answer(cpu, prompt, 24)


@pytest.mark.parametrize("quantize", FORMATS)
def test_bfloat16_is_the_same_bits_wherever_layers_lie(quantize):
    seen = []
    with LLM(
        "random:Qwen3-0.6B", device="cuda", gpu_layer_budget=1, quantize=quantize, max_model_len=256
    ) as llm:
        for place in ((1, 1), (5, 2), (5, None, "naive"), (28, None)):
            llm.place(*place)
            seen.append((answer(llm, PROMPT, 30), llm.logits(PROMPT)))
            arena = llm.residency.arena
            assert arena.size <= arena.pinned_bytes <= 1.02 * arena.size
    for tokens, logits in seen[1:]:
        assert tokens == seen[0][0]
        assert torch.equal(logits, seen[0][1])


def test_peak_memory_is_at_most_the_prediction():
    before = torch.cuda.memory_allocated()
    with LLM(
        "random:Qwen3-1.7B", device="cuda", gpu_layer_budget=9, quantize="int4", max_model_len=1024
    ) as llm:
        llm.generate([5] * 900, SamplingParams(max_tokens=20, ignore_eos=True))
        assert llm._accelerator.peak_bytes() - before <= llm.decision.device_bytes


def awkward(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """Rows of very different size; weights of one magnitude and both signs; zeros of both signs."""
    generator = torch.Generator().manual_seed(rows)
    matrix = torch.randn(rows, columns, generator=generator) * torch.logspace(-12, 3, rows)[:, None]
    matrix[1::7] = matrix[1::7].sign() * 0.02
    matrix[3::7] = matrix[3::7].sign() * 0.0
    return matrix.to(dtype)


def bits(parts: codec.Parts) -> dict[str, list[int]]:
    return {name: part.cpu().view(torch.uint8).flatten().tolist() for name, part in parts.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("rows", "columns"), [(1, 128), (37, 384), (411, 1152)])
@pytest.mark.parametrize("format", ALL.values(), ids=ALL)
def test_the_gpu_quantises_to_the_bits_of_the_cpu(format, rows, columns, dtype, monkeypatch):
    """Resident; and for parts in host memory, by pieces, of which the last is smaller."""
    matrix = awkward(rows, columns, dtype)
    expected = bits(codec.quantise(format, matrix))
    assert bits(codec.quantise(format, matrix.cuda())) == expected
    monkeypatch.setitem(codec.PIECE_BYTES, "cuda", 10 * columns * 4)
    packed = PackedWeight("weight", format, codec.empty(format, rows, columns), columns, dtype)
    packed.made_on = torch.device("cuda")
    packed.copy_(matrix)
    assert packed.is_cpu
    assert bits(packed.parts) == expected


def test_quantising_a_layer_in_host_memory_takes_little_of_the_gpu():
    """As the largest matrix of an 8B model, whose float32 numbers alone would be 0.2 GiB."""
    packed = PackedWeight("w", ALL["int4"], codec.empty(ALL["int4"], 4096, 12288), 12288, torch.bfloat16)
    packed.made_on = torch.device("cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    packed.copy_(torch.zeros(packed.shape, dtype=torch.bfloat16))
    assert torch.cuda.max_memory_allocated() - before < 8 * codec.PIECE_BYTES["cuda"]
