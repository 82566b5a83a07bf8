"""What tcgemm computes of a backward itself: g * act'(z), the sum over the rows, and all gradients
of a product with a matrix b by one call.

A pass reads its operands once; torch takes one kernel for the derivative and another for the sum.
They have no derivatives: where a second one may follow, autograd.py uses torch's operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tcgemm.dtypes import DIFFERENTIABLE, accumulator
from tcgemm.ops import direct
from tcgemm.ops._torch_private import is_wrapper, redispatch, under_transform
from tcgemm.ops.activations import ACTIVATIONS
from tcgemm.ops.epilogue import DEFAULT, Epilogue
from tcgemm.ops.memory import eager
from tcgemm.ops.operators import Operator

if TYPE_CHECKING:
    from tcgemm.ops.grad_spec import GradSpec

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
_product_backward = redispatch(torch.ops.tcgemm._product_backward.default)


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


def of_product(
    op: Operator,
    g: torch.Tensor,
    a: torch.Tensor | None,
    b: torch.Tensor | None,
    spec_a: GradSpec | None,
    spec_b: GradSpec | None,
    spec_bias: GradSpec | None,
    epilogue: Epilogue,
) -> tuple[torch.Tensor | None, ...] | None:
    """The gradients of a, b and the bias, from the gradient g of a @ b + bias, in one call.

    b is a matrix. a (b) is None if b (a) needs no gradient. None in place of the three: the call
    needs the formulas of autograd.py, or the dispatcher.
    """
    operand = b if a is None else a
    if operand is None or g.dtype is not operand.dtype or (spec_a and spec_a.column_major):
        return None
    sum_dtype = None
    if spec_bias is not None:
        sum_dtype = spec_bias.row_sum_dtype(g)
        is_vector = sum_dtype is not None and len(spec_bias.shape) == 1
        if not is_vector or g.dtype not in DTYPES or g.stride(-1) != 1:
            return None
    # A column-major (K, N) is a row-major weight (N, K), and so are the gradients.
    is_weight, is_transposed = op.weight, spec_b is not None and spec_b.column_major
    if is_transposed:
        is_weight = not is_weight
        b = None if b is None else b.mT
    options = (sum_dtype,)
    if epilogue is not DEFAULT:
        precision = None if epilogue.precision == "prepared" else epilogue.precision
        options = (sum_dtype, epilogue.alpha, precision, epilogue.batch_invariant)
    results = direct.run_pass(_product_backward, (g, a, b), is_weight, *options)
    if results is None:
        return None
    grad_a, grad_b, grad_bias = results
    return (
        None if spec_a is None else grad_a,
        None if spec_b is None else grad_b.mT if is_transposed else grad_b,
        None if spec_bias is None else grad_bias,
    )
