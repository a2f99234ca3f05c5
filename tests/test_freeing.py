"""An LLM that is dropped or closed: its weights go at once, not when Python looks for circles of objects."""

import gc
import subprocess
import sys
import threading
import weakref
from contextlib import contextmanager

import pytest

from minillm import LLM, SamplingParams
from minillm.errors import RunError
from minillm.units import GB

PARAMS = SamplingParams(max_tokens=6, ignore_eos=True)
PROMPT = [1, 2, 3]
PLACES = [{}, {"gpu_layer_budget": 2, "slots": 1}, {"gpu_layer_budget": 1, "offload": "naive"}]


@pytest.mark.parametrize("place", PLACES, ids=str)
class TestFreeing:
    """Weights go at once, not when Python happens to look for circles of objects."""

    @pytest.fixture(autouse=True)
    def no_collector(self):
        gc.collect()
        gc.disable()
        yield
        gc.enable()

    def test_dropping_an_llm(self, place):
        before = threading.active_count()
        llm = LLM("tiny", device="cpu", **place)
        llm.generate(PROMPT, PARAMS)
        with llm.recording():
            llm.generate(PROMPT, PARAMS)
        gone = weights(llm)
        del llm
        assert all(ref() is None for ref in gone)
        assert threading.active_count() == before

    def test_closing_one_whose_streams_are_held_up(self, place):
        llm = LLM("tiny", device="cpu", **place)
        streams = [llm.stream(PROMPT, PARAMS) for _ in range(2)]
        for stream in streams:
            next(stream)
        gone = weights(llm)
        llm.close()
        assert all(ref() is None for ref in gone)
        for stream in streams:
            with pytest.raises(RunError, match="is closed"):
                next(stream)


def weights(llm) -> list[weakref.ref]:
    arena = llm.residency.arena
    host = [] if arena is None else [arena.memory]
    return [weakref.ref(each) for each in (llm.model, *llm.model.parameters(), *host)]


def test_dropping_an_llm_ends_copies_that_are_under_way():
    before = threading.active_count()
    llm = LLM("tiny", device="cpu", gpu_layer_budget=1, link_gb_s=5.0)
    llm._accelerator.link_gb_s = llm.model.model.layers.layouts[0].num_bytes / GB / 0.1  # 100 ms a layer
    llm.generate(PROMPT, SamplingParams(max_tokens=1))
    jobs = llm._accelerator._jobs
    assert jobs, "the first layer of a next pass is on its way"
    del llm
    assert not jobs
    assert threading.active_count() == before


@pytest.mark.parametrize("closed", [True, False])
def test_a_device_is_waited_for_once_and_in_turn(closed):
    """Later others use it, and one of them may be capturing a pass."""
    llm = LLM("tiny", device="cpu", gpu_layer_budget=2)
    accelerator, seen, inside = llm._accelerator, [], []

    @contextmanager
    def active():
        inside.append(True)
        yield
        inside.pop()

    if closed:
        llm.close()
    close = accelerator.close
    accelerator.active, accelerator.close = active, lambda: seen.append(bool(inside)) or close()
    del llm
    gc.collect()
    assert seen == ([] if closed else [True])


def test_a_device_that_its_own_thread_finds_unused_ends():
    llm = LLM("tiny", device="cpu", gpu_layer_budget=2)
    accelerator, raised = llm._accelerator, []

    def close():
        try:
            accelerator.close()
        except BaseException as error:
            raised.append(error)

    accelerator._queue(close)
    accelerator._thread.join(10)
    assert not accelerator._thread.is_alive()
    assert raised == []
    llm.close()


def test_first_models_of_several_threads_are_loaded():
    code = """
from concurrent.futures import ThreadPoolExecutor
from minillm import LLM
with ThreadPoolExecutor(3) as pool:
    print(len(list(pool.map(lambda _: LLM("tiny", device="cpu").close() or 1, range(3)))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "3", done.stderr[-500:]
