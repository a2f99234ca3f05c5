"""PyTorch's packed products on the CPU, where they pay, with the conditions that PyTorch does not check.

Measured on one core with AVX-512 and with AVX2, 4096 × 4096, one row of bfloat16: dense 2.7 and 3.3 ms,
int8 1.1 and 1.5, int4 0.8 and 2.1; int8 is the faster one up to 4 rows, int4 up to 4 to 8. In float32 and
float16 both are plain loops on x86, 4 to 20 times slower than the dense product, so they are left out.
"""

import torch

Parts = dict[str, torch.Tensor]
FAST = ("AVX2", "AVX512")
INT8_ROWS = 4  # of x, up to which the packed product is the faster one
INT4_ROWS = 16  # … against expanding four bits, which costs more
INT4_GROUPS = (32, 64, 128, 256)
X_ALIGNMENT = 32  # bytes: the int8 product reads x in aligned vectors and ends the process where it is not


def is_fast(x: torch.Tensor, rows: int) -> bool:
    """Whether `x` is of a kind, and of at most `rows` rows, for which packed products are faster here."""
    return (
        x.is_cpu
        and x.dtype == torch.bfloat16
        and 0 < x.numel() <= rows * x.shape[-1]
        and torch.backends.cpu.get_cpu_capability() in FAST
    )


def takes_int8(x: torch.Tensor) -> bool:
    """Whether `int8` computes x · weightᵀ, and faster. It reads 16 columns at once, also behind the last."""
    return is_fast(x, INT8_ROWS) and x.shape[-1] % 16 == 0


def int8(x: torch.Tensor, parts: Parts) -> torch.Tensor:
    """x · weightᵀ for `x` [..., columns] bfloat16; sums and dequantised weights in float32."""
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    if rows.data_ptr() % X_ALIGNMENT:
        rows = rows.clone()
    out = torch.ops.aten._weight_int8pack_mm(rows, parts["packed"], parts["scale"])
    return out.view(*x.shape[:-1], -1)


class PackedInt4:
    """An int4 matrix in the order of PyTorch's CPU product, which depends on the processor: never stored.

    As large as the parts it is made from, which are still wanted for more rows than `INT4_ROWS`.
    """

    def __init__(self, parts: Parts):
        from minillm.quant import int4

        scale, rows = parts["scale"], len(parts["packed"])
        values = int4.unpack(parts["packed"], scale.shape[1])
        self.group = values.shape[-1]
        self.packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(values.view(rows, -1).int(), 1)
        middle = parts.get("middle", torch.zeros_like(scale))
        self.scales = torch.stack((scale.T, middle.T), -1).contiguous()  # [groups, rows, 2]

    @staticmethod
    def takes(parts: Parts) -> bool:
        """Whether the product exists for these parts: whole tiles of rows, scales in bfloat16."""
        rows, groups = parts["scale"].shape
        group = 2 * parts["packed"].shape[1] // groups
        return rows % 16 == 0 and group in INT4_GROUPS and "zero" not in parts

    def linear(self, x: torch.Tensor) -> torch.Tensor:
        """x · weightᵀ for `x` [..., columns] bfloat16 with `is_fast(x, INT4_ROWS)`."""
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        out = torch.ops.aten._weight_int4pack_mm_for_cpu(rows, self.packed, self.group, self.scales)
        return out.view(*x.shape[:-1], -1)
