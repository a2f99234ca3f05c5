"""Measured ceilings of this machine: how fast its memories can be read, copied and linked.

A decode step reads every weight once, so no engine is faster than these figures allow. Each is the
best of several repeats, since a ceiling is what the machine can do; GB/s are 10^9 bytes a second.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch.nn import functional as F

from minillm import hardware, link_times
from minillm.accelerators.cuda import Cuda
from minillm.hardware import Hardware

COLUMNS = 4096  # inputs of the measured products: the width of Qwen3-8B
BUFFER_BYTES = 256 * 2**20  # far above any cache, small enough for a laptop


@dataclass(frozen=True, kw_only=True)
class Ceilings:
    """Bandwidths in GB/s. A copy counts its read and its write, a product its weight bytes."""

    cpu: str
    cores: int
    threads: int
    host_memory_bytes: int
    host_copy_gb_s: float
    host_matvec_float32_gb_s: float
    host_matvec_bfloat16_gb_s: float
    gpu: str | None = None
    gpu_memory_bytes: int | None = None
    link_gb_s: float | None = None  # host to device from pinned memory
    pageable_link_gb_s: float | None = None  # … from memory that the system may move
    device_copy_gb_s: float | None = None
    device_matvec_bfloat16_gb_s: float | None = None

    def as_dict(self) -> dict[str, str | int | float | None]:
        """Plain values for JSON."""
        return asdict(self)

    def hardware(self) -> Hardware:
        """This machine for estimates: its sizes, and for each memory the highest rate that was seen.

        A product can beat a copy, since some processors read each line that a copy only writes.
        """
        products = (self.host_matvec_float32_gb_s, self.host_matvec_bfloat16_gb_s)
        on_gpu = [rate for rate in (self.device_copy_gb_s, self.device_matvec_bfloat16_gb_s) if rate]
        return Hardware(
            name=self.gpu or self.cpu,
            host_memory_bytes=self.host_memory_bytes,
            host_gb_s=max(self.host_copy_gb_s, *products),
            gpu_memory_bytes=self.gpu_memory_bytes,
            gpu_gb_s=max(on_gpu, default=None),
            link_gb_s=self.link_gb_s,
        )


def measure(buffer_bytes: int = BUFFER_BYTES, repeats: int = 7) -> Ceilings:
    """Measure this machine, about 2 s on two cores; the GPU's figures only where there is one."""
    cpu = torch.device("cpu")
    return Ceilings(
        cpu=hardware.cpu_name(),
        cores=hardware.cores(),
        threads=torch.get_num_threads(),
        host_memory_bytes=hardware.host_memory_bytes(),
        host_copy_gb_s=copy_gb_s(cpu, buffer_bytes, repeats),
        host_matvec_float32_gb_s=matvec_gb_s(cpu, torch.float32, buffer_bytes, repeats),
        host_matvec_bfloat16_gb_s=matvec_gb_s(cpu, torch.bfloat16, buffer_bytes, repeats),
        **_gpu_figures(buffer_bytes, repeats),
    )


def copy_gb_s(device: torch.device, buffer_bytes: int = BUFFER_BYTES, repeats: int = 7) -> float:
    """Copy within one memory: read plus write."""
    source = torch.ones(buffer_bytes, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    return 2 * buffer_bytes / _best_seconds(lambda: target.copy_(source), device, repeats) / 1e9


def matvec_gb_s(
    device: torch.device, dtype: torch.dtype, buffer_bytes: int = BUFFER_BYTES, repeats: int = 7
) -> float:
    """Weight bytes a second of a matrix [N, 4096] times one vector, the product that decode consists of."""
    rows = max(1, buffer_bytes // (COLUMNS * dtype.itemsize))
    matrix = torch.ones(rows, COLUMNS, dtype=dtype, device=device)
    vector = torch.ones(1, COLUMNS, dtype=dtype, device=device)
    return matrix.nbytes / _best_seconds(lambda: F.linear(vector, matrix), device, repeats) / 1e9


def pageable_link_gb_s(device: torch.device, buffer_bytes: int = BUFFER_BYTES, repeats: int = 7) -> float:
    """Host to device from memory that is not locked: it goes through the driver's own buffer."""
    source = torch.ones(buffer_bytes, dtype=torch.uint8)
    target = torch.empty(buffer_bytes, dtype=torch.uint8, device=device)
    return buffer_bytes / _best_seconds(lambda: target.copy_(source), device, repeats) / 1e9


def _gpu_figures(buffer_bytes: int, repeats: int) -> dict[str, str | int | float]:
    found = hardware.gpu()
    if found is None:
        return {}
    device = torch.device("cuda")
    return {
        "gpu": found[0],
        "gpu_memory_bytes": found[1],
        "link_gb_s": link_times.link_gb_s(Cuda(torch.device("cuda", 0)), repeats),
        "pageable_link_gb_s": pageable_link_gb_s(device, buffer_bytes, repeats),
        "device_copy_gb_s": copy_gb_s(device, buffer_bytes, repeats),
        "device_matvec_bfloat16_gb_s": matvec_gb_s(device, torch.bfloat16, buffer_bytes, repeats),
    }


def _best_seconds(action: Callable[[], object], device: torch.device, repeats: int) -> float:
    # The first run pays for page faults and library start-up, so it is not counted.
    _wait(action(), device)
    return min(_seconds(action, device) for _ in range(max(1, repeats)))


def _seconds(action: Callable[[], object], device: torch.device) -> float:
    began = time.perf_counter()
    _wait(action(), device)
    return time.perf_counter() - began


def _wait(_: object, device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
