"""silu(gate) · up for many rows, in one pass over them."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

BLOCK = 1024


def swiglu_reference(gate_up: torch.Tensor) -> torch.Tensor:
    """`gate_up` [..., 2 · width], the gates first → [..., width]."""
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate) * up


def swiglu(gate_up: torch.Tensor) -> torch.Tensor:
    """The same by the kernel, rounded once; `gate_up` is contiguous."""
    width = gate_up.shape[-1] // 2
    out = gate_up.new_empty(*gate_up.shape[:-1], width)
    _swiglu[(out.numel() // width, triton.cdiv(width, BLOCK))](gate_up, out, width, BLOCK=BLOCK)
    return out


@triton.jit
def _swiglu(gate_up, out, width, BLOCK: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = column < width
    source = gate_up + row * 2 * width + column
    gate = tl.load(source, mask=there).to(tl.float32)
    up = tl.load(source + width, mask=there).to(tl.float32)
    tl.store(out + row * width + column, (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty), mask=there)
