"""Fused kernels and captured decode steps on an emulated device, through Triton's interpreter.

The device replays a graph by asking for everything again, under the same rules: copies for the next pass are
left out of it, and only the lasting events order the two. Refilled slots are NaN until their copy is done, so
that a missing dependency is seen.
"""

import warnings
from collections import Counter
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from fast_device import Fast, Lazy

pytest.importorskip("triton", reason="Triton is made for Linux only")

import minillm.llm
from minillm import LLM, ModelConfig, SamplingParams, block_times, fast_path, fused, prompt_graph
from minillm.errors import InputError
from minillm.kernels import gemv
from minillm.residency import Residency
from minillm.schedule import Compute
from minillm.sequence import Sequence

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled here: see tests/gpu")

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "vocab_size": 53}
PROMPTS = [[3, 1, 4, 1, 5], [7], [8] * 9]
PLACES = [(3, None, "auto"), (1, 1, "prefetch"), (2, 1, "prefetch"), (2, 2, "prefetch")]


silence = partial(warnings.catch_warnings, action="ignore")  # logits are NaN where the test wants them to be


@pytest.fixture(autouse=True)
def few_programs(monkeypatch):
    """The interpreter runs one after the other; and measuring what blocks cost in it would take a minute."""
    monkeypatch.setattr(gemv, "tile", lambda *_: gemv.Tile(64, 64, 4))
    monkeypatch.setattr(prompt_graph, "filled_up", lambda tokens: -(-tokens // 4) * 4)
    monkeypatch.setattr(fused, "attend", partial(fused.attend, parts=2))
    monkeypatch.setattr(Residency, "_rates", lambda self: None)


@pytest.fixture
def make_fast(monkeypatch):
    """`make_fast(folder, device, **keywords)`: an LLM on such a device; without a budget all is resident."""

    def make(folder, device: type = Fast, **keywords) -> LLM:
        with monkeypatch.context() as patch:
            patch.setattr(minillm.llm, "pick_accelerator", lambda *_, **__: device())
            return LLM(folder, device="cpu", **keywords)

    return make


def params(count: int) -> SamplingParams:
    return SamplingParams(max_tokens=count, ignore_eos=True)


def tokens(outputs: list) -> list[list[int]]:
    return [output.token_ids for output in outputs]


@pytest.mark.parametrize(
    ("budget", "slots", "mode", "changes"),
    [
        *((*place, {}) for place in (*PLACES, (2, None, "naive"))),
        (2, 1, "prefetch", {"tie_word_embeddings": True, "head_dim": 24}),
    ],
)
def test_tokens_and_logits_are_those_of_the_eager_engine(
    make_checkpoint, make_fast, budget, slots, mode, changes
):
    folder, _ = make_checkpoint(**SIZES, **changes)
    with LLM(folder, device="cpu") as eager:
        expected = tokens(eager.generate(PROMPTS, params(4)))
        logits = eager.logits(PROMPTS[0] + expected[0])
    with make_fast(folder, gpu_layer_budget=budget, slots=slots, offload=mode) as fast:
        assert tokens(fast.generate(PROMPTS[0], params(4))) == expected[:1]
        assert fast.graph_replays == 3, "all tokens but the first"
        assert tokens(fast.generate(PROMPTS, params(4))) == expected
        assert fast.tokens_fed == len(PROMPTS[0]) + 3 + sum(map(len, PROMPTS)) + 9
        assert torch.allclose(fast.logits(PROMPTS[0] + expected[0]), logits, atol=1e-4)


def test_logits_are_the_same_bits_wherever_layers_lie(make_checkpoint, make_fast):
    folder, _ = make_checkpoint(**SIZES)
    seen = []
    with make_fast(folder, gpu_layer_budget=1) as fast:
        for budget, slots, mode in [*PLACES, (2, None, "naive")]:
            fast.place(budget, slots, mode)
            seen.append((fast.logits(PROMPTS[2]), tokens(fast.generate(PROMPTS[0], params(3)))))
    for logits, answer in seen[1:]:
        assert torch.equal(logits, seen[0][0])
        assert answer == seen[0][1]


@pytest.mark.parametrize(("budget", "mode"), [(1, "prefetch"), (2, "naive"), (3, None)])
def test_a_recording_sees_every_step_of_every_pass(make_checkpoint, make_fast, budget, mode):
    """Also where a graph served before: nobody could look into that."""
    folder, _ = make_checkpoint(**SIZES)
    with make_fast(folder, gpu_layer_budget=budget, offload=mode or "auto") as fast:
        for _ in range(3):
            fast.generate(PROMPTS[0], params(4))
        with fast.recording() as recorder:
            fast.generate(PROMPTS[0], params(4))
        timeline = recorder.timeline
        seen = Counter(event.step for event in timeline.events if isinstance(event.step, Compute))
        assert timeline.passes == 4
        assert set(seen.values()) == {4}
        assert len(seen) == (1 if mode is None else 2 * 3 + 1)


@pytest.mark.parametrize("budget", [1, 2])
def test_a_replay_copies_what_the_schedule_says(make_checkpoint, make_fast, budget):
    folder, _ = make_checkpoint(**SIZES)
    with make_fast(folder, gpu_layer_budget=budget, slots=1) as fast:
        store = fast.model.model.layers
        a_pass = sum(store.layouts[index].num_bytes for index in store.placement.streamed)
        before = store.bytes_copied
        fast.generate(PROMPTS[1], params(5))
        assert store.bytes_copied - before == 5 * a_pass


def test_a_captured_pass_needs_each_of_its_dependencies(make_checkpoint, make_fast, monkeypatch):
    """One that is taken out of the schedule shows in the tokens, or as NaN."""
    folder, _ = make_checkpoint(**SIZES)
    with make_fast(folder, gpu_layer_budget=2, slots=1) as fast:
        expected = tokens(fast.generate(PROMPTS[0], params(4)))
        schedule = fast.model.model.layers.schedule
    needs = [(step, need) for step, needed in schedule.needs.items() for need in needed]
    assert len(needs) == 2 * len(schedule.copies)
    for step, need in needs:
        right = []
        monkeypatch.setattr(
            "minillm.offload.prefetch_schedule", lambda _, s=step, n=need: schedule.without(s, n)
        )
        for device in (
            Fast,
            Lazy,
        ):  # the first shows a refill that comes too early, the second a use that does
            with make_fast(folder, device, gpu_layer_budget=2, slots=1) as fast, silence():
                right.append(tokens(fast.generate(PROMPTS[0], params(4))) == expected)
        assert not all(right), (step, need)


def test_a_run_cut_short_leaves_the_next_one_right(make_checkpoint, make_fast):
    folder, _ = make_checkpoint(**SIZES)
    with make_fast(folder, gpu_layer_budget=2, slots=1) as fast:
        expected = tokens(fast.generate(PROMPTS[0], params(4)))
        stream = fast.stream(PROMPTS[2], params(8))
        for _ in range(3):
            next(stream)
        stream.close()
        assert tokens(fast.generate(PROMPTS[0], params(4))) == expected
        fast.model.model.layers.expected = None  # as an interrupt between a replay and its copies leaves it
        assert tokens(fast.generate(PROMPTS[0], params(4))) == expected


def test_an_error_inside_a_captured_pass_leaves_the_next_one_right(make_checkpoint, make_fast, monkeypatch):
    folder, _ = make_checkpoint(**SIZES)
    with make_fast(folder, gpu_layer_budget=2, slots=1) as fast:
        expected = tokens(fast.generate(PROMPTS[0], params(4)))
        layers = fast.model.model.layers

        def fail(*_):
            raise OSError("a kernel failed")

        graph = fast._engine.graphs.steps[1].graph
        monkeypatch.setattr(fast._engine.graphs.steps[1], "graph", fail)
        with pytest.raises(OSError, match="a kernel failed"):
            fast.generate(PROMPTS[0], params(4))
        assert layers.expected is None
        fast._engine.graphs.steps[1].graph = graph
        assert tokens(fast.generate(PROMPTS[0], params(4))) == expected


def test_memory_is_kept_from_run_to_run_and_made_anew_where_it_is_too_small(make_checkpoint, make_fast):
    folder, _ = make_checkpoint(**SIZES)
    with make_fast(folder, max_model_len=40) as fast:
        graphs = fast._engine.graphs
        kept, step = graphs.memory, graphs.steps[1]
        assert kept.capacity == 40
        fast.generate(PROMPTS[0], params(3))
        assert graphs.memory is kept
        assert graphs.steps[1] is step
        fast.generate(PROMPTS, params(2))
        assert graphs.memory.batch == 3
        again = graphs.memory
        fast.generate(PROMPTS[1], params(2))
        assert graphs.memory is again, "one sequence fits where three did"
        fast.generate(PROMPTS[2], params(30))
        assert graphs.memory.capacity == 40


def test_sampling_and_the_end_token_work_as_without_graphs(make_checkpoint, make_fast):
    folder, _ = make_checkpoint(**SIZES)
    drawn = [SamplingParams(max_tokens=5, temperature=0.9, seed=n, ignore_eos=True) for n in range(3)]
    with LLM(folder, device="cpu") as eager, make_fast(folder) as fast:
        assert tokens(fast.generate(PROMPTS, drawn)) == tokens(eager.generate(PROMPTS, drawn))
        long = tokens(eager.generate(PROMPTS, params(6)))
        ends = SamplingParams(max_tokens=6, stop_token_ids=(long[0][1], long[2][3]), ignore_eos=True)
        found, expected = fast.generate(PROMPTS, ends), eager.generate(PROMPTS, ends)
        assert tokens(found) == tokens(expected)
        assert [o.finish_reason for o in found] == [o.finish_reason for o in expected]


def test_who_looks_on_sees_every_step_and_the_same_tokens(make_checkpoint, make_fast):
    folder, _ = make_checkpoint(**SIZES)
    with make_fast(folder, gpu_layer_budget=2, slots=1) as fast:
        expected = tokens(fast.generate(PROMPTS[0], params(3)))
        replays = fast.graph_replays
        with fast.recording() as recorder:
            assert tokens(fast.generate(PROMPTS[0], params(3))) == expected
        assert fast.graph_replays == replays
        assert len({event.step for event in recorder.timeline.events}) > 2 * SIZES["num_hidden_layers"]
        assert tokens(fast.generate(PROMPTS[0], params(3))) == expected


@pytest.mark.parametrize("quantize", ["int8", "fp8", "attn=int8,mlp=fp8"])
def test_quantised_weights_stay_packed(make_checkpoint, make_fast, quantize):
    folder, _ = make_checkpoint(**SIZES)
    with LLM(folder, device="cpu", quantize=quantize) as eager:
        expected, logits = tokens(eager.generate(PROMPTS[0], params(4))), eager.logits(PROMPTS[2])
    seen = []
    for budget, mode in ((None, "auto"), (1, "prefetch"), (2, "naive")):
        with make_fast(folder, quantize=quantize, gpu_layer_budget=budget, offload=mode) as fast:
            assert tokens(fast.generate(PROMPTS[0], params(4))) == expected
            seen.append(fast.logits(PROMPTS[2]))
    assert torch.allclose(seen[0], logits, atol=1e-4)
    assert all(torch.equal(each, seen[0]) for each in seen)


def test_four_bits_are_expanded_for_a_prompt_and_not_for_a_token(make_checkpoint, make_fast):
    folder, _ = make_checkpoint(
        **SIZES | {"hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 1, "head_dim": 32}
    )
    with LLM(folder, device="cpu", quantize="int4") as eager, make_fast(folder, quantize="int4") as fast:
        assert tokens(fast.generate(PROMPTS[0], params(3))) == tokens(eager.generate(PROMPTS[0], params(3)))
        assert fast.graph_replays == 2


def test_what_blocks_cost_is_measured_in_a_graph_and_fetched(make_checkpoint, monkeypatch):
    folder, _ = make_checkpoint(**SIZES)
    config = ModelConfig.from_folder(folder)
    taken = iter([1.0, 3.0, 2.0, 4.0, 5.2])  # nothing, attention, MLPs, all, and all with some fetched
    monkeypatch.setattr(block_times, "_decode_s", lambda engine, *_: next(taken))
    monkeypatch.setattr("minillm.link_times.link_gb_s", lambda _: 1e9)
    times = block_times.measure(config, torch.float32, Fast())
    assert times.fetch_s == pytest.approx(0.6)  # two of three are fetched
    assert 3 * (times.attention_s + times.mlp_s) + times.head_s == pytest.approx(4)


def test_experts_are_computed_eagerly_and_attention_is_fused(make_checkpoint, make_fast):
    folder, _ = make_checkpoint(**SIZES, num_experts=6, moe_intermediate_size=24)
    with LLM(folder, device="cpu") as eager, make_fast(folder) as fast:
        assert fast._engine.graphs is None
        assert tokens(fast.generate(PROMPTS, params(3))) == tokens(eager.generate(PROMPTS, params(3)))


def test_two_engines_do_not_meet(make_checkpoint, make_fast):
    folder, _ = make_checkpoint(**SIZES)
    with make_fast(folder, gpu_layer_budget=1) as one, make_fast(folder, gpu_layer_budget=2, slots=1) as two:
        expected = tokens(one.generate(PROMPTS[0], params(4)))
        streams = [one.stream(PROMPTS[0], params(4)), two.stream(PROMPTS[0], params(4))]
        turns = [[next(stream).token_ids[0] for stream in streams] for _ in range(4)]
        assert [list(each) for each in zip(*turns, strict=True)] == expected * 2


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"attention_bias": True}, "biases"),
        ({"intermediate_size": 33, "hidden_size": 12}, "side by side"),
    ],
)
def test_what_the_kernels_do_not_know_is_computed_eagerly(make_checkpoint, make_fast, changes, reason):
    folder, _ = make_checkpoint(**SIZES | changes)
    with make_fast(folder) as fast, LLM(folder, device="cpu") as eager:
        assert reason in fast_path.eager_because(fast._accelerator, fast.config, fast.dtype)
        assert fast.graph_replays == 0
        assert tokens(fast.generate(PROMPTS, params(3))) == tokens(eager.generate(PROMPTS, params(3)))


def test_where_kernels_fail_the_engine_goes_on_without_them(capsys):
    tried = []

    def load(enforce_eager: bool) -> None:
        tried.append(enforce_eager)
        if not enforce_eager:
            raise OSError("no C compiler\nand more")

    owner = SimpleNamespace(device=torch.device("cuda"))
    LLM._or_eagerly(owner, load, False)
    assert tried == [False, True]
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(InputError):
        LLM._or_eagerly(owner, partial(_refuse, InputError("odd")), False)
    with pytest.raises(OSError, match="elsewhere"):
        LLM._or_eagerly(owner, partial(_refuse, OSError("elsewhere")), True)


def _refuse(error: Exception, _: bool) -> None:
    raise error


def test_a_cache_that_stands_elsewhere_is_an_error(make_checkpoint, make_fast):
    folder, _ = make_checkpoint(**SIZES)
    with make_fast(folder) as fast:
        sequence = Sequence([1, 2], params(5), seed=0, end_ids=frozenset(), max_model_len=20)
        run = fast._engine.run([sequence])
        next(run)
        with torch.inference_mode():
            fast._engine.graphs.memory.lengths += 1
        with pytest.raises(RuntimeError, match="starts at"):
            next(run)
