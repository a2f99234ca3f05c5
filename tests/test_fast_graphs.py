"""Captured passes and their replays on an emulated device: what is recorded, cut short and kept.

The device replays a graph by asking for everything again, under the same rules: copies for the next pass are
left out of it, and only the lasting events order the two. Refilled slots are NaN until their copy is done, so
that a missing dependency is seen.
"""

from collections import Counter

import pytest
import torch
from fast_device import PROMPTS, SIZES, Fast, Lazy, fast_maker, few_programs, params, silence, tokens  # noqa: F401 - fixtures

pytest.importorskip("triton", reason="Triton is made for Linux only")

from minillm import ModelConfig, block_times
from minillm.graph_step import GraphStep
from minillm.schedule import Compute, Schedule
from minillm.sequence import Sequence

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled here: see tests/gpu")


@pytest.mark.parametrize(("budget", "mode"), [(1, "prefetch"), (2, "naive"), (3, None)])
def test_a_recording_sees_every_step_of_every_pass(make_checkpoint, make_fast, budget, mode):
    """Also where a graph served before: nobody could look into that."""
    folder, _ = make_checkpoint(**SIZES)
    with make_fast(folder, gpu_layer_budget=budget, offload=mode or "auto") as fast:
        for _ in range(2):
            fast.generate(PROMPTS[0], params(4))
        with fast.recording() as recorder:
            fast.generate(PROMPTS[0], params(4))
        timeline = recorder.timeline
        seen = Counter(event.step for event in timeline.events if isinstance(event.step, Compute))
        assert timeline.passes == 4
        assert set(seen.values()) == {4}
        assert len(seen) == (1 if mode is None else 2 * 3 + 1)


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


@pytest.mark.parametrize("budget", [1, 2])
def test_a_replay_copies_what_the_schedule_says(make_checkpoint, make_fast, budget):
    folder, _ = make_checkpoint(**SIZES)
    with make_fast(folder, gpu_layer_budget=budget, slots=1) as fast:
        store = fast.model.model.layers
        a_pass = sum(store.layouts[index].num_bytes for index in store.placement.streamed)
        before = store.bytes_copied
        fast.generate(PROMPTS[1], params(5))
        assert store.bytes_copied - before == 5 * a_pass


def test_captured_or_not_naive_needs_the_memory_of_one_layer(make_checkpoint, make_fast):
    folder, _ = make_checkpoint(**SIZES)
    with make_fast(folder, gpu_layer_budget=2, offload="naive") as fast:
        store, device = fast.model.model.layers, fast._accelerator
        size = store.layouts[0].num_bytes
        assert fast.graph_replays == 0
        assert fast._engine.graphs.steps[1].graph is not None
        held, before = device.used, store.bytes_copied
        device.reset_peak()
        expected = tokens(fast.generate(PROMPTS[0], params(4)))
        assert (device.used, device.peak) == (held, held)
        assert store.bytes_copied - before == 4 * 2 * size
        fast.place(gpu_layer_budget=2, offload="naive")
        assert device.used == held
        assert tokens(fast.generate(PROMPTS[0], params(4))) == expected
        fast.place(gpu_layer_budget=1, slots=1)
        assert device.used == held - size
        device.reset_peak()
        assert tokens(fast.generate(PROMPTS[0], params(4))) == expected
        assert device.peak == held - size


def test_a_captured_pass_needs_each_of_its_dependencies(make_checkpoint, make_fast, monkeypatch):
    """One that is taken out of the schedule shows in the logits of a captured pass or of the one before."""
    folder, _ = make_checkpoint(**SIZES)

    def seen(device: type) -> tuple[torch.Tensor, Schedule]:
        with make_fast(folder, device, gpu_layer_budget=2, slots=1) as fast, silence():
            fast.generate(PROMPTS[0], params(3))
            last = fast._engine.graphs.steps[1].logits
            return torch.cat([last, fast.logits(PROMPTS[0])]), fast.model.model.layers.schedule

    expected, schedule = seen(Fast)
    assert torch.equal(seen(Lazy)[0], expected)
    needs = [(step, need) for step, needed in schedule.needs.items() for need in needed]
    assert len(needs) == 2 * len(schedule.copies)
    for step, need in needs:
        broken = schedule.without(step, need)
        monkeypatch.setattr("minillm.offload.prefetch_schedule", lambda _, broken=broken: broken)
        # The first shows a refill that comes too early, the second a use that does.
        right = (torch.equal(seen(device)[0], expected) for device in (Fast, Lazy))
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
    folder, _ = make_checkpoint(**SIZES | {"num_hidden_layers": 1})
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


def test_two_engines_do_not_meet(make_checkpoint, make_fast):
    folder, _ = make_checkpoint(**SIZES)
    with make_fast(folder, gpu_layer_budget=1) as one, make_fast(folder, gpu_layer_budget=2, slots=1) as two:
        expected = tokens(one.generate(PROMPTS[0], params(4)))
        streams = [one.stream(PROMPTS[0], params(4)), two.stream(PROMPTS[0], params(4))]
        turns = [[next(stream).token_ids[0] for stream in streams] for _ in range(4)]
        assert [list(each) for each in zip(*turns, strict=True)] == expected * 2


def test_what_blocks_cost_is_measured_in_a_graph_and_fetched(make_checkpoint, monkeypatch):
    folder, _ = make_checkpoint(**SIZES)
    config = ModelConfig.from_folder(folder)
    taken = iter([1.0, 3.0, 2.0, 4.0, 5.2])  # nothing, attention, MLPs, all, and all with some fetched
    monkeypatch.setattr(block_times, "_decode_s", lambda engine, *_: next(taken))
    monkeypatch.setattr("minillm.link_times.link_gb_s", lambda _: 1e9)
    times = block_times.measure(config, torch.float32, Fast())
    assert times.fetch_s == pytest.approx(0.6)  # two of three are fetched
    assert 3 * (times.attention_s + times.mlp_s) + times.head_s == pytest.approx(4)


def test_a_prompt_is_filled_up_whatever_its_answer_or_its_neighbours_make_of_the_cache(
    make_checkpoint, make_fast, monkeypatch
):
    folder, _ = make_checkpoint(**SIZES | {"num_hidden_layers": 1})
    widths = []
    made = GraphStep.__init__

    def counted(self, model, cache, tokens, accelerator):
        made(self, model, cache, tokens, accelerator)
        widths.append(tokens)

    monkeypatch.setattr(GraphStep, "__init__", counted)
    with make_fast(folder, max_model_len=4) as fast:  # no more room than each run needs
        fast._engine.graphs.tokens = 0
        for prompts in ([[1, 2, 3, 4, 5]], [[1, 2, 3, 4, 5], [1]], [[1] * 9]):
            fast.max_model_len = 20
            widths.clear()
            fast._engine.graphs.forget()
            fast.generate(prompts, params(1))
            assert [width for width in widths if width > 1] == [-(-len(each) // 4) * 4 for each in prompts]
