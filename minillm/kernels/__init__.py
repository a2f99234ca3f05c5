"""Fused kernels in Triton; most files have the same in plain PyTorch beside the kernel, `…_reference`.

Of the others `expand` does what `PackedWeight.dense` does and `fetch` copies; `packed_row` is a part of
`gemv_packed`.

What is fused are the small operations between the matrix products: there a GPU spends its time on starting
kernels and on moving hidden states that never had to leave the chip. Triton is imported by these files alone.
"""

from functools import cache
from importlib.util import find_spec


@cache
def found() -> bool:
    """Whether Triton is installed: PyTorch brings it along with CUDA on Linux."""
    return find_spec("triton") is not None
