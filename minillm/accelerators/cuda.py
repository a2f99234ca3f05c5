"""CUDA: a second stream carries the copies."""

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from weakref import WeakSet

import torch

from minillm import flat, kernels
from minillm.accelerators.fair_lock import FairLock
from minillm.accelerators.graph import Graph
from minillm.accelerators.span import Span
from minillm.device import explained_memory_errors
from minillm.schedule import Step

_MAKING = threading.Lock()  # held while what a device's LLMs share is made


class Cuda:
    """One CUDA device; computing is on the stream that is current for the caller."""

    pins = True
    recorder = None
    unplanned = 32 << 20  # the allocator takes 2 and 20 MiB at a time, and does not use them up

    def __init__(self, device: torch.device, enforce_eager: bool = False):
        self.device, self.enforce_eager = device, enforce_eager
        # cuDNN's attention plans anew for every length of the cache: 60 ms of the host for each new token.
        torch.backends.cuda.enable_cudnn_sdp(False)
        self._pool, self._graphs, self._capturing = None, WeakSet(), None
        self._raw, self._current = None, None
        with explained_memory_errors(self, "close other programs that use it"):
            self._alone, self.stream, self._capture_stream = _shared(device)
            self._settle()

    def _settle(self) -> None:
        """Make cuBLAS take its memory for both streams now, so that whoever asks what is free knows of it.

        It has some for each thread: one that runs the LLM, but has not made it, takes its own then.
        """
        streams = [self.computing] + ([] if self.enforce_eager else [self._capture_stream])
        with self.active():
            one = torch.ones(16, 16, device=self.device)
            for stream in streams:
                with torch.cuda.stream(stream):
                    one @ one
            self.synchronize()

    # ---- memory: PyTorch's allocator counts all of it ----

    def empty(self, num_bytes: int) -> torch.Tensor:
        with explained_memory_errors(self):
            return flat.aligned_buffer(num_bytes, self.device)

    def give_back(self, buffer: torch.Tensor) -> None:
        """Nothing to do: it goes when its last reference does."""

    def trim(self) -> None:
        torch.cuda.empty_cache()

    def holding(self, num_bytes: int) -> AbstractContextManager:
        return nullcontext()

    def free_bytes(self) -> int:
        allocated = torch.cuda.memory_allocated(self.device)
        free, total = torch.cuda.mem_get_info(self.device)
        # PyTorch keeps what tensors gave back, and the driver counts it as taken.
        kept = torch.cuda.memory_reserved(self.device) - allocated
        # The driver knows nothing of `set_per_process_memory_fraction`.
        allowed = int(torch.cuda.get_per_process_memory_fraction(self.device) * total)
        return max(0, min(free + kept, allowed - allocated))

    def total_bytes(self) -> int:
        return torch.cuda.get_device_properties(self.device).total_memory

    def peak_bytes(self) -> int:
        return torch.cuda.max_memory_allocated(self.device)

    def reset_peak(self) -> None:
        torch.cuda.reset_peak_memory_stats(self.device)

    # ---- copies and events ----

    @property
    def computing(self) -> torch.cuda.Stream:
        """The caller's stream; an object is made only for a new one, for this is asked often."""
        raw = torch._C._cuda_getCurrentRawStream(self.device.index)
        if raw != self._raw:
            self._raw, self._current = raw, torch.cuda.current_stream(self.device)
        return self._current

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        # A source that is not pinned would make this call wait, and the copies would no longer overlap.
        computing = self.computing
        torch.cuda.set_stream(self.stream)
        try:
            target.copy_(source, non_blocking=True)
        finally:
            torch.cuda.set_stream(computing)

    def copied(self, event: torch.cuda.Event | None = None) -> torch.cuda.Event:
        return self.stream.record_event(event)

    def computed(self, event: torch.cuda.Event | None = None) -> torch.cuda.Event:
        return self.computing.record_event(event)

    def copy_after(self, event: torch.cuda.Event) -> None:
        self.stream.wait_event(event)

    def compute_after(self, event: torch.cuda.Event) -> None:
        self.computing.wait_event(event)

    def lasting_event(self) -> torch.cuda.Event:
        return torch.cuda.Event(external=True)

    def read(self, tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        copy, done = tensor.to("cpu", non_blocking=True), self.computed()  # PyTorch locks such memory

        def wait() -> torch.Tensor:
            done.synchronize()
            return copy

        return wait

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        # One pool for all graphs: they run one after the other, and what one results in is read before the
        # next begins. It goes with the last of them.
        if not self._graphs:
            self._pool = torch.cuda.graph_pool_handle()
        self._capturing = graph = Graph(self._pool)
        self.synchronize()
        self.trim()  # what lies idle elsewhere would not serve the graph
        with _no_collecting(), torch.cuda.stream(self._capture_stream):  # the default one cannot be captured
            graph.begin()
            try:
                work()
            finally:
                self._capturing = None
                graph.end()
        self._graphs.add(graph)
        return graph.replay

    def cut(self, work: Callable[[], None]) -> None:
        self._capturing.cut(work)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    def eager_because(self, dtype: torch.dtype) -> str | None:
        least = (8, 0) if dtype == torch.bfloat16 else (7, 5)
        capability = torch.cuda.get_device_capability(self.device)
        if self.enforce_eager:
            return "enforce_eager"
        if not kernels.found():
            return "Triton is not installed"
        if capability < least:
            name, (major, minor) = str(dtype).removeprefix("torch."), least
            remedy = "; dtype float16 needs 7.5" if capability >= (7, 5) else ""
            return f"{name} kernels need compute capability {major}.{minor}{remedy}"
        return None

    # ---- looking on ----

    def during(self, step: Step) -> Span:
        return Span(self, step, torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop)

    def moment(self, copying: bool) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(self.stream if copying else self.computing)
        return event

    def seconds(self, earlier: torch.cuda.Event, later: torch.cuda.Event) -> float:
        return earlier.elapsed_time(later) / 1e3

    @contextmanager
    def active(self) -> Iterator[None]:
        # A capture takes in whatever is asked of its streams, and they are those of every LLM on this device.
        with self._alone, torch.cuda.device(self.device):
            yield

    def stop(self) -> None:
        """Nothing to do: a step is over soon."""

    def close(self) -> None:
        self.synchronize()
        torch.cuda.empty_cache()


@contextmanager
def _no_collecting() -> Iterator[None]:
    """Nothing that Python finds unused meanwhile may wait for the device: that would break a capture."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _shared(device: torch.device) -> tuple[FairLock, torch.cuda.Stream, torch.cuda.Stream]:
    """What all LLMs on a device have in common: whose turn it is, a stream for copies and one for captures.

    cuBLAS gets memory for each stream that it ever multiplies on (32 MiB on Hopper), and PyTorch never takes
    that back. It has 32 streams to hand out, besides: then it begins anew, and two would be one.
    """
    with _MAKING:  # `cache` alone would make two of each for two threads that are first together
        return _make_shared(device)


@cache
def _make_shared(device: torch.device) -> tuple[FairLock, torch.cuda.Stream, torch.cuda.Stream]:
    return FairLock(), torch.cuda.Stream(device), torch.cuda.Stream(device)
