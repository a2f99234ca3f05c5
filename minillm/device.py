"""The compute device: choosing it, its memory, and what to say when that runs out."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from minillm import memory
from minillm.errors import InputError, RunError
from minillm.units import gib


def pick(name: str) -> torch.device:
    """The device called `name`; "auto" is CUDA where there is one. InputError if it is not there."""
    if name == "auto":
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise InputError(f"device is {name!r}: it must be auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"device {name} is not here: {torch.cuda.device_count()} CUDA devices found; try cpu"
        )
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", 0)
    return device


def free_bytes(device: torch.device) -> int | None:
    """Memory that can still be taken on the device; None where nothing can be asked."""
    if device.type == "cuda":
        allocated = torch.cuda.memory_allocated(device)
        free, total = torch.cuda.mem_get_info(device)
        # PyTorch keeps what tensors gave back, and the driver counts it as taken.
        kept = torch.cuda.memory_reserved(device) - allocated
        # The driver knows nothing of `set_per_process_memory_fraction`.
        allowed = int(torch.cuda.get_per_process_memory_fraction(device) * total)
        return max(0, min(free + kept, allowed - allocated))
    return memory.available_bytes()


def reset_peak_memory(device: torch.device) -> None:
    """Start a new measurement of `peak_memory_bytes`."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory_bytes(device: torch.device) -> int | None:
    """Most memory taken by tensors since the reset; None on the CPU, where nothing counts it."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


def release(device: torch.device) -> None:
    """Give cached, unused device memory back to the driver."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


@contextmanager
def explained_memory_errors(device: torch.device) -> Iterator[None]:
    """Turn the allocators' failures into one RunError line."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise _no_memory(device) from error
    except RuntimeError as error:
        if "can't allocate memory" not in str(error):  # how PyTorch's CPU allocator says it
            raise
        raise _no_memory(device) from error


def _no_memory(device: torch.device) -> RunError:
    left = free_bytes(device)
    free = "" if left is None else f" ({gib(left)} free)"
    return RunError(f"not enough memory on {device}{free}: fewer or shorter prompts, or a smaller model")
