"""Which accelerator serves a device and a wish to offload."""

import torch

from minillm.accelerators import Accelerator
from minillm.accelerators.cpu import Cpu
from minillm.accelerators.cuda import Cuda
from minillm.accelerators.emulated import Emulated
from minillm.errors import InputError
from minillm.units import GIB


def pick(
    device: torch.device,
    offload: str,
    gpu_layer_budget: int | None,
    gpu_memory_gib: float | None,
    link_gb_s: float | None,
    enforce_eager: bool = False,
) -> Accelerator:
    """CUDA is itself; on the CPU whoever asks for offloading gets the emulated device, also beside a GPU.

    Raises InputError for a speed of the link where no link is emulated.
    """
    asked = offload not in ("auto", "none") or gpu_layer_budget is not None or gpu_memory_gib is not None
    emulated = device.type == "cpu" and asked and offload != "none"
    if link_gb_s is not None and not emulated:
        reason = "a real link has its own speed" if device.type == "cuda" else "nothing is offloaded"
        raise InputError(f"link_gb_s is {link_gb_s}, but {reason}: it is for device cpu with offloading")
    if device.type == "cuda":
        return Cuda(device, enforce_eager)
    if not emulated:
        return Cpu()
    capacity = None if gpu_memory_gib is None else int(gpu_memory_gib * GIB)
    return Emulated(capacity, link_gb_s)
