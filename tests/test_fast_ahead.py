"""Steps that are asked for before the one before has been looked at: the same answers, and none too many."""

import pytest
from fast_device import PROMPTS, SIZES, Fast, Late, fast_maker, few_programs, params, tokens  # noqa: F401 - fixtures

pytest.importorskip("triton", reason="Triton is made for Linux only")

import torch

from minillm import SamplingParams
from minillm.decode_graph import DecodeGraphs
from minillm.sequence import Sequence

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled here: see tests/gpu")
RANDOM = SamplingParams(max_tokens=5, temperature=1.0, seed=3, ignore_eos=True)
DEVICES = pytest.mark.parametrize("device", [Fast, Late])


@pytest.fixture(name="folder")
def checkpoint(make_checkpoint):
    return make_checkpoint(**SIZES | {"num_hidden_layers": 1})[0]


@pytest.fixture(name="one_by_one")
def answers_without(make_fast, monkeypatch, folder):
    """`one_by_one(prompts, params)`: tokens when no step is asked for ahead."""

    def answer(prompts, asked):
        with monkeypatch.context() as patch, make_fast(folder) as fast:
            patch.setattr(Sequence, "goes_on", False)
            return tokens(fast.generate(prompts, asked))

    return answer


@DEVICES
def test_the_same_tokens_as_one_by_one(folder, make_fast, one_by_one, device):
    """A sequence, several that end one after the other, some at random, and again."""
    cases = [
        (PROMPTS[0], params(7)),
        (PROMPTS, [params(2), params(6), params(4)]),
        (PROMPTS[:2], [params(5), RANDOM]),
        (PROMPTS[1], RANDOM),
        (PROMPTS[2], params(1)),
        (PROMPTS[0], params(2)),
    ]
    expected = [one_by_one(*case) for case in cases]
    with make_fast(folder, device) as fast:
        assert [tokens(fast.generate(*case)) for case in cases] == expected


@DEVICES
def test_an_end_that_nobody_foresaw(folder, make_fast, one_by_one, device):
    """The step behind it was asked for; it leaves no trace in what comes next."""
    ((*_, end, _, _),) = one_by_one(PROMPTS[0], params(8))
    stopping = SamplingParams(max_tokens=8, stop_token_ids=[end])
    expected = one_by_one(PROMPTS[0], stopping), one_by_one(PROMPTS, [stopping, params(6), params(3)])
    with make_fast(folder, device) as fast:
        for _ in range(2):
            assert tokens(fast.generate(PROMPTS[0], stopping)) == expected[0]
            assert tokens(fast.generate(PROMPTS, [stopping, params(6), params(3)])) == expected[1]
        assert not fast._engine.graphs.asked


@DEVICES
def test_a_stream_that_is_left_and_one_that_is_watched(folder, make_fast, one_by_one, device):
    (expected,) = one_by_one(PROMPTS[2], params(8))
    with make_fast(folder, device) as fast:
        stream = fast.stream(PROMPTS[2], params(8))
        for _ in range(3):
            next(stream)
        stream.close()
        assert not fast._engine.graphs.asked
        stream = fast.stream(PROMPTS[2], params(8))
        found = [token for _ in range(3) for token in next(stream).token_ids]
        with fast.recording():  # steps are asked for one by one from here on
            found += [token for _ in range(2) for token in next(stream).token_ids]
        found += [token for chunk in stream for token in chunk.token_ids]
        assert found == expected
        assert tokens(fast.generate(PROMPTS[2], params(8))) == [expected]


def test_closing_waits_for_a_step_that_nobody_will_look_at(folder, make_fast):
    fast = make_fast(folder, Late)
    stream = fast.stream(PROMPTS[2], params(8))
    for _ in range(3):
        next(stream)
    device, graphs = fast._accelerator, fast._engine.graphs
    assert graphs.asked
    fast.close()
    assert not device.late
    assert not graphs.asked


@pytest.fixture(name="under_way")
def steps_under_way(monkeypatch):
    """How many steps were under way, each time that one was asked for."""
    found, ask = [], DecodeGraphs._ask

    def counted(graphs, *result):
        ask(graphs, *result)
        found.append(len(graphs.asked))

    monkeypatch.setattr(DecodeGraphs, "_ask", counted)
    return found


def test_one_step_ahead_and_none_too_many(folder, make_fast, under_way):
    with make_fast(folder, Late) as fast:
        for asked, expected in ((params(6), [1, 2, 2, 2, 2]), (params(2), [1]), (RANDOM, [1] * 4)):
            under_way.clear()
            before = fast.graph_replays
            fast.generate(PROMPTS[0], asked)
            assert under_way == expected
            assert fast.graph_replays - before == len(expected)


@pytest.mark.parametrize("mode", ["naive", "prefetch"])
def test_where_layers_stream_each_step_is_looked_at_first(make_checkpoint, make_fast, under_way, mode):
    """The host looks up the embeddings, and asks for the copies of the next pass."""
    folder, _ = make_checkpoint(**SIZES)
    with make_fast(folder, gpu_layer_budget=2, offload=mode) as fast:
        fast.generate(PROMPTS[0], params(5))
    assert set(under_way) == {1}
