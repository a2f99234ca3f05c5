"""Loading for a GPU is done in a thread: what the bar counts, what is read after an error, and when."""

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from safetensors.torch import load_file

from minillm import loader
from minillm.checkpoint import Checkpoint
from minillm.config import ModelConfig
from minillm.errors import InputError, RunError

LONG_S = 0.5  # for a thread to do what takes it microseconds
ALL, TEN = (lambda index: True), (lambda index: index < 10)  # which tensors are a GPU's


class Target:
    """A parameter of a GPU, or of host memory; `step(here, count)` is called before each copy.

    `here`: in the main thread; `count`: of the thread's copies so far, this one included.
    """

    def __init__(self, shape: tuple[int, ...], is_cpu: bool, step: Callable, copies: Counter):
        self.memory, self.is_cpu, self.step, self.copies = torch.zeros(shape), is_cpu, step, copies

    def copy_(self, stored: torch.Tensor) -> None:
        here = threading.current_thread() is threading.main_thread()
        assert here == self.is_cpu
        self.copies[here] += 1
        self.step(here, self.copies[here])
        self.memory.copy_(stored)


class Bar:
    """Stands in for Progress."""

    def __init__(self, *_: object):
        self.count, self.moved = 0, threading.Event()

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def advance(self) -> None:
        self.count += 1
        self.moved.set()


@pytest.fixture
def bar(monkeypatch):
    """The bar of every load."""
    shown = Bar()
    monkeypatch.setattr(loader, "Progress", lambda *_: shown)
    return shown


@pytest.fixture
def reads(monkeypatch):
    """Names of tensors, as they are read."""
    names, tensor = [], Checkpoint.tensor

    def noted(self, key):
        names.append(key)
        return tensor(self, key)

    monkeypatch.setattr(Checkpoint, "tensor", noted)
    return names


def load(folder, step=lambda here, count: None, far=ALL) -> dict[str, Target]:
    """Fill targets, those of a GPU where `far(index)` says so."""
    config = ModelConfig.from_folder(folder)
    copies, shapes = Counter(), config.parameter_shapes().items()
    targets = {name: Target(shape, not far(i), step, copies) for i, (name, shape) in enumerate(shapes)}
    loader.fill_from_checkpoint(folder, config)(targets.items())
    return targets


@pytest.mark.parametrize("far", [ALL, TEN, lambda index: False], ids=["all", "some", "none"])
def test_each_is_read_once_and_counted(make_checkpoint, bar, reads, far):
    folder, _ = make_checkpoint()
    stored = load_file(folder / "model.safetensors")
    targets = load(folder, far=far)
    assert all(torch.equal(target.memory, stored[name]) for name, target in targets.items())
    assert sorted(reads) == sorted(stored)
    assert bar.count == len(stored)


def test_bar_and_reading_keep_to_what_was_copied(make_checkpoint, bar, reads):
    """While the first tensor is on its way nothing is counted, and no other tensor is held in a queue."""

    def step(here, count):
        if count == 1:
            seen.append((bar.moved.wait(LONG_S / 4), len(reads)))

    seen = []
    targets = load(make_checkpoint()[0], step)
    assert seen == [(False, 1)]
    assert bar.count == len(targets) > 20


def test_ctrl_c_leaves_the_rest_unread(make_checkpoint, bar, reads):
    def step(here, count):
        if count == 2:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(LONG_S)

    folder, _ = make_checkpoint()
    with pytest.raises(KeyboardInterrupt):
        load(folder, step)
    assert len(reads) == 2
    assert bar.count <= 1


@pytest.mark.parametrize("far", [ALL, TEN], ids=["all", "beside host memory"])
@pytest.mark.parametrize("error", [InputError, OSError])
def test_an_error_in_the_thread_is_raised_and_ends_the_load(make_checkpoint, bar, reads, far, error):
    def step(here, count):
        if here:
            time.sleep(LONG_S / 20)  # the error is there long before the last of them
        elif count == 2:
            raise error("a bad one")
        elif count == 3:
            time.sleep(LONG_S)

    folder, _ = make_checkpoint()
    with pytest.raises(error, match="a bad one"):
        load(folder, step, far)
    assert len(reads) < 20
    assert bar.count < len(reads)


def test_an_error_beside_the_thread_ends_it_too(make_checkpoint, bar, reads):
    def step(here, count):
        if here:
            raise RunError("here")
        time.sleep(LONG_S / 2)

    folder, _ = make_checkpoint()
    with pytest.raises(RunError, match="here"):
        load(folder, step, TEN)
    assert len(reads) <= 3
    assert bar.count == 0
