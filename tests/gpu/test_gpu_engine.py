"""The engine on CUDA: loading, batches, memory figures, running out of memory, closing."""

import time
from dataclasses import replace

import pytest
import torch

from minillm import LLM, SamplingParams
from minillm.accelerators.cuda import Cuda
from minillm.errors import InputError, RunError

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA GPU; torch finds none here"
)
PROMPTS = [[1, 2, 3], [5], list(range(60)), [7] * 17]


@pytest.mark.parametrize("model", [{}, {"tie_word_embeddings": True}, {"num_experts": 6}])
def test_unequal_prompts_together_are_what_each_is_alone_and_on_the_cpu(make_checkpoint, model):
    folder, _ = make_checkpoint(**model)
    params = SamplingParams(max_tokens=24)
    with LLM(folder, device="cuda") as gpu, LLM(folder, device="cpu") as cpu:
        together = [out.token_ids for out in gpu.generate(PROMPTS, params)]
        assert together == [gpu.generate(prompt, params)[0].token_ids for prompt in PROMPTS]
        assert together == [out.token_ids for out in cpu.generate(PROMPTS, params)]
        assert gpu.tokens_fed == 2 * (sum(map(len, PROMPTS)) + len(PROMPTS) * 23)


def test_sampling_does_not_depend_on_the_device(make_checkpoint):
    folder, _ = make_checkpoint()
    params = SamplingParams(max_tokens=20, temperature=0.8, top_k=20, top_p=0.9, seed=4)
    with LLM(folder, device="cuda") as gpu, LLM(folder, device="cpu") as cpu:
        assert gpu.generate([1, 2, 3], params)[0].token_ids == cpu.generate([1, 2, 3], params)[0].token_ids


def test_auto_is_cuda_and_a_missing_card_is_named():
    with LLM("tiny") as llm:
        assert llm.device.type == "cuda"
    with pytest.raises(InputError, match="device cuda:99 is not here"):
        LLM("tiny", device="cuda:99")


def test_peak_memory_is_the_weights_and_what_the_run_took():
    with LLM("tiny", device="cuda", enforce_eager=True) as llm:
        weights = torch.cuda.memory_allocated()
        short = llm.generate([5], SamplingParams(max_tokens=2, ignore_eos=True))[0].metrics.peak_memory_bytes
        long = llm.generate([5] * 3000, SamplingParams(max_tokens=2))[0].metrics.peak_memory_bytes
        cache = 3001 * 2 * 8 * 2 * 64 * 2
        assert weights <= short < weights + (1 << 20)
        assert long > weights + cache
        again = llm.generate([5], SamplingParams(max_tokens=2, ignore_eos=True))[0].metrics.peak_memory_bytes
        assert again == short, "the peak must be reset for each call"


def test_closing_frees_the_memory():
    before = torch.cuda.memory_allocated()
    llm = LLM("tiny", device="cuda")
    assert torch.cuda.memory_allocated() > before + (10 << 20)
    llm.close()
    assert torch.cuda.memory_allocated() == before


@pytest.fixture
def small_card(monkeypatch):
    """As if the card had 36 MiB more than is taken now: tiny and a long prompt's cache take 12 and 16."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_allocated() + (36 << 20)) / total)
    monkeypatch.setattr(Cuda, "unplanned", 0)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)


def test_running_out_of_memory_is_one_line_and_the_next_run_works(small_card):
    with LLM("tiny", device="cuda", enforce_eager=True) as llm:
        assert llm.generate([5], SamplingParams(max_tokens=2))
        with pytest.raises(RunError, match="not enough memory on cuda") as caught:
            llm.generate([5] * 4000, SamplingParams(max_tokens=2))
        assert "\n" not in str(caught.value)
        assert llm.generate([5], SamplingParams(max_tokens=2))


def test_a_capped_process_knows_its_cap(small_card):
    with LLM("tiny", device="cuda", enforce_eager=True) as llm:
        llm.model.config = replace(llm.config, num_hidden_layers=800)
        with pytest.raises(RunError, match="KV cache of 4096 tokens on cuda"):
            llm.generate([5] * 4000, SamplingParams(max_tokens=97))


def test_a_model_larger_than_the_card_is_refused_before_it_is_made():
    free = torch.cuda.mem_get_info()[0]
    if free > 400e9:
        pytest.skip("this card holds even the largest model")
    began = time.perf_counter()
    with pytest.raises(RunError, match=r"the host copy of the streamed layers needs .* GiB"):
        LLM("random:Qwen3-235B-A22B", device="cuda")
    assert time.perf_counter() - began < 10


def test_8b_is_made_in_ten_seconds():
    if torch.cuda.mem_get_info()[0] < 20e9:
        pytest.skip("needs 20 GB of GPU memory")
    began = time.perf_counter()
    with LLM("random:Qwen3-8B", device="cuda"):
        torch.cuda.synchronize()
        assert time.perf_counter() - began <= 10


def test_a_long_float32_prompt_does_not_keep_all_scores(make_checkpoint):
    """8 heads × 4,000² float32 scores would be 488 MiB."""
    folder, _ = make_checkpoint(num_attention_heads=8, max_position_embeddings=4096)
    with LLM(folder, device="cuda") as llm:
        out = llm.generate([[5] * 4000, [7] * 3999], SamplingParams(max_tokens=2))[0]
        assert out.metrics.peak_memory_bytes < 200 << 20
