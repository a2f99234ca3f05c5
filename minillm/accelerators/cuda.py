"""CUDA: a second stream carries the copies."""

import torch

from minillm import device as devices
from minillm import flat


class Cuda:
    """One CUDA device; computing is on the stream that is current for the caller."""

    def __init__(self, device: torch.device):
        self.device = device
        self.stream = torch.cuda.Stream(device)

    def empty(self, num_bytes: int) -> torch.Tensor:
        with devices.explained_memory_errors(self.device):
            return flat.aligned_buffer(num_bytes, self.device)

    def give_back(self, buffer: torch.Tensor) -> None:
        """Nothing to do: PyTorch's allocator takes it back when the last reference is gone."""

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        # A source that is not pinned would make this call wait, and the copies would no longer overlap.
        with torch.cuda.stream(self.stream):
            target.copy_(source, non_blocking=True)

    def copied(self) -> torch.cuda.Event:
        return self.stream.record_event()

    def computed(self) -> torch.cuda.Event:
        return torch.cuda.current_stream(self.device).record_event()

    def copy_after(self, event: torch.cuda.Event) -> None:
        self.stream.wait_event(event)

    def compute_after(self, event: torch.cuda.Event) -> None:
        torch.cuda.current_stream(self.device).wait_event(event)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    def close(self) -> None:
        self.synchronize()
