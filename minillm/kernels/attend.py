"""Decode attention, one new token a sequence: keys are cut into parts that many processors read at once.

Flash-decoding (pytorch.org/blog/flash-decoding): each part gives a softmax of its own with its largest score
and its sum, a second kernel puts them together. The query heads that share a key head go through it together,
so that a key is read once.
"""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from minillm.kernels.early import early, gdc_launch_dependents, gdc_wait

BLOCK_BYTES = 128  # of a column of keys that a program looks at together: a card of 2018 has 64 KiB for it
PARTS = 16


def attend_reference(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """`q` [B, 1, H, D] over what `keys`, `values` [B, K, capacity, D] hold up to `positions` [B, 1].

    → [B, 1, H · D], the heads side by side.
    """
    B, _, H, D = q.shape
    grouped = q.view(B, keys.shape[1], -1, D)  # [B, K, H/K, D]
    seen = torch.arange(keys.shape[2], device=q.device) <= positions  # [B, capacity]
    mixed = F.scaled_dot_product_attention(grouped, keys, values, attn_mask=seen[:, None, None])
    return mixed.reshape(B, 1, H * D)


def attend(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, positions: torch.Tensor, parts: int = PARTS
) -> torch.Tensor:
    """The same by the kernels; `positions` lie on the device, where a graph finds them grown."""
    (B, _, H, D), K = q.shape, keys.shape[1]
    mixed = torch.empty(B, H, parts, D, dtype=torch.float32, device=q.device)
    stats = torch.empty(B, H, parts, 2, dtype=torch.float32, device=q.device)  # largest score, sum
    out, pdl = q.new_empty(B, 1, H * D), early(q.device)
    wide = triton.next_power_of_2(D)
    block = max(16, BLOCK_BYTES // q.itemsize)
    _attend_part[(B * K, parts)](
        q, keys, values, positions, mixed, stats, keys.stride(0), keys.stride(1), D**-0.5,
        K=K, G=H // K, ROWS=max(16, triton.next_power_of_2(H // K)), D=D, WIDE=wide, PARTS=parts, BLOCK=block,
        PDL=pdl, launch_pdl=pdl,
    )  # fmt: skip
    _join_parts[(B * H,)](
        mixed, stats, out, D=D, WIDE=wide, PARTS=parts, PDL=pdl, num_warps=1, launch_pdl=pdl
    )
    return out


# Positions come from a buffer of their own or from the middle of one: no kernel for each.
@triton.jit(do_not_specialize_on_alignment=["positions"])
def _attend_part(
    q, keys, values, positions, mixed, stats, stride_b, stride_h, scale,
    K: tl.constexpr, G: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr,
    PARTS: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    b, head, part = tl.program_id(0) // K, tl.program_id(0) % K, tl.program_id(1)
    length = tl.load(positions + b) + 1
    share = tl.cdiv(tl.cdiv(length, PARTS), BLOCK) * BLOCK
    begin = part * share
    end = tl.minimum(begin + share, length)
    row, dim = tl.arange(0, ROWS), tl.arange(0, WIDE)
    query = (b * K + head) * G + row
    mine = (row < G)[:, None] & (dim < D)[None, :]
    asked = tl.load(q + query[:, None] * D + dim[None, :], mask=mine, other=0.0)
    base = b.to(tl.int64) * stride_b + head * stride_h
    best = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, WIDE], tl.float32)
    for start in range(begin, end, BLOCK):
        place = start + tl.arange(0, BLOCK)
        there = (place < end)[:, None] & (dim < D)[None, :]
        offset = base + place[:, None] * D + dim[None, :]
        key = tl.load(keys + offset, mask=there, other=0.0)
        value = tl.load(values + offset, mask=there, other=0.0)
        scores = tl.dot(asked, tl.trans(key), input_precision="ieee") * scale
        scores = tl.where((place < end)[None, :], scores, float("-inf"))
        larger = tl.maximum(best, tl.max(scores, 1))
        weight = tl.exp(scores - larger[:, None])
        shrink = tl.exp(best - larger)
        sums = sums * shrink[:, None] + tl.dot(weight.to(value.dtype), value, input_precision="ieee")
        total = total * shrink + tl.sum(weight, 1)
        best = larger
    where = query * PARTS + part
    tl.store(mixed + where[:, None] * D + dim[None, :], sums, mask=mine)
    tl.store(stats + where * 2, best, mask=row < G)
    tl.store(stats + where * 2 + 1, total, mask=row < G)


@triton.jit
def _join_parts(
    mixed, stats, out, D: tl.constexpr, WIDE: tl.constexpr, PARTS: tl.constexpr, PDL: tl.constexpr
):
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    query = tl.program_id(0)
    part, dim = tl.arange(0, PARTS), tl.arange(0, WIDE)
    best = tl.load(stats + (query * PARTS + part) * 2)
    total = tl.load(stats + (query * PARTS + part) * 2 + 1)
    weight = tl.exp(best - tl.max(best, 0))  # 0 for a part without keys: its best is −∞
    offset = (query * PARTS + part)[:, None] * D + dim[None, :]
    sums = tl.load(mixed + offset, mask=(dim < D)[None, :], other=0.0)
    joined = tl.sum(sums * weight[:, None], 0) / tl.sum(total * weight, 0)
    tl.store(out + query * D + dim, joined.to(out.dtype.element_ty), mask=dim < D)
