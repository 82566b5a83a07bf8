"""Calls of the operators in eager mode, each with the least host time.

A call that needs a gradient goes to the Function of its operator, which autograd.py registers here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tcgemm.dtypes import DIFFERENTIABLE
from tcgemm.ops import direct
from tcgemm.ops._torch_private import (
    below_autograd,
    in_dual_level,
    is_gradient_batch,
    transforms_active,
)
from tcgemm.ops.direct import DENSE
from tcgemm.ops.epilogue import Epilogue
from tcgemm.ops.grad_checks import check_constants
from tcgemm.ops.memory import raise_typed
from tcgemm.ops.operators import MATMUL, Operator

nodes: dict[str, Any] = {}  # name of an operator -> its Function
plain_calls: dict[str, Callable[..., Any]] = {}  # the same for plain products: Function.apply
_compiling = torch.compiler.is_compiling
_grad_enabled = torch.is_grad_enabled


def call(op: Operator, a: Any, b: Any, c: Any, bias: Any, residual: Any, epilogue: Epilogue) -> Any:
    """Runs an operator, outside torch.compile, with the least host time that this call allows."""
    try:
        if transforms_active():
            return op.run(a, b, c, bias, residual, epilogue)  # its Autograd kernel differentiates
        needs_gradient = _grad_enabled() and (
            a.requires_grad
            or b.requires_grad
            or (bias is not None and bias.requires_grad)
            or (residual is not None and residual.requires_grad)
            or (c is not None and c.requires_grad)
        )
        if not needs_gradient:
            result = direct.run(op, a, b, c, bias, residual, epilogue)
            if result is not None:
                return result
        dual = in_dual_level()
        if dual or needs_gradient:
            if (
                epilogue.activation is epilogue.out_dtype is c is residual is None
                and not (dual or op.constant_names)
                and type(a) in DENSE
                and type(b) in DENSE
                and a.dtype in DIFFERENTIABLE
            ):
                return plain_calls[op.name](op, a, b, bias, epilogue)
            return first_result(op, nodes[op.name].apply(op, a, b, c, bias, residual, epilogue))
        with below_autograd():
            return op.run(a, b, c, bias, residual, epilogue)
    except RuntimeError as error:
        raise_typed(error)


def call_checked(op: Operator, *operands: Any) -> Any:
    """call for an operator with constants, which must not need a gradient."""
    if not transforms_active():  # under a transform the Autograd kernel checks them
        check_constants(op)
    return call(op, *operands)


def without_grad(op: Callable[..., Any], *arguments: Any) -> Any:
    """Calls an operator whose results carry no derivatives."""
    if _compiling() or transforms_active():
        return op(*arguments)
    try:
        with below_autograd():
            return op(*arguments)
    except RuntimeError as error:
        raise_typed(error)


def is_last_derivative() -> bool:
    """Is this a backward that nothing differentiates, traces or maps?"""
    return not (_grad_enabled() or _compiling() or transforms_active())


def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    epilogue: Epilogue,
    out_dtype: torch.dtype | None,
    sums_rows: bool = False,
    last: bool = False,
) -> torch.Tensor:
    """alpha * (a @ b), differentiable: the product that the formulas use.

    `last` is what is_last_derivative() returns: then the call goes straight to the kernel.
    """
    epilogue = epilogue.of_gradient(out_dtype, sums_rows)
    if last:
        result = direct.run(MATMUL, a, b, None, None, None, epilogue)
        if result is not None:
            return result
    return run(MATMUL, a, b, None, None, None, epilogue)


def run(op: Operator, a: Any, b: Any, c: Any, bias: Any, residual: Any, epilogue: Epilogue) -> Any:
    """`call` for the derivatives, which run under torch.compile and in batches as well."""
    # is_grads_batched=True makes batches without a transform. The dispatcher alone knows them.
    if _compiling() or is_gradient_batch(a) or is_gradient_batch(b):
        return op.run(a, b, c, bias, residual, epilogue)
    return call(op, a, b, c, bias, residual, epilogue)


def first_result(op: Operator, results: Any) -> Any:
    """The operator's result, without the z that the Function may return beside it."""
    return results[0] if type(results) is tuple and not op.amax else results
