"""A GPU for those who have none: bounded memory, and a thread that copies at the speed of a link.

Computing happens on the caller's thread, so what it has asked for is done when the call returns. Copies
happen on the other thread, and really at the same time.
"""

import atexit
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from minillm import flat, memory
from minillm.accelerators.span import Span
from minillm.errors import RunError
from minillm.schedule import Step
from minillm.units import GB, MIB, gib

GRACE_S = 0.5  # that closing lets copies go on which were asked for
PIECE = MIB  # bytes that are copied between two looks at the clock
POISON = 0xFF  # as bytes of bfloat16, float16 or float32: NaN


class Emulated:
    """`capacity` bytes of device memory (None: unbounded); copies at `link_gb_s` · 10⁹ bytes a second.

    A target is filled with NaN when its copy starts, so that whoever uses it too early or too long cannot get
    a plausible number. With `link_gb_s` None copies go as fast as they can, and always win: computing waits
    until the link has done all that it may do. Then every missing dependency shows in every run, not in some.
    """

    device = torch.device("cpu")
    pins = False
    recorder = None
    unplanned = 0

    def __init__(self, capacity: int | None = None, link_gb_s: float | None = None):
        self.capacity, self.link_gb_s = capacity, link_gb_s
        self.used = self.peak = 0
        # Kept for the next who asks, as a GPU's allocator does: having the system find pages is slow.
        self._kept: defaultdict[int, list[torch.Tensor]] = defaultdict(list)
        self._jobs: deque[Callable[[], None]] = deque()
        self._state = threading.Condition()
        self._closed: float | None = None  # when
        self._abandoned = False
        self._hurry = threading.Event()  # nobody cares how long copies should take
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="emulated link", daemon=True)
        self._thread.start()
        # A thread inside PyTorch while the interpreter goes down would abort the process.
        atexit.register(self._abandon)

    # ---- memory ----

    def empty(self, num_bytes: int) -> torch.Tensor:
        self._take(num_bytes)
        if self._kept[num_bytes]:
            return self._kept[num_bytes].pop()
        return flat.aligned_buffer(num_bytes, self.device).fill_(POISON)

    def _take(self, num_bytes: int) -> None:
        if self.capacity is not None and self.used + num_bytes > self.capacity:
            free, all_of_it = gib(self.capacity - self.used), gib(self.capacity)
            raise RunError(
                f"not enough memory on the emulated device: {gib(num_bytes)} asked for, {free} of "
                f"{all_of_it} free: lower the budget or max_model_len"
            )
        self.used += num_bytes
        self.peak = max(self.peak, self.used)

    def give_back(self, buffer: torch.Tensor) -> None:
        self.used -= len(buffer)
        self._kept[len(buffer)].append(buffer)

    def trim(self) -> None:
        self._kept.clear()

    @contextmanager
    def holding(self, num_bytes: int) -> Iterator[None]:
        self._take(num_bytes)
        try:
            yield
        finally:
            self.used -= num_bytes

    def free_bytes(self) -> int | None:
        return memory.available_bytes() if self.capacity is None else self.capacity - self.used

    def total_bytes(self) -> int | None:
        return self.capacity

    def peak_bytes(self) -> int:
        return self.peak

    def reset_peak(self) -> None:
        self.peak = self.used

    # ---- queues ----

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        self._queue(lambda: self._copy(target, source))

    def copied(self, event: threading.Event | None = None) -> threading.Event:
        event = threading.Event()
        self._queue(event.set)
        return event

    def computed(self, event: threading.Event | None = None) -> threading.Event:
        event = threading.Event()
        event.set()
        return event

    def copy_after(self, event: threading.Event) -> None:
        self._queue(lambda: self._wait(event))

    def compute_after(self, event: threading.Event) -> None:
        if isinstance(sys.exception(), KeyboardInterrupt):
            self._hurry_up()
        if self.link_gb_s is None:
            self._settle()
        while not event.wait(timeout=GRACE_S):
            self._check()
        self._check()

    def lasting_event(self) -> None:
        return None

    def read(self, tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        copy = tensor.clone()
        return lambda: copy

    def eager_because(self, dtype: torch.dtype) -> str:
        return "fused kernels and graphs are for CUDA"

    def synchronize(self) -> None:
        self.compute_after(self.copied())

    # ---- looking on ----

    def during(self, step: Step) -> Span:
        return Span(self, step)

    def moment(self, copying: bool) -> list[float]:
        passed: list[float] = []
        if copying:
            self._queue(lambda: passed.append(time.perf_counter()))
        else:
            passed.append(time.perf_counter())
        return passed

    def seconds(self, earlier: list[float], later: list[float]) -> float:
        return later[0] - earlier[0]

    def active(self) -> AbstractContextManager:
        return nullcontext()

    def stop(self) -> None:
        with self._state:
            self._closed = self._closed or time.perf_counter()
            self._state.notify_all()

    def close(self) -> None:
        atexit.unregister(self._abandon)
        self.stop()
        if threading.current_thread() is self._thread:  # where Python found the device unused
            return
        try:
            self._thread.join(GRACE_S)
        finally:
            self._abandoned = True
            self._hurry.set()
            self._thread.join()
        self._kept.clear()

    def _abandon(self) -> None:
        """Close without waiting for copies, which nobody will read."""
        self._abandoned = True
        self._hurry.set()
        self.close()

    def _queue(self, job: Callable[[], None]) -> None:
        with self._state:
            if self._closed:
                raise RunError("the emulated device is closed")
            self._jobs.append(job)
            self._state.notify_all()

    def _settle(self) -> None:
        with self._state:
            self._state.wait_for(lambda: not self._jobs or self._error is not None)

    def _hurry_up(self) -> None:
        """What was asked for is copied at once: whoever tidies up after Ctrl-C should not wait for a link."""
        with self._state:
            if self._jobs:
                self._hurry.set()

    def _check(self) -> None:
        if self._error is not None:
            raise RunError(f"a copy to the emulated device failed: {self._error}") from self._error
        late = self._closed and time.perf_counter() - self._closed > GRACE_S
        if self._abandoned or late:  # and what was waited for may not be there
            raise RunError("the emulated device is closed")

    # ---- the other thread ----

    @torch.inference_mode()  # a mode of each thread; outside it tensors made inside it are read-only
    def _work(self) -> None:
        while True:
            with self._state:
                self._state.wait_for(lambda: self._jobs or self._closed)
                if not self._jobs:
                    return
                job = self._jobs[0]  # it stays in the queue until it is done
            try:
                job()
            except BaseException as error:
                self._error = self._error or error
            with self._state:
                self._jobs.popleft()
                if not self._jobs and not self._abandoned:
                    self._hurry.clear()
                self._state.notify_all()

    def _wait(self, event: threading.Event) -> None:
        while not self._closed and not event.wait(timeout=0.1):
            pass

    def _copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        began = time.perf_counter()
        target.fill_(POISON)
        for begin in range(0, len(source), PIECE):
            end = min(begin + PIECE, len(source))
            self._pause(began, end)
            if self._abandoned:
                return
            target[begin:end].copy_(source[begin:end])

    def _pause(self, began: float, num_bytes: int) -> None:
        """Until so many bytes of a copy may be there, or nobody wants them; each piece ends with its last."""
        if self.link_gb_s is not None:
            left = began + num_bytes / (self.link_gb_s * GB) - time.perf_counter()
            if left > 0:
                self._hurry.wait(left)
