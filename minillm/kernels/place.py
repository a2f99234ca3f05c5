"""From a token's projections to its query and its place in the cache: QK-norm, RoPE and the write at once."""

import torch
import triton
import triton.language as tl

from minillm.kernels.early import early, gdc_launch_dependents, gdc_wait
from minillm.norm import rms_norm
from minillm.rope import Rotation


def place_reference(
    qkv: torch.Tensor,
    norms: tuple[torch.Tensor, torch.Tensor],
    eps: float,
    rotation: Rotation,
    keys: torch.Tensor,
    values: torch.Tensor,
) -> torch.Tensor:
    """Rotated queries [B, T, H, D]; keys and values go into the cache at `rotation.positions` [B, T].

    `qkv` [B, T, (H + 2K) · D]; `norms`: weights [D] of queries and keys; `keys`, `values`
    [B, K, capacity, D].
    """
    B, K, _, D = keys.shape
    heads = qkv.view(*qkv.shape[:2], -1, D).transpose(1, 2)  # [B, heads, T, D]
    q, k, v = heads.split((heads.shape[1] - 2 * K, K, K), 1)
    q, k = (rotation.apply(rms_norm(x, weight, eps)) for x, weight in zip((q, k), norms, strict=True))
    row, place = torch.arange(B, device=qkv.device)[:, None], rotation.positions
    keys[row, :, place], values[row, :, place] = k.transpose(1, 2), v.transpose(1, 2)
    return q.transpose(1, 2)


def place(
    qkv: torch.Tensor,
    norms: tuple[torch.Tensor, torch.Tensor],
    eps: float,
    rotation: Rotation,
    keys: torch.Tensor,
    values: torch.Tensor,
) -> torch.Tensor:
    """The same by the kernel: a program some heads of a token. `qkv` and positions are contiguous."""
    (B, T, width), (_, K, _, D) = qkv.shape, keys.shape
    H = width // D - 2 * K
    q = qkv.new_empty(B, T, H, D)
    rope, pdl = rotation.rope, early(qkv.device)
    # A single token is done soonest by many programs; of a prompt's, heads share their sines and cosines.
    heads = 1 if T == 1 else 8
    _place[(B * T, triton.cdiv(H + 2 * K, heads))](
        qkv, *norms, rope.inv_freq, rotation.positions, q, keys, values, keys.stride(0), keys.stride(1), T,
        eps, rope.scale, H=H, K=K, HEADS=heads, HALF=D // 2, BLOCK=triton.next_power_of_2(D // 2),
        PDL=pdl, num_warps=1, launch_pdl=pdl,
    )  # fmt: skip
    return q


# Without kernels of their own for some lengths of a prompt, or for positions from the middle of a buffer:
# compiling one takes longer than a prefill.
@triton.jit(do_not_specialize=["T"], do_not_specialize_on_alignment=["positions"])
def _place(
    qkv, q_norm, k_norm, inv_freq, positions, q, keys, values, stride_b, stride_h, T, eps, rope_scale,
    H: tl.constexpr, K: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr, BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    token = tl.program_id(0)
    head = (tl.program_id(1) * HEADS + tl.arange(0, HEADS))[:, None]  # queries, then keys, then values
    pair = tl.arange(0, BLOCK)[None, :]
    inside = (pair < HALF) & (head < H + 2 * K)
    source = qkv + (token * (H + 2 * K) + head) * 2 * HALF + pair
    first = tl.load(source, mask=inside, other=0.0)
    second = tl.load(source + HALF, mask=inside, other=0.0)
    position = tl.load(positions + token)
    slot = (token // T).to(tl.int64) * stride_b + position * 2 * HALF + pair
    value = values + slot + (head - H - K) * stride_h
    _store(value, first, second, inside & (head >= H + K), HALF)
    one, two = first.to(tl.float32), second.to(tl.float32)
    inverse = tl.rsqrt((tl.sum(one * one, 1) + tl.sum(two * two, 1)) / (2 * HALF) + eps)[:, None]
    one *= inverse * _weight(q_norm, k_norm, pair, head < H, HALF)
    two *= inverse * _weight(q_norm + HALF, k_norm + HALF, pair, head < H, HALF)
    # Rounded after the norm, as between two operations.
    one, two = one.to(first.dtype).to(tl.float32), two.to(first.dtype).to(tl.float32)
    angle = position.to(tl.float32) * tl.load(inv_freq + pair, mask=pair < HALF, other=0.0)
    cos, sin = tl.cos(angle) * rope_scale, tl.sin(angle) * rope_scale
    one, two = one * cos - two * sin, two * cos + one * sin
    _store(q + (token * H + head) * 2 * HALF + pair, one, two, inside & (head < H), HALF)
    _store(keys + slot + (head - H) * stride_h, one, two, inside & (head >= H) & (head < H + K), HALF)


@triton.jit
def _weight(q_norm, k_norm, pair, query, HALF: tl.constexpr):
    """Of the norm of each head."""
    ours, theirs = (tl.load(q_norm + pair, mask=pair < HALF), tl.load(k_norm + pair, mask=pair < HALF))
    return tl.where(query, ours, theirs).to(tl.float32)


@triton.jit
def _store(target, one, two, mask, HALF: tl.constexpr):
    tl.store(target, one.to(target.dtype.element_ty), mask=mask)
    tl.store(target + HALF, two.to(target.dtype.element_ty), mask=mask)
