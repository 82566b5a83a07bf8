"""The shortest way from Python to a kernel: past torch's dispatcher, which takes 1 us of a call.

Only calls that the dispatcher would hand to the kernel of the device unchanged may take it. Tensors
whose memory the kernel cannot read (sparse or nested ones) make it raise an error; then the
dispatcher gets the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tcgemm.ops._torch_private import (
    dispatch_keys,
    dispatch_modes,
    is_profiled,
    is_tracing,
)

if TYPE_CHECKING:
    from tcgemm.ops.operators import Operator

_DENSE = (torch.Tensor, torch.nn.Parameter)
_CPU, _CUDA = dispatch_keys("CPU"), dispatch_keys("CUDA")


def run(
    op: Operator, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, *options: object
) -> torch.Tensor | None:
    """The result of the operator, or None if the call needs the dispatcher.

    The caller knows that no transform and no autocast is active. options: the arguments of the
    operator after the bias; without them it has its defaults.
    """
    if (
        type(a) not in _DENSE
        or type(b) not in _DENSE
        or dispatch_modes()
        or is_profiled()
        or is_tracing()
        # With a negative bit the memory has the negated elements, and a ZeroTensor has no memory.
        or a.is_neg()
        or b.is_neg()
        or a._is_zerotensor()
        or b._is_zerotensor()
    ):
        return None
    if a.is_cuda and b.is_cuda:
        keys = _CUDA
    elif a.is_cpu and b.is_cpu:
        keys = _CPU
    else:
        return None
    try:
        if bias is None:
            return op.kernel(keys, a, b, None, *options) if options else op.kernel(keys, a, b)
        if (
            type(bias) not in _DENSE
            or bias.is_neg()
            or bias._is_zerotensor()
            or bias.is_cuda is not a.is_cuda
            or bias.is_meta
        ):
            return None
        return op.kernel(keys, a, b, bias, *options)
    except RuntimeError:
        return None
