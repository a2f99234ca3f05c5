"""The fast path on CUDA: fused kernels, captured steps, streamed copies inside them."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from minillm import LLM, SamplingParams
from minillm.sequence import Sequence

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA GPU; torch finds none here"
)
PROMPTS = [[1, 2, 3], [5], list(range(60)), [7] * 17]
MODEL = "random:Qwen3-0.6B"


def params(count: int) -> SamplingParams:
    return SamplingParams(max_tokens=count, ignore_eos=True)


def tokens(outputs: list) -> list[list[int]]:
    return [output.token_ids for output in outputs]


@pytest.mark.parametrize("model", [{}, {"tie_word_embeddings": True, "head_dim": 24}, {"num_experts": 6}])
@pytest.mark.parametrize("budget", [None, 1, 2])
def test_float32_tokens_are_the_cpus(make_checkpoint, model, budget):
    folder, _ = make_checkpoint(**model)
    with LLM(folder, device="cpu") as cpu, LLM(folder, device="cuda", gpu_layer_budget=budget) as gpu:
        assert "fused kernels" in gpu.report()
        expected = tokens(cpu.generate(PROMPTS, params(24)))
        assert tokens(gpu.generate(PROMPTS, params(24))) == expected
        assert tokens(gpu.generate(PROMPTS[2], params(24))) == expected[2:3]
        assert torch.allclose(gpu.logits(PROMPTS[2]), cpu.logits(PROMPTS[2]), atol=1e-3)


def test_the_shipped_model_answers_as_on_the_cpu():
    with (
        LLM("tiny", device="cpu", dtype="float32") as cpu,
        LLM("tiny", device="cuda", dtype="float32") as gpu,
    ):
        prompt = cpu.chat_prompt([{"role": "user", "content": "Tell me a short story about a fox."}])
        assert tokens(gpu.generate(prompt, params(200))) == tokens(cpu.generate(prompt, params(200)))
        assert gpu.graph_replays == 199


def test_bfloat16_is_the_same_bits_wherever_layers_lie():
    prompt = [(7919 * (i + 1)) % 150000 for i in range(60)]
    seen = {}
    with LLM(MODEL, device="cuda", gpu_layer_budget=1, max_model_len=1024) as llm:
        for place in (
            (1, 1),
            (5, 1),
            (5, 2),
            (26, 2),
            (27, 1),
            (28, None),
            (5, None, "naive"),
            (1, None, "naive"),
            (27, None, "naive"),
        ):
            llm.place(*place)
            for _ in range(2):
                replays = llm.graph_replays
                answer = llm.generate(prompt, params(60))[0].token_ids
                assert llm.graph_replays - replays == 59
            both = tokens(llm.generate([prompt, prompt[:7]], params(20)))
            seen[place] = answer, llm.logits(prompt), both
    first = seen[1, 1]
    for place, found in seen.items():
        assert found[0] == first[0], place
        assert torch.equal(found[1], first[1]), place
        assert found[2] == first[2], place


def test_steps_asked_for_ahead_give_the_same_tokens(monkeypatch):
    prompts = [[(7919 * (i + 1)) % 150000 for i in range(length)] for length in (60, 3, 200)]
    cases = [
        (prompts[0], params(100)),
        (prompts, [params(9), params(40), params(33)]),
        (prompts[1], params(2)),
        (prompts[2], params(5)),
    ]
    with LLM(MODEL, device="cuda", max_model_len=1024) as llm:
        with monkeypatch.context() as patch:
            patch.setattr(Sequence, "goes_on", False)
            expected = [tokens(llm.generate(*case)) for case in cases]
        end = SamplingParams(max_tokens=100, stop_token_ids=[expected[0][0][50]])
        at = expected[0][0].index(expected[0][0][50])
        for _ in range(3):
            assert [tokens(llm.generate(*case)) for case in cases] == expected
            assert tokens(llm.generate(prompts[0], end)) == [expected[0][0][: at + 1]]
            stream = llm.stream(prompts[2], params(50))
            found = [next(stream).token_ids[0] for _ in range(5)]
            stream.close()
            assert found == expected[3][0]


@pytest.mark.parametrize("budget", [None, 9])
def test_streams_of_one_model_take_turns(budget):
    prompts = [[(7919 * (i + n)) % 150000 for i in range(20)] for n in (1, 2)]
    with LLM(MODEL, device="cuda", gpu_layer_budget=budget, max_model_len=1024) as llm:
        for _ in range(3):  # the second time prompts are captured
            expected = [tokens(llm.generate(prompt, params(20)))[0] for prompt in prompts]
        held = llm.stream(prompts[0], params(20))
        found = [next(held).token_ids[0] for _ in range(5)]
        assert tokens(llm.generate(prompts[1], params(20))) == expected[1:]
        assert tokens(llm.generate([7] * 900, params(20))) != []
        found += [next(held).token_ids[0] for _ in range(5)]
        other = llm.stream(prompts[1], params(20))
        rest = [(a.token_ids[0], b.token_ids[0]) for a, b in zip(held, other, strict=False)]
        assert found + [first for first, _ in rest] == expected[0]
        assert [second for _, second in rest] == expected[1][: len(rest)]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("budget", [None, 9])
def test_the_second_gpu_answers_as_the_first(budget):
    prompt = [(7919 * (i + 1)) % 150000 for i in range(60)]
    with LLM(MODEL, device="cuda:0", gpu_layer_budget=budget, max_model_len=1024) as first:
        expected = [tokens(first.generate(prompt, params(20))) for _ in range(3)]
    with LLM(MODEL, device="cuda:1", gpu_layer_budget=budget, max_model_len=1024) as second:
        assert [tokens(second.generate(prompt, params(20))) for _ in range(3)] == expected
        assert torch.cuda.current_device() == 0
        assert torch.cuda.memory_allocated(1) > 0


def test_graphs_of_many_prompts_leave_nothing_behind():
    """A stream of its own for each capture would: cuBLAS keeps 32 MiB for each that it multiplied on."""
    before, left = torch.cuda.memory_allocated(), []
    for _ in range(2):
        with LLM(MODEL, device="cuda", dtype="float16", max_model_len=1024) as llm:
            for length in range(60, 600, 64):
                for _ in range(2):
                    llm.generate([7] * length, params(3))
        left.append(torch.cuda.memory_allocated())
    assert left[1] == left[0] < before + (70 << 20)


def test_eager_and_fast_differ_by_rounding_only():
    prompt = [(7919 * (i + 1)) % 150000 for i in range(60)]
    with LLM(MODEL, device="cuda", dtype="float32") as fast:
        found = fast.logits(prompt)
    with LLM(MODEL, device="cuda", dtype="float32", enforce_eager=True) as eager:
        assert "enforce_eager" in eager.report()
        assert (eager.logits(prompt) - found).abs().max() < 1e-3


@pytest.mark.parametrize("budget", [1, 9, None])
def test_peak_memory_is_at_most_the_prediction(budget):
    before = torch.cuda.memory_allocated()
    with LLM(MODEL, device="cuda", gpu_layer_budget=budget, max_model_len=1024) as llm:
        out = llm.generate([5] * 900, params(124))[0]
        # Fused blocks take less than the plan, which is for either path; of a large model that is nothing.
        assert 0.93 < (out.metrics.peak_memory_bytes - before) / llm.decision.device_bytes <= 1.0
    assert torch.cuda.memory_allocated() == before


def test_a_step_is_faster_than_eager():
    with LLM("random:Qwen3-1.7B", device="cuda", max_model_len=512) as fast:
        quick = fast.generate([5] * 20, params(60))[0].metrics.decode_tokens_per_s
    with LLM("random:Qwen3-1.7B", device="cuda", max_model_len=512, enforce_eager=True) as eager:
        assert quick > 3 * eager.generate([5] * 20, params(60))[0].metrics.decode_tokens_per_s


def test_threads_with_an_llm_each_do_not_meet():
    """Streams for copies and captures are those of the device: a capture would take in the other's copies."""
    prompts = [[(7919 * (i + k)) % 150000 for i in range(1, 60)] for k in range(3)]
    with LLM(MODEL, device="cuda", max_model_len=1024) as llm:
        expected = [tokens(llm.generate(prompt, params(16))) for prompt in prompts]

    def answers(budget):
        found = []
        for _ in range(3):  # loading and capturing, too, while the other runs
            with LLM(MODEL, device="cuda", gpu_layer_budget=budget, max_model_len=1024) as llm:
                found += [tokens(llm.generate(prompt, params(16))) for prompt in prompts]
        return found

    with ThreadPoolExecutor(3) as pool:
        for found in pool.map(answers, (None, 2, 9)):
            assert found == expected * 3
