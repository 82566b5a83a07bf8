"""Batching rules for torch.vmap: one product whose batch dimensions broadcast, instead of a loop.

    a [B, 1, ..., M, K] @ b [..., K, N]        the vmapped dimension is first, aligned by ones

If only a is vmapped, csrc/ops/product/batch.cpp merges its batch into the rows: one tall product.
Products with amax, with a vmapped scale_out or with a sparse operand run as a loop over the
examples. The terms of a Prepared b serve all examples; they are not used where b differs between
examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tcgemm.ops.epilogue import ADDENDS, Scales
from tcgemm.ops.operators import MATMUL, PLAIN, SCALED, SCALED_AMAX, WITH_Z, Scaled

Rule = Callable[..., Any]  # (info, in_dims, *args, **kwargs) -> (result, its vmapped dimension)


def _batch_first(tensor, dim):
    return tensor if dim is None else tensor.movedim(dim, 0)


def _align(tensor, batched, dims):
    """Inserts ones behind the vmapped dimension, so that `dims` dimensions follow it."""
    missing = dims + 1 - tensor.dim()
    if not batched or missing <= 0:
        return tensor
    return tensor.reshape(tensor.shape[0], *[1] * missing, *tensor.shape[1:])


def _align_constant(tensor, batch, dims):
    """_align for a scale or a zero point, which may be one element of any shape."""
    if tensor is None or batch is None:
        return tensor
    tensor = _batch_first(tensor, batch)
    if tensor.numel() == tensor.shape[0]:
        return tensor.reshape(-1, *[1] * dims)
    return _align(tensor, True, dims)


def _run(constants, others, a, b, c, *rest):
    if c is None and all(tensor is None for tensor in (*constants, *others.values())):
        return MATMUL.run(a, b, None, *rest)
    return Scaled(Scales(*constants), **others).run(a, b, c, *rest)


def _batching_rule(op):
    each = one_by_one(op.default)

    def rule(info, in_dims, *args, **kwargs):
        call, (a, b, *addends, epilogue) = op.bind(args, kwargs)
        batches, (batch_a, batch_b, *addend_batches, _epilogue) = op.bind(in_dims, {})
        one = op.constant_names and (batches.constants.scale_out is not None or call.sparse)
        if op.amax or one:
            return each(info, in_dims, *args, **kwargs)

        dims_a = a.dim() - (batch_a is not None)
        dims_b = b.dim() - (batch_b is not None)
        a = op.matrix_a(_batch_first(a, batch_a), dims_a)
        b = op.matrix_b(_batch_first(b, batch_b), dims_b)
        # Dimensions of one example's result, as a product of matrices.
        dims = max(a.dim() - (batch_a is not None), b.dim() - (batch_b is not None))
        a = _align(a, batch_a is not None, dims)
        b = _align(b, batch_b is not None, dims)
        if batch_a is None and batch_b is None:  # only an addend is vmapped
            a = a.expand(info.batch_size, *[1] * (dims - a.dim()), *a.shape)
        shown = dims - (dims_a == 1) - (dims_b == 1)
        lifted = []
        for name, addend, batch in zip(ADDENDS, addends, addend_batches, strict=True):
            if addend is not None and name == "bias":  # has the dimensions of the matrices
                addend = _align(_batch_first(addend, batch), batch is not None, dims)
            elif addend is not None:
                addend = _align(_batch_first(addend, batch), batch is not None, shown)
                addend = op.lift(addend, dims_a, dims_b) if addend.dim() > 0 else addend
            lifted.append(addend)
        constants = [
            _align_constant(constant, batch, dims)
            for constant, batch in zip(call.constants, batches.constants, strict=True)
        ]
        terms = call.terms_b if batch_b is batches.terms_b is None else None
        others = {"kernel_name": call.kernel_name, "terms_b": terms}
        out = _run(constants, others, a, b, *lifted, epilogue._replace(constant_b=False))
        return op.lower(out, dims_a, dims_b), 0

    return rule


def one_by_one(function: Callable[..., Any]) -> Rule:
    """The rule that calls the function once for each example and stacks the results."""

    def rule(info: Any, in_dims: Sequence[int | None], *args: Any, **kwargs: Any) -> Any:
        results = [
            function(
                *(
                    arg if dim is None else arg.select(dim, index)
                    for arg, dim in zip(args, in_dims, strict=True)
                ),
                **kwargs,
            )
            for index in range(info.batch_size)
        ]
        if isinstance(results[0], tuple):
            outs = tuple(torch.stack(parts) for parts in zip(*results, strict=True))
            return outs, (0,) * len(outs)
        return torch.stack(results), 0

    return rule


def joined_rows(function: Callable[..., Any]) -> Rule:
    """The rule of one product of the rows of all examples, if only the first operand is mapped
    over; else one_by_one."""
    each = one_by_one(function)

    def rule(info: Any, in_dims: Sequence[int | None], *args: Any, **kwargs: Any) -> Any:
        batch, *others = in_dims
        if batch is None or any(dim is not None for dim in others):
            return each(info, in_dims, *args, **kwargs)
        a, *rest = args
        return function(a.movedim(batch, 0), *rest, **kwargs), 0

    return rule


def register_one_by_one(name: str, overload: str = "default") -> None:
    """Gives an operator a batching rule that is a loop over the examples."""
    op = getattr(getattr(torch.ops.tcgemm, name), overload)
    torch.library.register_vmap(op, one_by_one(op))


for _op in (*PLAIN, SCALED, SCALED_AMAX):
    torch.library.register_vmap(f"tcgemm::{_op.name}", _batching_rule(_op))
register_one_by_one("prepare")
for _op in WITH_Z:
    register_one_by_one(_op.name, "with_z")
register_one_by_one("_product_backward")
register_one_by_one("_sum_rows")
register_one_by_one("_activation_backward")
