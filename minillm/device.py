"""The compute device: choosing it, and what to say when its memory runs out."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

from minillm.accelerators import Accelerator
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


@cache
def has_flash(device: torch.device, dtype: torch.dtype, head_dim: int = 128) -> bool:
    """Whether PyTorch's FlashAttention-2 runs there: 16 bits, compute capability 8.0 or more, usual heads."""
    usual = head_dim % 8 == 0 and head_dim <= 256
    return (
        device.type == "cuda"
        and dtype.itemsize == 2
        and usual
        and torch.cuda.get_device_capability(device) >= (8, 0)
    )


# How it is said by PyTorch's CPU allocator, by cuBLAS, and by CUDA where PyTorch's allocator does not ask.
OUT_OF_MEMORY = ("can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDA error: out of memory")


@contextmanager
def explained_memory_errors(
    accelerator: Accelerator, remedy: str = "fewer or shorter prompts, or a smaller model"
) -> Iterator[None]:
    """Turn the allocators' failures into one RunError line."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise _no_memory(accelerator, remedy) from error
    except RuntimeError as error:
        if not any(words in str(error) for words in OUT_OF_MEMORY):
            raise
        raise _no_memory(accelerator, remedy) from error


def let_go(error: BaseException, before: BaseException | None = None) -> None:
    """Empty the frames that `error` and its causes came through: what they hold would stay in memory.

    `before`: what was being handled when the work that failed began; its frames are somebody else's.
    """
    found, known = [error], {id(None), id(before)}
    for each in found:
        if id(each) not in known:
            known.add(id(each))
            traceback.clear_frames(each.__traceback__)
            found += [each.__cause__, each.__context__]


def _no_memory(accelerator: Accelerator, remedy: str) -> RunError:
    left = accelerator.free_bytes()
    free = "" if left is None else f" ({gib(left)} free)"
    return RunError(f"not enough memory on {accelerator.device}{free}: {remedy}")
