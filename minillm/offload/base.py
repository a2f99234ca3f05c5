"""What both offloading stores share: host copies, resident layers, counters."""

from collections.abc import Callable, Container, Iterable
from contextlib import AbstractContextManager

import torch
from torch.nn import ModuleList

from minillm import flat
from minillm.accelerators import Accelerator
from minillm.geometry import PARTS
from minillm.layer import DecoderLayer
from minillm.schedule import Block, Compute, Copy, Placement


class OffloadedLayers(ModuleList):
    """A store behind `use(index, part)`; how a streamed block gets to the device is left to others.

    Takes layers whose weights lie in host memory, one flat buffer each, and moves the resident ones; those in
    `settled` lie on the device already and have no host copy.
    """

    def __init__(
        self,
        layers: Iterable[DecoderLayer],
        placement: Placement,
        accelerator: Accelerator,
        dtype: torch.dtype,
        settled: Container[int] = (),
    ):
        super().__init__(layers)
        self.placement, self.accelerator, self.dtype = placement, accelerator, dtype
        self.layouts = [flat.layout_of(layer, dtype) for layer in self]
        self.host = [None if index in settled else layer.buffer for index, layer in enumerate(self)]
        self.held: list[torch.Tensor] = []  # device memory for as long as the store is in use
        self.bytes_copied = 0  # from host to device since the store was made, residents not counted
        self.ready: dict[int, dict[str, Ready]] = {}  # the resident blocks

    @property
    def streaming(self) -> bool:
        return bool(self.placement.streamed)

    @property
    def passing_bytes(self) -> int:
        """Of device memory, that a pass takes for a while beside what the store holds."""
        return 0

    def occupy(self) -> None:
        """Take the device memory that the placement needs, or none of it."""
        try:
            self._occupy()
        except BaseException:
            self.release()
            raise

    def _occupy(self) -> None:
        self.accelerator.trim()
        # Memory that was given back may still be in use by operations that were asked for before.
        self.accelerator.copy_after(self.accelerator.computed())
        moving = [index for index in self.placement.resident if self.host[index] is not None]
        sizes = [self.layouts[index].num_bytes for index in moving]
        for index, buffer in zip(moving, self.hold_all(sizes), strict=True):
            self.accelerator.copy(buffer, self.host[index])
            self.bind(index, buffer)
        for index in self.placement.resident:
            self.ready[index] = {
                part: Ready(self[index].block(part), self.accelerator.during(Compute(Block(index, part))))
                for part in PARTS
            }
        self.accelerator.synchronize()

    def use(self, index: int, part: str) -> AbstractContextManager[Callable]:
        return self.ready[index][part] if index in self.ready else self._streamed(index, part)

    def _streamed(self, index: int, part: str) -> AbstractContextManager[Callable]:
        """`use` of a block that has to be fetched."""
        raise NotImplementedError

    def restart(self) -> None:
        """Let the next pass start as the first one did."""

    def hold(self, num_bytes: int) -> torch.Tensor:
        """Device memory that `release` gives back."""
        self.held.append(self.accelerator.empty(num_bytes))
        return self.held[-1]

    def hold_all(self, sizes: list[int]) -> tuple[torch.Tensor, ...]:
        """`hold` for several, in one piece: an allocator may round each piece up, PyTorch's to 2 MiB."""
        return self.hold(sum(sizes)).split(sizes) if sizes else ()

    def release(self) -> None:
        """Give all device memory back: layers lie in host memory again, as before the store was made."""
        self.accelerator.synchronize()  # a copy that is under way still writes there
        self.restart()
        self.ready.clear()
        for index, host in enumerate(self.host):
            if host is not None:
                self.bind(index, host)
        while self.held:
            self.accelerator.give_back(self.held.pop())

    def bind(self, index: int, buffer: torch.Tensor) -> None:
        """Let layer `index` find its weights in `buffer`."""
        flat.bind(self[index], self.layouts[index], buffer, self.dtype)

    def copy(self, buffer: torch.Tensor, copy: Copy) -> None:
        """Ask the link for one block, from host memory to its place in `buffer`."""
        index = copy.block.layer
        begin, end = self.layouts[index].ranges[copy.block.part]
        with self.accelerator.during(copy):
            self.accelerator.copy(buffer[begin:end], self.host[index][begin:end])
        self.bytes_copied += end - begin


class Ready:
    """A resident block, as `use` gives it."""

    def __init__(self, block: Callable, during: AbstractContextManager):
        self.block, self.during = block, during

    def __enter__(self) -> Callable:
        self.during.__enter__()
        return self.block

    def __exit__(self, *exc_info: object) -> None:
        self.during.__exit__(*exc_info)
