"""The emulated device: copies run beside computing, at the link's pace, in order, and poison the target."""

import subprocess
import sys
import threading
import time

import pytest
import torch

from minillm.accelerators.emulated import Emulated
from minillm.errors import RunError

pytestmark = pytest.mark.alone

SIZE = 4 << 20


@pytest.fixture
def make():
    made = []

    def build(**settings):
        made.append(Emulated(**settings))
        return made[-1]

    yield build
    for device in made:
        device.close()


def source(value: int = 7, size: int = SIZE) -> torch.Tensor:
    return torch.full((size,), value, dtype=torch.uint8)


@pytest.mark.parametrize("link_gb_s", [None, 2.0])
@pytest.mark.parametrize("size", [1, (1 << 20) - 1, 1 << 20, SIZE + 1])
def test_a_copy_arrives_whole(make, link_gb_s, size):
    device = make(link_gb_s=link_gb_s)
    data = torch.randint(0, 256, (size,), dtype=torch.uint8)
    target = device.empty(size)
    device.copy(target, data)
    device.compute_after(device.copied())
    assert torch.equal(target, data)


def test_a_copy_takes_as_long_as_the_link_says(make):
    device = make(link_gb_s=0.05)
    target = device.empty(SIZE)
    began = time.perf_counter()
    device.copy(target, source())
    asked = time.perf_counter() - began
    device.compute_after(device.copied())
    took = time.perf_counter() - began
    assert asked < 0.02 < took
    assert SIZE / 0.05e9 <= took < 3 * SIZE / 0.05e9


def test_memory_is_nan_before_anything_is_copied_and_while_it_is_refilled(make):
    device = make(link_gb_s=0.01)
    target = device.empty(SIZE)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        assert target.view(dtype).isnan().all()
    target.zero_()
    device.copy(target, source())
    time.sleep(0.1)  # a quarter of the copy's time
    assert target[-4:].view(torch.float32).isnan().all()
    device.compute_after(device.copied())
    assert torch.equal(target, source())


def test_copies_keep_their_order(make):
    device = make(link_gb_s=1.0)
    target = device.empty(SIZE)
    for value in range(5):
        device.copy(target, source(value))
    device.synchronize()
    assert torch.equal(target, source(4))


def test_without_a_pace_the_link_wins_every_race(make):
    device = make()
    one, two = device.empty(SIZE), device.empty(SIZE)
    device.copy(one, source(1))
    first = device.copied()
    device.copy(two, source(2))
    device.compute_after(first)
    assert torch.equal(two, source(2))


def test_an_event_of_an_earlier_copy_does_not_wait_for_a_later_one(make):
    device = make(link_gb_s=0.02)
    one, two = device.empty(SIZE), device.empty(SIZE)
    device.copy(one, source(1))
    first = device.copied()
    device.copy(two, source(2))
    device.compute_after(first)
    assert torch.equal(one, source(1))
    assert not torch.equal(two, source(2))


def test_capacity_is_a_limit_and_the_peak_is_kept(make):
    device = make(capacity=100)
    kept = device.empty(60)
    assert len(kept) == 60
    assert kept.data_ptr() % 256 == 0
    with pytest.raises(RunError, match=r"61 B asked for.*lower the budget"):
        device.empty(61)
    assert (device.used, device.peak) == (60, 60)
    device.give_back(kept)
    device.empty(40)
    assert (device.used, device.peak) == (40, 60)


def test_a_failed_copy_is_told_to_whoever_waits_for_it(make):
    device = make()
    device.copy(device.empty(8), source(1, size=9))
    with pytest.raises(RunError, match="copy to the emulated device failed"):
        device.compute_after(device.copied())


def test_closing_finishes_what_was_asked_for_and_refuses_more(make):
    device = make(link_gb_s=0.1)
    target = device.empty(SIZE)
    device.copy(target, source())
    device.close()
    device.close()
    assert torch.equal(target, source())
    with pytest.raises(RunError, match="closed"):
        device.copy(target, source())


@pytest.mark.parametrize("link_gb_s", [1e-6, 1e-4, 0.01])
@pytest.mark.parametrize("waiting", [False, True])
def test_closing_does_not_wait_for_a_slow_link(make, link_gb_s, waiting):
    device = make(link_gb_s=link_gb_s)
    target = device.empty(SIZE)
    for _ in range(20):
        device.copy(target, source())
        if waiting:
            device.copy_after(threading.Event())  # that nobody sets
    time.sleep(0.05)
    began = time.perf_counter()
    device.close()
    assert time.perf_counter() - began < 1.5
    assert not device._thread.is_alive()


def test_tidying_up_after_ctrl_c_does_not_wait_for_a_slow_link(make):
    device = make(link_gb_s=1e-4)
    target = device.empty(SIZE)
    device.copy(target, source())
    began = time.perf_counter()
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        device.synchronize()
    assert time.perf_counter() - began < 1.0
    assert torch.equal(target, source())
    device.link_gb_s = 0.1
    began = time.perf_counter()
    device.copy(target, source(8))
    device.synchronize()
    assert time.perf_counter() - began >= SIZE / 0.1e9  # and later ones take their time


def test_a_program_may_end_without_closing_the_device():
    """In the middle of a copy that would take minutes."""
    code = (
        "import torch; from minillm.accelerators.emulated import Emulated; device = Emulated(link_gb_s=1e-4);"
        "target, source = device.empty(2**24), torch.zeros(2**24, dtype=torch.uint8);"
        "device.copy(target, source); device.copy(target, source)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
