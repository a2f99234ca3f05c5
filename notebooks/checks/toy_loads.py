"""Loaders for projections that are stored [in, out], right and wrong, and tensors to try them with."""

from collections.abc import Callable
from math import prod

import torch

Shapes = dict[str, tuple[int, ...]]
Tensors = dict[str, torch.Tensor]


def load(stored: Tensors, shapes: Shapes, turn: Callable | None = None, check: bool = True) -> Tensors:
    loaded = {}
    for name, tensor in stored.items():
        if turn is not None:
            loaded[name] = turn(name, tensor, shapes[name])
        else:
            loaded[name] = tensor.T if name.endswith("_proj.weight") else tensor
        if check and tuple(loaded[name].shape) != shapes[name]:
            raise ValueError(name)
    return loaded


def if_it_differs(name: str, tensor: torch.Tensor, shape: tuple) -> torch.Tensor:
    return tensor if tuple(tensor.shape) == shape else tensor.T


def if_a_projection_differs(name: str, tensor: torch.Tensor, shape: tuple) -> torch.Tensor:
    return if_it_differs(name, tensor, shape) if name.endswith("_proj.weight") else tensor


def if_it_differs_or_is_square(name: str, tensor: torch.Tensor, shape: tuple) -> torch.Tensor:
    square = tensor.dim() == 2 and tensor.shape[0] == tensor.shape[1]
    return tensor.T if square else if_it_differs(name, tensor, shape)


def if_a_projection_differs_or_is_square(name: str, tensor: torch.Tensor, shape: tuple) -> torch.Tensor:
    return if_it_differs_or_is_square(name, tensor, shape) if name.endswith("_proj.weight") else tensor


def all_turned(name: str, tensor: torch.Tensor, shape: tuple) -> torch.Tensor:
    return tensor.T if tensor.dim() == 2 else tensor


def reshaped_to_fit(name: str, tensor: torch.Tensor, shape: tuple) -> torch.Tensor:
    fits = tensor.numel() == prod(shape)
    return tensor.reshape(shape) if name.endswith("_proj.weight") and fits else tensor


def reshaped_projection(name: str, tensor: torch.Tensor, shape: tuple) -> torch.Tensor:
    return tensor.reshape(shape) if name.endswith("_proj.weight") else tensor


def reshaped_backwards(name: str, tensor: torch.Tensor, shape: tuple) -> torch.Tensor:
    return tensor.reshape(tensor.shape[::-1]) if name.endswith("_proj.weight") else tensor


def reshaped_or_refused(name: str, tensor: torch.Tensor, shape: tuple) -> torch.Tensor:
    if tensor.numel() != prod(shape):
        raise ValueError(name)
    return tensor.reshape(shape)


def check_before_turn(stored: Tensors, shapes: Shapes) -> Tensors:
    for name, tensor in stored.items():
        if tuple(tensor.shape) != shapes[name]:
            raise ValueError(name)
    return load(stored, shapes, check=False)


SHAPES = {
    "embed_tokens.weight": (7, 3),
    "q_proj.weight": (3, 3),
    "up_proj.weight": (5, 3),
    "norm.weight": (3,),
}
OTHER = {
    "embed_tokens.weight": torch.arange(21.0).view(7, 3),
    "q_proj.weight": torch.arange(9.0).view(3, 3),
    "up_proj.weight": torch.arange(15.0).view(3, 5),
    "norm.weight": torch.ones(3),
}
