"""One block of host memory for all weights, locked in place at exactly its size where a GPU reads it.

PyTorch's own `pin_memory` rounds every tensor up to a power of two. Here memory is mapped, registered with
CUDA, and then filled; it has to be unregistered before it is unmapped, or the next registration fails.
"""

import mmap
import weakref
from contextlib import suppress

import torch

from minillm.errors import RunError
from minillm.geometry import ALIGNMENT
from minillm.units import gib


class HostArena:
    """`size` bytes, handed out in order by `take`; `touch` and `pin` before they are filled, `close` last.

    Raises RunError where the system does not give so much.
    """

    def __init__(self, size: int):
        self.size, self.taken, self.pinned_bytes = size, 0, 0
        try:
            self._map = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise RunError(
                f"cannot take {gib(size)} of host memory for the weights ({error.strerror}): choose a "
                "smaller model or dtype, close other programs, or raise the limit (ulimit -v)"
            ) from None
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # a hint, and an error where Linux was built without huge pages
                self._map.madvise(mmap.MADV_HUGEPAGE)  # a fault for 2 MiB instead of 512 for 4 KiB
        self.memory = torch.frombuffer(self._map, dtype=torch.uint8)
        self._unpin = None

    def take(self, num_bytes: int) -> torch.Tensor:
        """The next `num_bytes`, uint8, aligned for parameters. Raises ValueError beyond the size."""
        begin = -(-self.taken // ALIGNMENT) * ALIGNMENT
        if begin + num_bytes > self.size:
            raise ValueError(f"{num_bytes} bytes at {begin} are beyond the arena of {self.size}")
        self.taken = begin + num_bytes
        return self.memory[begin : self.taken]

    def touch(self) -> None:
        """Have the system find the memory now, with all threads; locking would find it page by page."""
        self.memory.zero_()

    def pin(self) -> None:
        """Lock all of it and tell CUDA. RunError, with limit and remedy, when the system refuses."""
        address = self.memory.data_ptr()
        error = _register(address, self.size)
        if error:
            raise RunError(_refused(self.size, error))
        self.pinned_bytes = self.size
        # At exit, too: freed memory that is still registered makes the driver refuse the next registration.
        self._unpin = weakref.finalize(self, torch.cuda.cudart().cudaHostUnregister, address)

    def close(self) -> None:
        """Unlock. The memory itself goes with the last tensor that looks into it."""
        if self._unpin is not None:
            self._unpin()
        self.pinned_bytes = 0


def _register(address: int, size: int) -> int:
    """cudaHostRegister; 0 or CUDA's error code."""
    error = int(torch.cuda.cudart().cudaHostRegister(address, size, 0))
    if error:
        _forget_error()
    return error


def _forget_error() -> None:
    """Have PyTorch read CUDA's last error, which resets it: it would be raised by an innocent launch.

    PyTorch hands on what cudaHostRegister returns and no more, and has no cudaGetLastError for Python. It
    calls that after every launch of its own, so this one takes the blame.
    """
    with suppress(RuntimeError):
        torch.ones(1, device="cuda")


def _refused(size: int, error: int) -> str:
    """Why memory may not have been locked, and what to do."""
    limit = _locked_limit()
    allowed = "" if limit is None else f", the limit of locked memory (ulimit -l) is {gib(limit)}"
    return (
        f"cannot lock {gib(size)} of host memory for the GPU (CUDA error {error}{allowed}): choose a smaller "
        "model or dtype, close other programs, or raise the limit (containers: --ulimit memlock=-1; WSL: "
        "memory= in .wslconfig)"
    )


def _locked_limit() -> int | None:
    """Bytes that this process may lock; None: no limit, or no way to ask."""
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft
