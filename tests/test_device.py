"""What is said when a device's memory runs out, and what the LLMs on one have in common."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from minillm.accelerators import cuda
from minillm.accelerators.cpu import Cpu
from minillm.accelerators.emulated import Emulated
from minillm.device import explained_memory_errors
from minillm.errors import RunError


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.\nSee documentation"),
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:118] . DefaultCPUAllocator: can't allocate memory: you"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
    ],
)
def test_memory_that_runs_out_is_one_line_with_a_remedy(error):
    said = r"^not enough memory on cpu \(1\.0 MiB free\): buy more$"
    accelerator = Emulated(capacity=1 << 20)
    with pytest.raises(RunError, match=said), explained_memory_errors(accelerator, "buy more"):
        raise error
    accelerator.close()


def test_other_errors_stay_what_they_are():
    with pytest.raises(RuntimeError, match="an illegal memory access"), explained_memory_errors(Cpu()):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


def test_threads_that_are_first_on_a_device_share_its_lock_and_streams(monkeypatch):
    class Stream:
        def __init__(self, device):
            time.sleep(0.05)

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    device = torch.device("cuda", 7)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(cuda._shared, [device] * 4))
    cuda._make_shared.cache_clear()
    assert len({tuple(map(id, each)) for each in found}) == 1
    assert len(set(map(id, found[0]))) == 3
