"""Weights that have not changed since the last call of their layer.

A kernel may start while the kernel before it still runs. It waits for that kernel before it loads,
because it may read what that kernel writes. A weight that the last call of the layer read, and that
has not changed since, was complete at that call: the kernel loads it before the wait
(docs/dev/kernels/few-rows.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tcgemm.ops import direct
from tcgemm.ops._torch_private import any_autocast_enabled, in_dual_level, transforms_active
from tcgemm.ops.operators import CONSTANT_LINEAR
from tcgemm.ops.prepack import capturing

if TYPE_CHECKING:
    from torch import Tensor

    from tcgemm.nn.linear import Linear

State = tuple[int, int]  # the version of a weight, and its address
_DTYPES = (torch.float16, torch.bfloat16)  # of weights that a kernel reads as they are
_parameter, _tensor = torch.nn.Parameter, torch.Tensor
_compiling = torch.compiler.is_compiling
_grad_enabled = torch.is_grad_enabled


def state(input: Any, weight: Any) -> State | None:
    """The state of the weight of a call that may load it early, else None.

    Such a call is eager, without gradients, autocast and transforms, on a GPU, and launches a
    kernel that reads the weight as it is.
    """
    if (
        _compiling()
        or _grad_enabled()
        or type(weight) is not _parameter
        or not weight.is_cuda
        or weight.dtype not in _DTYPES
        or type(input) is not _tensor
        or input.dtype is not weight.dtype
        or input.numel() == 0
        or any_autocast_enabled()
        or transforms_active()
        or in_dual_level()
        or weight.is_inference()  # it has no version
    ):
        return None
    return weight._version, weight.data_ptr()


def run(layer: Linear, input: Tensor) -> Tensor | None:
    """The result of the layer; None if the call needs torch's dispatcher."""
    return direct.run(CONSTANT_LINEAR, input, layer.weight, layer.bias, layer.activation)


def remember(layer: Linear, found: State) -> None:
    """Keeps the state for the next call. A call that is captured in a CUDA graph does not run now,
    so it is not the last one."""
    if found != layer._read and not capturing(layer.weight):
        vars(layer)["_read"] = found
