"""A few numbers from host memory to the device, past the copy engine.

A copy of eight bytes waits in line behind the layers that are on their way, for milliseconds. A kernel that
reads the locked memory itself does not.
"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


def fetch(source: torch.Tensor, target: torch.Tensor, once: bool = False) -> None:
    """`target` becomes `source`, of the same shape and type; `source` in locked host memory, contiguous.

    `once`, for numbers from 0: what was read becomes −1 in `source`, and −1 leaves `target` as it is.
    """
    count = source.numel()
    _fetch[(triton.cdiv(count, BLOCK),)](source, target, count, BLOCK=BLOCK, ONCE=once)


@triton.jit(do_not_specialize=["count"])
def _fetch(source, target, count, BLOCK: tl.constexpr, ONCE: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = place < count
    # Read anew every time: a graph's replay must not find what an earlier one left in a cache.
    found = tl.load(source + place, mask=there, volatile=True)
    if ONCE:
        tl.store(source + place, tl.full([BLOCK], -1, found.dtype), mask=there)
        found = tl.where(found < 0, tl.load(target + place, mask=there), found)
    tl.store(target + place, found, mask=there)
