"""The passes of the backward that tcgemm computes itself: g * act'(z), and the sum over the rows.

Each reads its operands once; torch takes one kernel for the derivative and another for the sum.
They have no derivatives: where a second one may follow, autograd.py uses torch's operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tcgemm.dtypes import DIFFERENTIABLE, accumulator
from tcgemm.ops import direct
from tcgemm.ops._torch_private import is_wrapper, redispatch, under_transform
from tcgemm.ops.activations import ACTIVATIONS
from tcgemm.ops.memory import eager
from tcgemm.ops.operators import Operator

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def _pass(op: Any) -> Callable[..., Any]:
    """A function that calls the operator of a pass with its tensors and its other arguments."""
    kernel, dispatched = redispatch(op), eager(op)

    def call(tensors: tuple[torch.Tensor, ...], *arguments: Any) -> Any:
        result = direct.run_pass(kernel, tensors, *arguments)
        return dispatched(*tensors, *arguments) if result is None else result

    return call


_sum_rows = _pass(torch.ops.tcgemm._sum_rows.default)
_activation_backward = _pass(torch.ops.tcgemm._activation_backward.default)


def keeps_z(
    op: Operator,
    a: torch.Tensor,
    others: Sequence[torch.Tensor | None],
    out_dtype: torch.dtype | None,
) -> bool:
    """Does the forward keep the argument of the activation, instead of computing it again?

    It is kept in the dtype of the result, so this must hold every value of the operands' dtype. On
    a GPU the kernels of 16-bit operands store it beside a 16-bit result; others would need a
    product of its own.
    """
    dtype = out_dtype or a.dtype
    if op.with_z is None or dtype not in DIFFERENTIABLE or a.dtype not in DIFFERENTIABLE:
        return False
    if dtype is not a.dtype and torch.promote_types(dtype, a.dtype) is not dtype:
        return False
    if a.is_cuda and not a.dtype.itemsize == dtype.itemsize == 2:
        return False
    return not any(tensor is not None and is_wrapper(tensor) for tensor in (a, *others))


def keeps_sign(dtype: torch.dtype, out_dtype: torch.dtype | None) -> bool:
    """Is a result of relu positive wherever z is? In float16 small values of other dtypes are 0."""
    return out_dtype is not torch.float16 or dtype is torch.float16


def run(
    g: torch.Tensor,
    z: torch.Tensor | None,
    activation: str | None,
    dtype: torch.dtype,
    sum_dtype: torch.dtype | None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(g * act'(z), its sum over all dimensions but the last).

    The product has this dtype if a pass computes it. The sum adds f32 values and is rounded once;
    it is None if sum_dtype is, or if no pass computes it.
    """
    if activation is None or z is None:
        # torch sums columns that are not contiguous without a copy.
        if sum_dtype is None or not _takes(g) or g.stride(-1) != 1:
            return g, None
        return g, _sum_rows((g,), sum_dtype)
    if not _takes(g) or z.dtype is not g.dtype:
        if activation != "relu":  # torch's expressions would round each of their steps to 16 bits
            z = z.to(accumulator(z.dtype))
        return composed(g, z, activation), None
    gz, sums = _activation_backward((g, z), activation, dtype, sum_dtype)
    return gz, None if sum_dtype is None else sums


def _takes(g):
    """Can the passes read this gradient? A DTensor takes torch's operators, which know its
    placement, and so do other wrappers."""
    no_derivative = not (torch.is_grad_enabled() or under_transform())
    return no_derivative and g.dtype in DTYPES and g.dim() > 0 and not is_wrapper(g)


def composed(g: torch.Tensor, z: torch.Tensor, activation: str | None) -> torch.Tensor:
    """g * act'(z) by torch's operators, differentiable in g and z any number of times."""
    wide = torch.promote_types(g.dtype, z.dtype)
    return ACTIVATIONS[activation].gradient(g.to(wide), z.to(wide))
