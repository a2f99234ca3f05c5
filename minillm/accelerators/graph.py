"""A captured pass: a CUDA graph, or several with work of the host between them."""

from collections.abc import Callable

import torch


class Graph:
    """What is asked between `begin` and `end`, and what `cut` puts there; `replay` does it in order."""

    def __init__(self, pool: tuple[int, int]):
        """`pool`: of the memory that the pass takes."""
        self.pool = pool
        self.pieces: list[Callable[[], None]] = []
        self._open: torch.cuda.CUDAGraph | None = None

    def begin(self) -> None:
        self._open = torch.cuda.CUDAGraph()
        # What threads without an LLM ask of the device meanwhile must not break it.
        self._open.capture_begin(self.pool, capture_error_mode="thread_local")

    def end(self) -> None:
        self._open.capture_end()
        self.pieces.append(self._open.replay)

    def cut(self, work: Callable[[], None]) -> None:
        self.end()
        self.pieces.append(work)
        self.begin()

    def replay(self) -> None:
        for piece in self.pieces:
            piece()
