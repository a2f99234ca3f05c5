"""Compile every kernel for a GPU that need not be there: `python compile_kernels.py 90`.

Prints the shared memory of each. In a process of its own, since under TRITON_INTERPRET there are no kernels.
Sizes are Qwen3-8B's.
"""

import os
import sys

os.environ.pop("TRITON_INTERPRET", None)

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from minillm.kernels import attend, attend_many, expand, fetch, gemv, gemv_packed, place, swiglu

POINTERS = {"bf16": "*bf16", "fp16": "*fp16", "fp32": "*fp32"}
WHOLE = {"count", "width", "outputs", "stride_b", "stride_h", "T", "end", "rows", "groups"}
FRACTIONS = {"eps", "scale", "rope_scale"}


def compiled(kernel, constants: dict, dtype: str, capability: int, warps: int):
    """The kernel for weights and activations of `dtype`; pointers are aligned as PyTorch aligns them."""
    signature = {}
    for name in kernel.arg_names:
        own = {"positions": "*i64", "inv_freq": "*fp32", "mixed": "*fp32", "stats": "*fp32"}
        if name in constants:
            signature[name] = "constexpr"
        elif name in WHOLE:
            signature[name] = "i32"
        elif (name in FRACTIONS and kernel is not gemv._gemv) or name == "eps":
            signature[name] = "fp32"
        else:
            signature[name] = (own | packed_types(kernel, constants)).get(name, POINTERS[dtype])
    names = list(kernel.arg_names)
    pointers = {
        (names.index(n),): [["tt.divisibility", 16]] for n, kind in signature.items() if kind[0] == "*"
    }
    fixed = {(names.index(name),): value for name, value in constants.items()}
    source = ASTSource(kernel, signature, fixed, pointers)
    target = GPUTarget("cuda", capability, 32)
    return triton.compile(source, target=target, options={"num_warps": warps})


def packed_types(kernel, constants: dict) -> dict[str, str]:
    """Types of a packed matrix's parts."""
    if constants.get("KIND") in ("int8", "fp8"):
        fp8 = constants["KIND"] == "fp8"
        return {"packed": "*u8" if fp8 else "*i8", "scales": "*fp32" if fp8 else "*bf16"}
    if kernel in (gemv_packed._gemv_packed, expand._expand):
        zero = constants["ZERO"]
        return {"packed": "*u8", "scales": "*fp16" if zero else "*bf16", "shifts": "*u8" if zero else "*bf16"}
    return {}


def main(capability: int) -> None:
    for dtype, size in (("bf16", 2), ("fp16", 2), ("fp32", 4)):
        if dtype == "bf16" and capability < 80:
            continue
        pdl, jobs = {"PDL": capability >= 90}, []
        for norm, silu, residual in ((True, False, False), (True, True, False), (False, False, True)):
            rows, block, warps = gemv.tile(4096, norm, silu)
            kinds = {"NORM": norm, "SILU": silu, "RESIDUAL": residual, "INPUTS": 4096}
            jobs.append((gemv._gemv, kinds | {"ROWS": rows, "BLOCK": block} | pdl, warps))
        block = max(16, attend.BLOCK_BYTES // size)
        shape = {"K": 8, "G": 4, "ROWS": 16, "D": 128, "WIDE": 128, "PARTS": attend.PARTS, "BLOCK": block}
        jobs += [
            *(
                (place._place, {"H": 32, "K": 8, "HEADS": n, "HALF": 64, "BLOCK": 64} | pdl, 1)
                for n in (1, 8)
            ),
            (swiglu._swiglu, {"BLOCK": swiglu.BLOCK}, 4),
            *((fetch._fetch, {"BLOCK": fetch.BLOCK, "ONCE": once}, 4) for once in (False, True)),
            (attend._attend_part, shape | pdl, 4),
            (attend._join_parts, {"D": 128, "WIDE": 128, "PARTS": attend.PARTS} | pdl, 1),
        ]
        for kind, middle, zero in (
            ("int8", False, False), ("fp8", False, False),
            ("int4", True, False), ("int4", False, True), ("int4", False, False),
        ):  # fmt: skip
            for silu in (False, True):
                rows, block, warps = gemv_packed.tile(4096, 32 if kind == "int4" else 16, silu)
                around = {"INPUTS": 4096, "NORM": True, "SILU": silu, "RESIDUAL": False, "GROUP": 128}
                around |= {"KIND": kind, "MIDDLE": middle, "ZERO": zero, "ROWS": rows, "BLOCK": block} | pdl
                jobs.append((gemv_packed._gemv_packed, around, warps))
        piece = {"HALF": 64, "WIDE": 64, "ROWS": expand.ROWS, "GROUPS": expand.GROUPS}
        jobs += [
            (expand._expand, piece | {"MIDDLE": middle, "ZERO": not middle}, 4) for middle in (True, False)
        ]
        if capability == 90 and size == 2:
            rows, block = attend_many.ROWS, attend_many.BLOCK
            heads = {"H": 32, "G": 4, "D": 128, "ROWS": rows, "BLOCK": block}
            jobs.append((attend_many._attend_many, heads | pdl, 8))
        for kernel, constants, warps in jobs:
            done = compiled(kernel, constants, dtype, capability, warps)
            print(kernel.fn.__name__, dtype, done.metadata.shared)


if __name__ == "__main__":
    main(int(sys.argv[1]))
