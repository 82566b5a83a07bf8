"""Derivatives of grouped products: grouped products with the same ends of groups.

    z = alpha * (a @ b) + bias      out = act(z) + residual      in the groups; else out = 0

    gz = g * act'(z)     ga = alpha * gz @ b^T      gbias = 1 @ gz, for each group
                         gb = alpha * a^T @ gz      gresidual = g in the groups, else 0

Each product of the right column has the same offs: where the groups divide the rows of a, they
divide the rows of gz in ga, and k in gb; and so on. What is in no group of z is in no group there,
so that no NaN of g, a or b at such a place reaches a gradient. Nothing here reads a value of offs
on the host.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tcgemm.dtypes import accumulator
from tcgemm.ops import calls, fused_backward
from tcgemm.ops._torch_private import forward_gradients
from tcgemm.ops.autograd import Gemm, pre_activation, primals
from tcgemm.ops.epilogue import DEFAULT, Epilogue
from tcgemm.ops.grad_spec import GradSpec

Dims = tuple[int, int]  # of a and b
ROWS, COLUMNS, DEPTH = (2, 3), (3, 2), (2, 2)  # what the groups divide


def _product(op, x, y, epilogue, out_dtype):
    """alpha * (x @ y) in the same groups; the result has out_dtype."""
    dtype = None if out_dtype is x.dtype else out_dtype
    return calls.run(op, x, y, None, None, None, epilogue.of_gradient(dtype, False))


def _gradient(op, x, y, spec, epilogue):
    """alpha * (x @ y) in the form of an operand. One that is column-major gets the transpose of
    y^T @ x^T."""
    if spec.column_major:
        return _product(op, y.mT, x.mT, epilogue, spec.dtype).mT
    return _product(op, x, y, epilogue, spec.dtype)


def _in_groups(tensor: Tensor, offs: Tensor | None, dims: Dims) -> Tensor:
    """A tensor of the result's shape, or a row of it, with zeros for all that is in no group. A
    group of k that is empty has none of the result."""
    if offs is None:
        return tensor
    if dims == DEPTH:
        inside = (offs.diff(prepend=offs.new_zeros(1)) > 0)[:, None, None]
    elif offs.shape[0] == 0:
        return torch.zeros_like(tensor)
    else:
        extent = tensor.shape[0 if dims == ROWS else -1]
        inside = torch.arange(extent, device=tensor.device) < offs[-1]
        inside = inside[:, None] if dims == ROWS else inside
    return torch.where(inside, tensor, 0)


def _bias_gradient(op, gz: Tensor, dims: Dims, spec: GradSpec, epilogue: Epilogue) -> Tensor:
    """The sum of gz over the rows of each group."""
    (offs,) = op.constants
    if dims == ROWS:
        ones = gz.new_ones(1, gz.shape[0])
        options = DEFAULT._replace(batch_invariant=epilogue.batch_invariant)
        return _product(op, ones, gz, options, spec.dtype).squeeze(1)
    rows = 0 if dims == COLUMNS else 1
    wide = accumulator(torch.promote_types(gz.dtype, spec.dtype))
    return _in_groups(gz, offs, dims).sum(rows, dtype=wide).to(spec.dtype)


def _bias_rows(op, bias: Tensor, dims: Dims, epilogue: Epilogue, rows: int) -> Tensor:
    """The bias of each row of the result, or what broadcasts to it."""
    if dims == ROWS:
        ones = bias.new_ones(rows, 1)
        options = DEFAULT._replace(batch_invariant=epilogue.batch_invariant)
        return _product(op, ones, bias.unsqueeze(1), options, accumulator(bias.dtype))
    return bias if dims == COLUMNS else bias.unsqueeze(1)


class GroupedGemm(Gemm):
    """One grouped product with its derivatives."""

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, g: Tensor | None, *others: Any
    ) -> tuple[Tensor | None, ...]:
        """The gradients of forward's arguments after ctx."""
        gradients: list[Tensor | None] = [None] * 7
        gz: Any = others[0] if ctx.keeps_z else None  # of z itself, in a second derivative
        a, b, _c, bias, z, *constants = ctx.saved_tensors
        op = ctx.op.with_constants(constants[:1])
        offs = constants[0]
        spec_a, spec_b, _c, spec_bias, spec_residual = ctx.specs
        epilogue, dims = ctx.epilogue, ctx.dims
        if g is not None and spec_residual is not None:
            gradients[5] = spec_residual.reduce(_in_groups(g, offs, dims))
        if (g is None and gz is None) or spec_a is spec_b is spec_bias is None:
            return tuple(gradients)

        if g is not None:
            if z is None and epilogue.activation is not None:
                z = pre_activation(op, epilogue, a, b, None, bias)
            # The products round gz to the dtype of their operands; the bias takes it before.
            spec = spec_a or spec_b
            dtype = torch.float32 if spec is None or spec_bias is not None else spec.dtype
            before, _ = fused_backward.run(g, z, epilogue.activation, dtype, None)
            gz = before if gz is None else before + gz
        if spec_bias is not None:
            gradients[4] = _bias_gradient(op, gz, dims, spec_bias, epilogue)
        epilogue = epilogue.with_precision(op.grad_operands(a, b, epilogue.precision)[2])
        if spec_a is not None:
            gradients[1] = _gradient(op, gz.to(b.dtype), b.mT, spec_a, epilogue)
        if spec_b is not None:
            gradients[2] = _gradient(op, a.mT, gz.to(a.dtype), spec_b, epilogue)
        return tuple(gradients)

    @staticmethod
    def jvp(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, _op: None, ta: Any, tb: Any, _tc: None, tbias: Any, tresidual: Any, _e: None
    ) -> Any:
        """The tangent of the result from the tangents of the operands."""
        if not ctx.differentiable:
            return None
        with forward_gradients(True):  # as in Gemm.jvp
            op, a, b, _c, bias = primals(ctx)
            return _tangent(ctx, op, a, b, bias, ta, tb, tbias, tresidual)


def _tangent(ctx, op, a, b, bias, ta, tb, tbias, tresidual):
    epilogue, dims = ctx.epilogue, ctx.dims
    shape, dtype = ctx.output
    wide = accumulator(a.dtype)
    factors = epilogue.with_precision(op.grad_operands(a, b, epilogue.precision)[2])
    tangent = a.new_zeros(shape, dtype=wide)
    if ta is not None:
        tangent = tangent + _product(op, ta.to(b.dtype), b, factors, wide)
    if tb is not None:
        tangent = tangent + _product(op, a, tb.to(a.dtype), factors, wide)
    if tbias is not None:
        tangent = tangent + _bias_rows(op, tbias, dims, epilogue, shape[0]).to(wide)
    if epilogue.activation is not None:
        z = pre_activation(op, epilogue, a, b, None, bias)
        tangent = fused_backward.composed(tangent, z, epilogue.activation)
    if tresidual is not None:
        tangent = tangent + tresidual.to(wide)
    if tbias is not None or tresidual is not None:
        tangent = _in_groups(tangent, op.constants[0], dims)
    return tangent.to(dtype)
