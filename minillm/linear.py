"""The matrix product of every projection; several projections of one input as one product."""

import torch
import torch.nn.functional as F
from torch import nn

CACHED_BYTES = 1 << 20  # of a weight whose products with a row stay in the caches of two cores


class Linear(nn.Linear):
    """x · weightᵀ + bias for `x` [..., in_features]; parameters as in `torch.nn.Linear`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return linear(x, self.weight, self.bias)


def side_by_side(*projections: Linear) -> torch.Tensor | None:
    """One [sum of out, in] view over weights that lie one after the other in memory, None if they do not.

    Projections of the same input then cost one product instead of several.
    """
    first = projections[0].weight
    if not all(isinstance(projection.weight, torch.Tensor) for projection in projections):
        stacks = [getattr(projection.weight, "stack", None) for projection in projections]
        alone = any(stack is not stacks[0] for stack in stacks) or projections[0].bias is not None
        return None if alone else stacks[0]
    rows, end = 0, first.data_ptr()
    storage = first.untyped_storage().data_ptr()
    for projection in projections:
        weight = projection.weight
        # Two tensors of an allocator can be neighbours without being parts of one buffer.
        apart = weight.data_ptr() != end or weight.untyped_storage().data_ptr() != storage
        if apart or projection.bias is not None:
            return None
        rows, end = rows + len(weight), end + weight.nbytes
    return first.as_strided((rows, first.shape[1]), first.stride())


def project(x: torch.Tensor, projections: tuple[Linear, ...], stacked: torch.Tensor | None) -> torch.Tensor:
    """`x` through each projection, results side by side, [..., sum of out].

    One product where `stacked` (from `side_by_side`) is given.
    """
    if stacked is None:
        return torch.cat([projection(x) for projection in projections], -1)
    return linear(x, stacked)


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x · weightᵀ + bias; [..., in] → [..., out]. The weight may be a `PackedWeight`."""
    if not isinstance(weight, torch.Tensor):
        return weight.linear(x, bias)
    if x.is_cpu and x.dtype == torch.float32 and x.numel() == weight.shape[1]:
        out = one_row(x, weight)
        return out if bias is None else out + bias
    return F.linear(x, weight, bias)


def one_row(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """`x` [..., in], a single row, · `weight`ᵀ [in, out] in float32 on the CPU; → [..., out].

    PyTorch leaves this product to the BLAS's matrix-vector routine, which uses one thread. Two ways that
    use all of them: multiply and sum while the products fit a cache; else a batch of parts of the weight.
    """
    if weight.nbytes <= CACHED_BYTES:
        products = (weight * x).sum(-1)  # one dimension less than x
        return products.unsqueeze(0) if x.dim() > 1 else products
    threads = torch.get_num_threads()
    if threads == 1 or len(weight) % threads:
        return F.linear(x, weight)
    parts = weight.view(threads, -1, weight.shape[1]).mT  # [threads, in, out / threads]
    return torch.bmm(x.reshape(1, 1, -1).expand(threads, 1, -1), parts).view(*x.shape[:-1], -1)
