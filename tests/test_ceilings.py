"""Ceilings: what the figures count, by a clock that we set; the facts of the machine, by psutil."""

import json
import math
import os
from dataclasses import replace

import psutil
import pytest
import torch

from minillm import ceilings, hardware

pytestmark = pytest.mark.alone

CPU = torch.device("cpu")
MIB = 2**20


class Clock:
    """Each pair of readings is apart by the next of the given seconds."""

    def __init__(self, seconds):
        self.readings = [reading for second in seconds for reading in (0.0, second)]

    def __call__(self) -> float:
        return self.readings.pop(0)


@pytest.fixture
def clock(monkeypatch):
    def set_clock(*seconds: float) -> None:
        monkeypatch.setattr(ceilings.time, "perf_counter", Clock(seconds))

    return set_clock


def test_copy_counts_read_and_write_of_the_best_try(clock):
    clock(0.004, 0.001, 0.002)
    assert ceilings.copy_gb_s(CPU, buffer_bytes=MIB, repeats=3) == pytest.approx(2 * MIB / 0.001 / 1e9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_product_counts_weight_bytes(clock, dtype):
    clock(0.002, 0.001)
    assert ceilings.matvec_gb_s(CPU, dtype, buffer_bytes=MIB, repeats=2) == pytest.approx(MIB / 0.001 / 1e9)


def test_small_buffers_still_have_a_row(clock):
    clock(0.001)
    one_row = 4096 * 4
    assert ceilings.matvec_gb_s(CPU, torch.float32, buffer_bytes=1, repeats=1) == pytest.approx(
        one_row / 0.001 / 1e9
    )


def test_measure_gives_plain_numbers():
    figures = ceilings.measure(buffer_bytes=MIB, repeats=1)
    rates = {name: value for name, value in figures.as_dict().items() if name.endswith("_gb_s")}
    on_host = {name: value for name, value in rates.items() if name.startswith("host")}
    assert len(on_host) == 3
    assert all(0 < value < 1e5 and math.isfinite(value) for value in on_host.values())
    on_gpu = [value for name, value in rates.items() if name not in on_host]
    assert all((value is not None) == torch.cuda.is_available() for value in on_gpu)
    assert json.loads(json.dumps(figures.as_dict())) == figures.as_dict()


def test_hardware_takes_the_highest_rate_of_each_memory():
    cpu_only = ceilings.Ceilings(
        cpu="cpu",
        cores=2,
        threads=2,
        host_memory_bytes=8,
        host_copy_gb_s=20.0,
        host_matvec_float32_gb_s=25.0,
        host_matvec_bfloat16_gb_s=9.0,
    )
    assert cpu_only.hardware().host_gb_s == 25.0
    assert cpu_only.hardware().gpu_gb_s is None
    both = replace(
        cpu_only,
        gpu="g",
        gpu_memory_bytes=4,
        link_gb_s=50.0,
        device_copy_gb_s=3866.0,
        device_matvec_bfloat16_gb_s=3220.0,
    )
    assert (both.hardware().gpu_gb_s, both.hardware().link_gb_s) == (3866.0, 50.0)


def test_facts_of_the_machine():
    assert hardware.cpu_name()
    assert 1 <= hardware.cores() <= psutil.cpu_count()
    assert 0 < hardware.host_memory_bytes() <= psutil.virtual_memory().total


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system does not pin processes to cores"
)
def test_cores_are_those_that_we_may_use():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert hardware.cores() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert hardware.cores() == len(before)
