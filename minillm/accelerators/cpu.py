"""The CPU as the place where everything lies and is computed: nothing is copied, nothing is counted."""

from contextlib import AbstractContextManager, nullcontext

import torch

from minillm import flat, memory
from minillm.schedule import Step


class Cpu:
    """Main memory; the methods for copies and events are missing, since nothing ever streams here."""

    device = torch.device("cpu")
    pins = False
    recorder = None
    unplanned = 0

    def empty(self, num_bytes: int) -> torch.Tensor:
        return flat.aligned_buffer(num_bytes, self.device)

    def holding(self, num_bytes: int) -> AbstractContextManager:
        return nullcontext()

    def free_bytes(self) -> int | None:
        return memory.available_bytes()

    def total_bytes(self) -> None:
        return None

    def peak_bytes(self) -> None:
        return None

    def reset_peak(self) -> None:
        pass

    def eager_because(self, dtype: torch.dtype) -> str:
        return "fused kernels and graphs are for CUDA"

    def during(self, step: Step) -> AbstractContextManager:
        return nullcontext()

    def active(self) -> AbstractContextManager:
        return nullcontext()

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass
