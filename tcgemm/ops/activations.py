"""The activations as torch has them: a row for each word of tcgemm.typing.Activation.

Gradients take them where no pass of fused_backward.py does. Baselines and checks take them too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F

from tcgemm.ops._torch_private import under_transform

_aten = torch.ops.aten


class TorchActivation(NamedTuple):
    """An activation, and what its gradient and the bounds of errors need."""

    function: Callable[[torch.Tensor], torch.Tensor]
    gradient: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    """(g, z) -> g * act'(z), differentiable in g and z any number of times."""
    max_slope: float
    """The largest slope. It multiplies the error of the argument."""


def _silu_gradient(g: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    if not (torch.is_grad_enabled() or under_transform()):
        return _aten.silu_backward(g, z)  # one pass over memory, but no derivative
    sigmoid = z.sigmoid()
    return g * sigmoid * (1 + z * (1 - sigmoid))


ACTIVATIONS: dict[str | None, TorchActivation] = {
    "relu": TorchActivation(torch.relu, lambda g, z: _aten.threshold_backward(g, z, 0), 1.0),
    "gelu": TorchActivation(F.gelu, _aten.gelu_backward, 1.13),
    "gelu_tanh": TorchActivation(
        functools.partial(F.gelu, approximate="tanh"),
        functools.partial(_aten.gelu_backward, approximate="tanh"),
        1.13,
    ),
    "silu": TorchActivation(F.silu, _silu_gradient, 1.1),
}


def activate(x: torch.Tensor, activation: str | None) -> torch.Tensor:
    """act(x) by torch; x itself if there is no activation."""
    return x if activation is None else ACTIVATIONS[activation].function(x)
