"""to_dense24 and mask24, the operators between dense and sparse matrices, and their derivatives.

    to_dense24(w)       the dense matrix of a SparseTensor24
    mask24(dense, w)    the elements of a dense matrix at the positions of w, as a SparseTensor24

Each is the derivative of the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tcgemm.operands.sparse.operators import converted
from tcgemm.operands.sparse.positions import decompress, gather_values
from tcgemm.operands.sparse.tensor import SparseTensor24, implements, replaces
from tcgemm.ops._torch_private import (
    SingleLevelFunction,
    below_autograd,
    enable_single_level_autograd_function,
)

_OPS = torch.ops.tcgemm
_library = torch.library.Library("tcgemm", "FRAGMENT")  # owns the registrations
_library.define("to_dense24(Tensor w) -> Tensor")
_library.define("mask24(Tensor dense, Tensor w, bool transpose=True) -> Tensor")


@implements(_OPS.to_dense24.default)
def _to_dense(w):
    return decompress(w)


@implements(_OPS.mask24.default)
def _mask(dense, w, transpose=True):
    if dense.shape != w.shape:
        raise RuntimeError(
            f"tcgemm.SparseTensor24: a tensor of shape {tuple(dense.shape)} cannot be masked by "
            f"one of shape {tuple(w.shape)}; pass tensors of one shape."
        )
    if isinstance(dense, SparseTensor24):
        dense = decompress(dense)
    if dense.dtype is not w.dtype:
        w = converted(w, dense.dtype)
    inner = w.tensors(transpose=transpose)
    inner["values"] = gather_values(dense, w, False)
    if "transposed_values" in inner:
        inner["transposed_values"] = gather_values(dense, w, True)
    return w.like(inner)


def to_dense(
    w: SparseTensor24, dtype: torch.dtype | None = None, *, masked_grad: bool | None = None
) -> Tensor:
    """torch.Tensor.to_dense of a SparseTensor24."""
    dense = _OPS.to_dense24.default(w)
    return dense if dtype is None else dense.to(dtype)


replaces(torch.Tensor.to_dense)(to_dense)


class _ToDense(SingleLevelFunction):
    @staticmethod
    def forward(ctx, w):
        ctx.save_for_backward(w)
        with below_autograd():
            return _OPS.to_dense24.default(w)

    @staticmethod
    def backward(ctx, *grad_outputs):
        (gradient,), (w,) = grad_outputs, ctx.saved_tensors
        return gradient if w.dense_gradient else _OPS.mask24.default(gradient, w, False)


class _Mask(SingleLevelFunction):
    @staticmethod
    def forward(ctx, dense, w, transpose=True):
        ctx.save_for_backward(w)
        with below_autograd():
            return _OPS.mask24.default(dense, w, transpose)

    @staticmethod
    def backward(ctx, *grad_outputs):
        (gradient,), (w,) = grad_outputs, ctx.saved_tensors
        if not isinstance(gradient, SparseTensor24):
            if w.dense_gradient:
                return gradient, None, None
            gradient = _OPS.mask24.default(gradient, w, False)
        return _OPS.to_dense24.default(gradient), None, None


def _autograd_kernel(function: Any) -> Callable[..., Any]:
    def kernel(*arguments: Any) -> Any:
        with enable_single_level_autograd_function():
            return function.apply(*arguments)

    return kernel


def _refuse(*arguments: Any) -> None:
    raise RuntimeError(
        "tcgemm.SparseTensor24: mask24 and to_dense24 take a SparseTensor24, but came "
        f"{type(arguments[-1]).__name__}; make one with tcgemm.compress24."
    )


for _name, _function in (("to_dense24", _ToDense), ("mask24", _Mask)):
    _library.impl(_name, _refuse, "CompositeExplicitAutograd")
    _library.impl(_name, _autograd_kernel(_function), "Autograd")
