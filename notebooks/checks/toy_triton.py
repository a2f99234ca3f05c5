"""Stands in for Triton's interpreter on systems for which Triton is not made; knows what our kernels use.

A kernel runs as ordinary Python, one program after the other; its numbers are PyTorch tensors on the CPU.
"""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import torch

_programs: list[torch.Tensor] = []  # the number of the program that runs, one for each axis of the grid


class Pointer:
    """The address of one number of a tensor, or of several: the tensor's numbers in a row, and offsets."""

    def __init__(self, memory: torch.Tensor, offsets: torch.Tensor | int = 0):
        self.memory, self.offsets = memory, offsets
        self.dtype = PointerType(memory.dtype)

    def __add__(self, more: torch.Tensor | int) -> "Pointer":
        return Pointer(self.memory, self.offsets + more)


class PointerType:
    """The type of a pointer knows that of the numbers behind it."""

    def __init__(self, element_ty: torch.dtype):
        self.element_ty = element_ty


class Kernel:
    """What `jit` makes of a function: `kernel[grid](…)` runs it once for each place of the grid."""

    def __init__(self, fn):
        self.fn = fn

    def __call__(self, *arguments):
        """As a part of another kernel."""
        return self.fn(*arguments)

    def __getitem__(self, grid: tuple[int, ...]):
        def launch(*arguments, num_warps=None, launch_pdl=False, **constants):
            given = [_address(each) if isinstance(each, torch.Tensor) else each for each in arguments]
            for number in range(torch.Size(grid).numel()):
                _programs[:] = torch.unravel_index(torch.tensor(number), torch.Size(grid))
                self.fn(*given, **constants)

        return launch


def jit(fn=None, **options):
    """`@triton.jit`, or `@triton.jit(…)` with what matters to a compiler only."""
    return jit if fn is None else Kernel(fn)


def _address(tensor: torch.Tensor) -> Pointer:
    """Of the first number of `tensor`; all that lies behind it can be reached."""
    end = tensor.untyped_storage().nbytes() // tensor.itemsize - tensor.storage_offset()
    return Pointer(tensor.as_strided((end,), (1,)))


def _load(pointer: Pointer, mask: torch.Tensor | None = None, other: float = 0.0) -> torch.Tensor:
    offsets = torch.as_tensor(pointer.offsets)
    if mask is None:
        return pointer.memory[offsets]
    offsets, mask = torch.broadcast_tensors(offsets, mask)
    found = pointer.memory[torch.where(mask, offsets, 0)]
    return torch.where(mask, found, torch.tensor(other, dtype=found.dtype))


def _store(pointer: Pointer, value: torch.Tensor, mask: torch.Tensor | None = None) -> None:
    offsets, value = torch.broadcast_tensors(torch.as_tensor(pointer.offsets), torch.as_tensor(value))
    keep = torch.ones_like(offsets, dtype=torch.bool) if mask is None else mask.broadcast_to(offsets.shape)
    pointer.memory[offsets[keep]] = value[keep].to(pointer.memory.dtype)


def _dot(a: torch.Tensor, b: torch.Tensor, input_precision: str = "") -> torch.Tensor:
    return a.float() @ b.float()


def _either(function):
    """Of two numbers of which each may be Python's."""
    return lambda a, b: function(torch.as_tensor(a), torch.as_tensor(b))


LANGUAGE = {
    "constexpr": int, "float32": torch.float32, "int64": torch.int64, "load": _load, "store": _store,
    "program_id": lambda axis: _programs[axis], "arange": torch.arange,
    "zeros": lambda shape, dtype: torch.zeros(shape, dtype=dtype),
    "full": lambda shape, value, dtype: torch.full(shape, value, dtype=dtype),
    "sum": lambda x, axis: x.sum(axis), "max": lambda x, axis: x.amax(axis),
    "maximum": _either(torch.maximum), "minimum": _either(torch.minimum), "cdiv": lambda a, b: -(-a // b),
    "cast": lambda x, dtype: torch.as_tensor(x).to(dtype), "dot": _dot, "trans": torch.t,
    "where": lambda mask, a, b: torch.where(mask, torch.as_tensor(a), torch.as_tensor(b)),
    "exp": torch.exp, "rsqrt": torch.rsqrt, "sigmoid": torch.sigmoid, "cos": torch.cos, "sin": torch.sin,
}  # fmt: skip


def modules() -> dict[str, ModuleType]:
    """`triton` and what our kernels import of it, by name."""
    extra = ("triton.language.extra", "triton.language.extra.cuda")
    made = {name: ModuleType(name) for name in ("triton", "triton.language", *extra)}
    for name, module in made.items():
        module.__spec__ = ModuleSpec(name, None)
    triton = made["triton"]
    triton.language, triton.jit = made["triton.language"], jit
    triton.cdiv, triton.next_power_of_2 = LANGUAGE["cdiv"], lambda n: 1 << (n - 1).bit_length()
    made["triton.language"].__dict__.update(LANGUAGE)
    for name in ("gdc_wait", "gdc_launch_dependents"):  # nothing here begins early
        setattr(made[extra[1]], name, lambda: None)
    return made


def install() -> None:
    """Let `import triton` find the stand-in."""
    sys.modules.update(modules())
