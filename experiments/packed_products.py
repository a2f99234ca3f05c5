"""What the products of one row cost with matrices of 16, 8 and 4 bits: the kernels alone, in a graph.

    python -m experiments.packed_products      # data/results/packed_products__<machine>.json

A row a product and format: microseconds, and GB/s of the matrix as it is stored. There are as many different
matrices as no cache can hold, as in a pass. For CUDA; on an H200 25 s, most of it compiling.
"""

import argparse
import sys
from collections.abc import Callable

import torch

from experiments import offload_options
from experiments.offload_checks import over
from experiments.results import FOLDER, Results, check, report
from minillm.errors import RunError
from minillm.quant import codec
from minillm.quant.formats import FP8, INT4, INT8, Format
from minillm.quant.weight import PackedWeight
from minillm.units import GB

# Of Qwen3-8B: rows, columns, and whether x is normed, SwiGLU follows, a residual is added; times in a pass.
PRODUCTS = {
    "qkv": (6144, 4096, (True, False, False), 36),
    "o": (4096, 4096, (False, False, True), 36),
    "gate_up": (24576, 4096, (True, True, False), 36),
    "down": (4096, 12288, (False, False, True), 36),
    "head": (151936, 4096, (True, False, False), 1),
}
FORMATS = {"dense": None, "int8": INT8, "fp8": FP8, "int4": INT4}
BEYOND_CACHES = 1 << 30  # bytes
REPEATS = 7


def main(arguments: list[str] | None = None) -> int:
    """Measure every product in every format."""
    options = read_options(arguments)
    if not torch.cuda.is_available():
        raise RunError("packed_products times kernels on a CUDA GPU, and torch finds none here")
    results = Results("packed_products", options.machine, options.out, {"copies of": BEYOND_CACHES})
    for name in PRODUCTS:
        for kind in FORMATS:
            row = results.row(f"{name}/{kind}", lambda name=name, kind=kind: measure(name, kind))
            offload_options.progress(f"{name}/{kind}: {row['us']:.1f} us, {row['gb_s']:.0f} GB/s")
    checks = shares({row["key"]: row["us"] for row in results.rows()})
    return report(results.finish(checks), checks)


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.packed_products", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--machine", help="name in the file name; default: the GPU's")
    parser.add_argument("--out", default=FOLDER, help="folder of the result; default: data/results")
    return parser.parse_args(arguments)


def measure(name: str, kind: str) -> dict:
    """One product: the best of some replays of a graph that runs it on every matrix."""
    rows, columns, around, _ = PRODUCTS[name]
    first = matrix(FORMATS[kind], rows, columns)
    others = range(1, max(2, BEYOND_CACHES // first.nbytes))
    matrices = [first, *(matrix(FORMATS[kind], rows, columns) for _ in others)]
    seconds = replayed_s(product(rows, columns, *around), matrices)
    return {"us": 1e6 * seconds, "gb_s": first.nbytes / seconds / GB, "bytes": first.nbytes}


def matrix(format: Format | None, rows: int, columns: int) -> torch.Tensor | PackedWeight:
    """Made-up weights; what is stored in bits is any bits that are numbers."""
    if format is None:
        return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)
    parts = codec.empty(format, rows, columns, "cuda")
    parts["packed"].view(torch.uint8).random_(0, 100)
    for name in parts.keys() - {"packed"}:
        parts[name].fill_(0.01)
    return PackedWeight("weight", format, parts, columns, torch.bfloat16)


def product(rows: int, columns: int, norm: bool, silu: bool, residual: bool) -> Callable:
    """`fused.row_product` with what goes around it, of a matrix alone."""
    from minillm.fused import row_product  # imports Triton

    def some(count: int) -> torch.Tensor:
        return torch.randn(count, device="cuda", dtype=torch.bfloat16)

    around = {"norm": (some(columns), 1e-6) if norm else None, "silu": silu}
    around["residual"] = some(rows // (1 + silu)) if residual else None
    x = some(columns)
    return lambda weight: row_product(x, weight, **around)


def replayed_s(work: Callable, matrices: list) -> float:
    """Seconds of `work` on one of the matrices."""
    work(matrices[0])  # compiles
    torch.cuda.synchronize()
    graph, times = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        for each in matrices:
            work(each)
    for _ in range(1 + REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3 / len(matrices))
    return min(times[1:])


def shares(us: dict[str, float]) -> list[dict]:
    """Each format's time over the dense one's: product by product, and of a whole pass."""
    checks = []
    for kind in FORMATS:
        for name in PRODUCTS:
            checks.append(
                check(
                    f"{name}: {kind} over dense",
                    over(us[f"{name}/{kind}"], us[f"{name}/dense"]),
                    None,
                    "lower",
                )
            )
        totals = [
            sum(us[f"{name}/{each}"] * PRODUCTS[name][3] for name in PRODUCTS) for each in (kind, "dense")
        ]
        checks.append(check(f"a pass: {kind} over dense", over(*totals), None, "lower"))
    return [each for each in checks if "dense over" not in each["name"]]


if __name__ == "__main__":
    sys.exit(offload_options.run(main))
