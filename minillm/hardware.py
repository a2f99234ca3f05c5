"""What a machine offers to a model: memory to hold weights, bandwidth to read them.

Sizes come from here for the machine we run on, and from data sheets for the cards of the README;
`minillm.ceilings` measures this machine's rates. Needs no torch until a GPU is asked for.
"""

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from minillm import memory
from minillm.units import GIB


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """One machine; without a GPU its three figures are None."""

    name: str
    host_memory_bytes: int
    host_gb_s: float  # main memory, read
    gpu_memory_bytes: int | None = None
    gpu_gb_s: float | None = None  # the GPU's own memory, read
    link_gb_s: float | None = None  # host to GPU


def _card(name: str, gpu_gib: int, gpu_gb_s: float, link_gb_s: float, host_gb_s: float = 51.2) -> Hardware:
    return Hardware(
        name=name,
        host_memory_bytes=32 * GIB,
        host_gb_s=host_gb_s,
        gpu_memory_bytes=gpu_gib * GIB,
        gpu_gb_s=gpu_gb_s,
        link_gb_s=link_gb_s,
    )


USABLE = 0.9  # share of a GPU's memory that the driver and a desktop leave

# Peak rates: GPU memory from the data sheets; PCIe 3.0, 4.0 and 5.0 x16 15.8, 31.5 and 63.0 GB/s one way;
# two channels of DDR4-3200 51.2 GB/s, of DDR5-5600 89.6 GB/s, eight of DDR5-4800 307.2 GB/s. The host is an
# assumed machine: 32 GiB, beside the H200 512 GiB.
PUBLISHED: dict[str, Hardware] = {
    "rtx2080ti": _card("RTX 2080 Ti, 11 GB", 11, 616.0, 15.8),
    "rtx3070": _card("RTX 3070, 8 GB", 8, 448.0, 31.5),
    "rtx4090": _card("RTX 4090, 24 GB", 24, 1008.0, 31.5, 89.6),
    "h200": Hardware(
        name="H200, 141 GB",
        host_memory_bytes=512 * GIB,
        host_gb_s=307.2,
        gpu_memory_bytes=131 * GIB,
        gpu_gb_s=4800.0,
        link_gb_s=63.0,
    ),
    "laptop": Hardware(name="laptop without GPU", host_memory_bytes=32 * GIB, host_gb_s=51.2),
}


def cpu_name() -> str:
    """The processor as the system names it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def cores() -> int:
    """Cores that this process may use: fewer than the machine has under taskset or in a container."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def host_memory_bytes() -> int:
    """Main memory that this process may use: the machine's or its container's; 0 where it cannot be asked."""
    return memory.total_bytes() or 0


def gpu() -> tuple[str, int] | None:
    """Name and memory in bytes of the first CUDA device, None without one."""
    import torch

    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(0)
    return properties.name, properties.total_memory
