"""Attention of many tokens: FlashAttention (arXiv 2307.08691) by the matrix instructions of Hopper.

PyTorch's own kernel is FlashAttention-2, made of the instructions of the generation before. cuDNN's is as
fast as this one, but plans for tens of milliseconds at each new length.
"""

from functools import cache

import torch
import triton
import triton.language as tl

from minillm import attention
from minillm.kernels.early import early, gdc_launch_dependents, gdc_wait

ROWS, BLOCK = 128, 128  # queries of a program, keys at a time
LOG2_E = 1.4426950408889634


@cache
def suits(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    """Whether it is the kernel to take: its tiles fill a Hopper's shared memory, others have less."""
    if device.type != "cuda" or dtype.itemsize != 2 or head_dim not in (64, 128):
        return False
    return torch.cuda.get_device_capability(device) == (9, 0)


def attend_many_reference(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, end: int
) -> torch.Tensor:
    """`q` [B, T, H, D] over the first `end` of `keys`, `values` [B, K, capacity, D] → [B, T, H·D].

    The T tokens are the last of `end`: each sees what comes before it, and itself.
    """
    place = torch.arange(end, device=q.device)
    seen = place <= place[-q.shape[1] :, None]  # [T, S]
    k, v = (stored.narrow(2, 0, end) for stored in (keys, values))
    return attention.attend(q.transpose(1, 2), k, v, seen)


def attend_many(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, end: int) -> torch.Tensor:
    """The same by the kernel; `q` is contiguous, D a power of two."""
    B, T, H, D = q.shape
    out, pdl = torch.empty_like(q), early(q.device)
    _attend_many[(B * H, triton.cdiv(T, ROWS))](
        q, keys, values, out, T, end, keys.stride(0), keys.stride(1), D**-0.5 * LOG2_E,
        H=H, G=H // keys.shape[1], D=D, ROWS=ROWS, BLOCK=BLOCK, PDL=pdl,
        num_warps=8, num_stages=3, launch_pdl=pdl,
    )  # fmt: skip
    return out.flatten(2)


@triton.jit(do_not_specialize=["T", "end"])
def _attend_many(
    q, keys, values, out, T, end, stride_b, stride_h, scale, H: tl.constexpr, G: tl.constexpr,
    D: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    b, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    # The last queries see most keys: begun first, they do not keep all others waiting at the end.
    begin = (tl.num_programs(1) - 1 - tl.program_id(1)) * ROWS
    row, dim = begin + tl.arange(0, ROWS), tl.arange(0, D)
    at = ((b * T + row) * H + head)[:, None] * D + dim[None, :]
    query = tl.load(q + at, mask=(row < T)[:, None], other=0.0)
    first = b * stride_b + (head // G) * stride_h
    keys, values = keys + first, values + first
    mixed = tl.zeros([ROWS, D], tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    best = tl.full([ROWS], float("-inf"), tl.float32)
    place = end - T + begin  # of the first query
    whole = (place + 1) // BLOCK * BLOCK  # so many keys are seen by every query: no mask for those
    mixed, total, best = _look(
        mixed, total, best, query, keys, values, 0, whole, place, end, scale, D, ROWS, BLOCK, False
    )
    last = tl.minimum(place + ROWS, end)
    mixed, total, best = _look(
        mixed, total, best, query, keys, values, whole, last, place, end, scale, D, ROWS, BLOCK, True
    )
    tl.store(out + at, (mixed / total[:, None]).to(out.dtype.element_ty), mask=(row < T)[:, None])


@triton.jit
def _look(
    mixed, total, best, query, keys, values, begin, stop, place, end, scale,
    D: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Take in the keys `begin` … `stop`: the sum of weighted values, of weights, the best score so far."""
    row, dim = place + tl.arange(0, ROWS), tl.arange(0, D)
    for start in range(begin, stop, BLOCK):
        column = start + tl.arange(0, BLOCK)
        at = column[:, None] * D + dim[None, :]
        if MASKED:
            there = (column < end)[:, None]
            key = tl.load(keys + at, mask=there, other=0.0)
            value = tl.load(values + at, mask=there, other=0.0)
        else:
            key, value = tl.load(keys + at), tl.load(values + at)
        scores = tl.dot(query, tl.trans(key))
        if MASKED:
            scores = tl.where(column[None, :] <= row[:, None], scores, float("-inf"))
        better = tl.maximum(best, tl.max(scores, 1) * scale)
        weight = tl.exp2(scores * scale - better[:, None])
        shrink = tl.exp2(best - better)
        total = total * shrink + tl.sum(weight, 1)
        mixed = tl.dot(weight.to(value.dtype), value, mixed * shrink[:, None])
        best = better
    return mixed, total, best
