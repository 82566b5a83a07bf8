"""The gradients of a and b, from the gradient gz of their product a @ b:

    ga = alpha * gz @ b^T      gb = alpha * a^T @ gz

Each is summed over the batch dimensions in which its operand was broadcast, and has the memory
order of its operand.
"""

from __future__ import annotations

import math
from typing import Any

from tcgemm.dtypes import accumulator
from tcgemm.ops.calls import gemm, is_last_derivative
from tcgemm.ops.direct import DENSE
from tcgemm.ops.dtensor import joins_rows
from tcgemm.ops.epilogue import Epilogue
from tcgemm.ops.grad_spec import GradSpec
from tcgemm.ops.operators import Operator


def operand_gradients(
    op: Operator,
    gz: Any,
    a: Any,
    b: Any,
    dims: tuple[int, int],
    spec_a: GradSpec | None,
    spec_b: GradSpec | None,
    epilogue: Epilogue,
) -> tuple[Any, Any]:
    """(ga, gb), each None without a spec. `dims` counts the dimensions of the operands."""
    ga = gb = None
    gz = op.apply_scales(gz)
    a, b, precision = op.grad_operands(a, b, epilogue.precision)
    epilogue = epilogue.with_precision(precision)
    last = is_last_derivative()
    if spec_a is not None:
        g = gz if gz.dtype is b.dtype else gz.to(b.dtype)
        ga = _gradient_a(op, g, b, dims, spec_a, epilogue, last)
        ga = a.mask(ga, False) if needs_masked_grad(a) else ga
    if spec_b is not None:
        g = gz if gz.dtype is a.dtype else gz.to(a.dtype)
        gb = _gradient_b(op, g, a, dims, spec_b, epilogue, last)
        gb = b.mask(gb, False) if needs_masked_grad(b) else gb
    return ga, gb


def _gradient_a(op, gz, b, dims, spec, epilogue, last):
    if spec.column_major:
        x, y = op.matrix_b(b, dims[1]), gz.mT
    else:
        x, y = gz, b if op.weight else op.matrix_b(b, dims[1]).mT
    if dims[0] != 1:
        return _product(x, y, gz, spec, spec.shape, epilogue, last)
    return _product(x, y, gz, spec, (1, *spec.shape), epilogue, last).squeeze(-2)


def _gradient_b(op, gz, a, dims, spec, epilogue, last):
    a = op.matrix_a(a, dims[0])
    if gz.dim() > 2 and len(spec.shape) <= 2 and joins_rows(a) and joins_rows(gz):
        # The sum over the batch belongs to the sum over k.
        a, gz = as_rows(a), as_rows(gz)
    x, y = (gz, a) if op.weight else (a, gz)
    x, y = (y.mT, x) if spec.column_major else (x.mT, y)
    if dims[1] != 1:
        return _product(x, y, gz, spec, spec.shape, epilogue, last, True)
    return _product(x, y, gz, spec, (*spec.shape, 1), epilogue, last, True).squeeze(-1)


def _product(x, y, gz, spec, shape, epilogue, last, sums_rows=False):
    """alpha * (x @ y), summed from the batch of gz to `shape`. For a column-major gradient x and y
    are the operands of its transpose."""
    summed = gz.dim() > 2 and gz.shape[:-2] != spec.shape[:-2]
    out_dtype = accumulator(spec.dtype) if summed else spec.dtype
    if out_dtype is gz.dtype:
        out_dtype = None
    result = gemm(x, y, epilogue, out_dtype, sums_rows, last)
    if spec.column_major:
        result = result.mT
    return result.sum_to_size(shape).to(spec.dtype) if summed else result


def as_rows(batch: Any) -> Any:
    """A batch of matrices (..., M, K) as one matrix with all rows."""
    return batch.reshape(math.prod(batch.shape[:-1]), batch.shape[-1])


def needs_masked_grad(tensor: object) -> bool:
    """Is this a SparseTensor24 whose gradient has its positions only?"""
    return type(tensor) not in DENSE and getattr(tensor, "dense_gradient", True) is False
