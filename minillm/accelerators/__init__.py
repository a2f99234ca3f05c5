"""Devices as the engine sees them: memory, and for offloading a queue of copies beside the computing."""

import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from minillm.schedule import Step

Event = Any  # whatever an accelerator's `copied` and `computed` return
Moment = Any  # whatever its `moment` returns


class Accelerator(Protocol):
    """What a backend has to offer; CUDA, an emulation and the plain CPU are here.

    There are two queues. Computing happens on the caller's: whatever operations the caller runs on tensors
    of `device`. Copies happen on a queue of their own, in the order in which they were asked for, while
    computing goes on. Only events order the two.
    """

    device: torch.device
    pins: bool  # whether copies want host memory that is locked in place
    recorder: Any  # a `Recorder` while somebody wants a timeline, else None
    unplanned: int  # bytes of device memory that go beside what is asked for; left free by every plan

    # ---- memory ----

    def empty(self, num_bytes: int) -> torch.Tensor:
        """Uninitialised uint8 memory on the device, aligned for parameters; RunError when it does not fit."""

    def give_back(self, buffer: torch.Tensor) -> None:
        """The caller no longer uses what `empty` gave it, and drops it."""

    def trim(self) -> None:
        """Let go of memory that is kept for later: in pieces it can be too small for what comes."""

    def holding(self, num_bytes: int) -> AbstractContextManager:
        """Count memory that was taken without `empty` (a KV cache) while the context lasts."""

    def free_bytes(self) -> int | None:
        """Device memory that can still be taken; None where nothing can be asked."""

    def total_bytes(self) -> int | None:
        """Device memory that there is; None where it is not bounded."""

    def peak_bytes(self) -> int | None:
        """Most device memory in use since `reset_peak`; None where nothing counts it."""

    def reset_peak(self) -> None:
        """Start a new measurement of `peak_bytes`."""

    # ---- copies and events ----

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Queue a copy from host memory (pinned, unchanged until it is done) to `target`; return at once."""

    def copied(self, event: Event | None = None) -> Event:
        """An event that happens when every copy asked for so far is done; `event`: one to use again."""

    def computed(self, event: Event | None = None) -> Event:
        """An event that happens when every operation asked for so far is done; `event` likewise."""

    def copy_after(self, event: Event) -> None:
        """Later copies start after `event`."""

    def compute_after(self, event: Event) -> None:
        """Later operations start after `event`."""

    def lasting_event(self) -> Event | None:
        """An event for `copied` or `computed` that orders a graph and what is outside it; None: any does."""

    def read(self, tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        """Queue a copy to host memory; what comes back waits for it and gives it."""

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """A graph of what `work` asks of both queues; nothing is done until the graph is called.

        This and `cut` are there where `eager_because` is None.
        """

    def cut(self, work: Callable[[], None]) -> None:
        """Asked for by what is captured: at each replay `work` is done here, which may wait for the host."""

    def synchronize(self) -> None:
        """Wait until both queues are empty."""

    # ---- looking on ----

    def eager_because(self, dtype: torch.dtype) -> str | None:
        """Why fused kernels and graphs cannot be used here; None: they can."""

    def during(self, step: Step) -> AbstractContextManager:
        """Open while a step's work is asked for, as often as wanted: tells the recorder, or a profiler."""

    def moment(self, copying: bool) -> Moment:
        """A point in one of the queues, the copies' or the computing's, that will know when it was passed."""

    def seconds(self, earlier: Moment, later: Moment) -> float:
        """Seconds between two moments, which both have to be over."""

    def active(self) -> AbstractContextManager:
        """Open while anything is asked of the device, which is the current one then; threads take turns."""

    def stop(self) -> None:
        """Let whoever waits for copies, in any thread, get an error where they could take long."""

    def close(self) -> None:
        """Wait, then give back what the accelerator itself holds. Closing twice is harmless."""


def close_with(owner: object, accelerator: Accelerator) -> weakref.finalize:
    """Close `accelerator` when `owner` goes: copies end before their memory does.

    To be detached where that has been done: it would wait for a device that others use by then.
    """

    def close() -> None:
        with accelerator.active():
            accelerator.close()

    going = weakref.finalize(owner, close)
    going.atexit = False
    return going
