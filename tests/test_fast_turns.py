"""Several runs of one LLM on the fast path, one between two tokens of another: each has its own memory."""

import threading

import pytest
import torch
from fast_device import SIZES, Fast, Late, fast_maker, few_programs, params, tokens  # noqa: F401 - fixtures

pytest.importorskip("triton", reason="Triton is made for Linux only")

from minillm import LLM, memory
from minillm.bench import bench
from minillm.cache import KVCache
from minillm.errors import RunError

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled here: see tests/gpu")
HELD, OTHER = [3, 1, 4], [7, 7, 2]  # equally long: the lengths alone would not tell them apart
SMALL = SIZES | {"num_hidden_layers": 2}
BETWEEN = {
    "another stream": lambda llm: streamed(llm.stream(OTHER, params(4))),
    "a longer prompt": lambda llm: tokens(llm.generate([5] * 14, params(3))),
    "a group": lambda llm: tokens(llm.generate([OTHER, [5]], params(3))),
    "logits": lambda llm: llm.logits(OTHER).tolist(),
    "one that is left": lambda llm: next(llm.stream(OTHER, params(4))).token_ids,
    "recording": lambda llm: _recorded(llm),
}
PLACES = [
    (Fast, {}),
    (Late, {}),
    (Fast, {"gpu_layer_budget": 1}),
    (Fast, {"gpu_layer_budget": 1, "offload": "naive"}),
]


def _recorded(llm):
    with llm.recording():
        return tokens(llm.generate(OTHER, params(3)))


def streamed(stream, count: int | None = None) -> list[int]:
    chunks = stream if count is None else (next(stream) for _ in range(count))
    return [token for chunk in chunks for token in chunk.token_ids]


@pytest.fixture(name="folder")
def checkpoint(make_checkpoint):
    return make_checkpoint(**SMALL)[0]


@pytest.mark.parametrize(("device", "place"), PLACES)
def test_what_comes_between_two_tokens_changes_nothing(folder, make_fast, device, place):
    with make_fast(folder, device, max_model_len=40, **place) as fast:
        expected = streamed(fast.stream(HELD, params(5)))
        for name, use in BETWEEN.items():
            alone = use(fast)
            stream = fast.stream(HELD, params(5))
            found = streamed(stream, 2)
            assert use(fast) == alone, name
            assert found + streamed(stream) == expected, name


def test_the_latest_run_has_the_graphs(folder, make_fast):
    """Not the first one: it may have been left for good."""
    with make_fast(folder, max_model_len=40) as fast:
        left = fast.stream(HELD, params(5))
        next(left)
        fast.generate(OTHER, params(2))  # eagerly, before a step of the new memory is captured
        before = fast.graph_replays
        fast.generate(OTHER, params(5))
        assert fast.graph_replays == before + 4
        before = fast.graph_replays
        streamed(left)
        assert fast.graph_replays == before


def test_streams_take_turns(folder, make_fast):
    prompts = [HELD, OTHER, [5] * 9]
    with make_fast(folder, max_model_len=40) as fast:
        expected = [streamed(fast.stream(prompt, params(4))) for prompt in prompts]
        rounds = zip(*[fast.stream(prompt, params(4)) for prompt in prompts], strict=True)
        assert [streamed(chunks) for chunks in zip(*rounds, strict=True)] == expected


def test_layers_that_move_between_two_tokens(folder, make_fast):
    with make_fast(folder, gpu_layer_budget=1, offload="naive") as fast:
        expected = streamed(fast.stream(HELD, params(5)))
        stream = fast.stream(HELD, params(5))
        found = streamed(stream, 2)
        fed, replays = fast.tokens_fed, fast.graph_replays
        fast.place(gpu_layer_budget=1, slots=1)
        assert (fast.tokens_fed, fast.graph_replays) == (fed, replays), "moving is no answer"
        assert found + streamed(stream) == expected
        assert streamed(fast.stream(HELD, params(5))) == expected


def test_closing_in_the_middle_of_another_threads_step_is_one_line(folder, make_fast):
    fast = make_fast(folder)
    inside, go, errors = threading.Event(), threading.Event(), []
    run = fast._engine.graphs.run

    def held_up(*asked):
        inside.set()
        assert go.wait(30)
        return run(*asked)

    def answer():
        try:
            fast.generate(HELD, params(5))
        except BaseException as error:
            errors.append(error)

    fast._engine.graphs.run = held_up
    thread = threading.Thread(target=answer)
    thread.start()
    assert inside.wait(30)
    threading.Timer(0.2, go.set).start()  # closing waits for the step
    fast.close()
    thread.join(30)
    (error,) = errors
    assert isinstance(error, RunError)
    assert "closed" in str(error)


def test_low_memory_while_warming_up_is_no_reason_to_give_up(folder, make_fast, monkeypatch, capsys):
    with make_fast(folder, max_model_len=40) as plenty:
        expected = tokens(plenty.generate(HELD, params(4)))
    allocate = KVCache.allocate.__func__

    def low(cls, config, batch, capacity, *others):
        if capacity > 8:
            raise torch.OutOfMemoryError("40 tokens are too many")
        return allocate(cls, config, batch, capacity, *others)

    monkeypatch.setattr(KVCache, "allocate", classmethod(low))
    with make_fast(folder, max_model_len=40) as fast:
        with pytest.raises(RunError, match="not enough memory"):
            fast.generate(HELD, params(4))
        eight = 8 * memory.kv_bytes_per_token(fast.config, fast.dtype.itemsize)
        monkeypatch.setattr(fast._accelerator, "free_bytes", lambda: eight)
        assert tokens(fast.generate(HELD, params(4))) == expected
    assert "do not work" not in capsys.readouterr().err


@pytest.mark.parametrize("batch", [1, 2])
def test_what_bench_counts_has_no_capture_in_it(folder, make_fast, monkeypatch, batch):
    happened, capture, generate = [], Fast.capture, LLM.generate
    monkeypatch.setattr(Fast, "capture", lambda *asked: happened.append("capture") or capture(*asked))
    monkeypatch.setattr(LLM, "generate", lambda *asked: happened.append("run") or generate(*asked))
    with make_fast(folder, max_model_len=40) as fast:
        bench(fast, 6, 3, batch)
    assert happened[-1] == "run"
    assert "capture" in happened
