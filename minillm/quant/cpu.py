"""PyTorch's packed product on the CPU, where it pays, with the conditions that PyTorch does not check.

Measured on one core with AVX-512 and with AVX2, 4096 × 4096, one row of bfloat16: dense 2.7 and 3.3 ms,
int8 1.1 and 1.5; int8 is the faster one up to 4 rows. In float32 and float16 it is a plain loop on x86, 4 to
20 times slower than the dense product, so those are left out. So is int4 (0.8 and 2.1 ms): it takes a matrix
in an order of its own, which would lie in memory beside the parts that more rows are multiplied by.
"""

import torch

Parts = dict[str, torch.Tensor]
FAST = ("AVX2", "AVX512")
INT8_ROWS = 4  # of x, up to which the packed product is the faster one
X_ALIGNMENT = 32  # bytes: the int8 product reads x in aligned vectors and ends the process where it is not


def takes_int8(x: torch.Tensor) -> bool:
    """Whether `int8` computes x · weightᵀ, and faster. It reads 16 columns at once, also behind the last."""
    return (
        x.is_cpu
        and x.dtype == torch.bfloat16
        and 0 < x.numel() <= INT8_ROWS * x.shape[-1]
        and x.shape[-1] % 16 == 0
        and torch.backends.cpu.get_cpu_capability() in FAST
    )


def int8(x: torch.Tensor, parts: Parts) -> torch.Tensor:
    """x · weightᵀ for `x` [..., columns] bfloat16; sums and dequantised weights in float32."""
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    if rows.data_ptr() % X_ALIGNMENT:
        rows = rows.clone()
    out = torch.ops.aten._weight_int8pack_mm(rows, parts["packed"], parts["scale"])
    return out.view(*x.shape[:-1], -1)
