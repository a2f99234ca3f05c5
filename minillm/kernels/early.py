"""Programmatic dependent launch: a kernel begins while the one before it still runs.

Hopper and later (CUDA programming guide, "Programmatic Dependent Launch"). A kernel that calls
`gdc_launch_dependents` lets the next one start; that one does what depends on nothing, such as reading its
first weights, and calls `gdc_wait` before it looks at, or writes, anything that kernels share. Every kernel
that begins early does, others begin when all is done, so who has waited has waited for all that came before.
"""

import os
from functools import cache

import torch
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

__all__ = ["early", "gdc_launch_dependents", "gdc_wait"]


@cache
def early(device: torch.device) -> bool:
    """Whether kernels on `device` begin early."""
    if device.type != "cuda" or os.environ.get("TRITON_INTERPRET") == "1":
        return False
    return torch.cuda.get_device_capability(device) >= (9, 0)
