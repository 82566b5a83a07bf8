"""Grouped products: grouped_mm, with its fakes, derivatives and rules.

    grouped_mm --> types -> out= or autocast -> precision -> calls.call --> the operator

The ends of the groups, offs, belong to the Operator of one call, as scales do. No step but the
kernel reads their values; csrc/ops/check/check_grouped.cpp checks them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch.overrides import (
    handle_torch_function,
    has_torch_function,
    has_torch_function_variadic,
)

from tcgemm.ops import autograd, calls, dispatch, fake, flops, invariance, negative, vmap
from tcgemm.ops._torch_private import any_autocast_enabled, check
from tcgemm.ops.arguments import check_flag, check_words, number
from tcgemm.ops.epilogue import Epilogue, shared
from tcgemm.ops.grouped_autograd import GroupedGemm
from tcgemm.ops.operators import Operands, Operator, Tensors
from tcgemm.typing import Activation, Float32Precision

_PRODUCT = Operator("grouped_mm")
_compiling = torch.compiler.is_compiling


class Grouped(Operator):
    """grouped_mm for one call: offs is part of it, and whether it adds to out."""

    positional: tuple[str, ...] = ("a", "b", "offs", "bias", "residual")
    constant_names: tuple[str, ...] = ("offs",)
    constants: tuple[Tensor | None, ...]
    accumulate: bool

    def __init__(self, offs: Tensor | None = None, accumulate: bool = False) -> None:
        self.take_overloads(_PRODUCT)
        self.constants = (offs,)
        self.accumulate = accumulate

    def tensors(self, a: Any, b: Any, c: Any, bias: Any, residual: Any) -> Tensors:
        return a, b, *self.constants, bias, residual

    def keywords(self, epilogue: Epilogue) -> dict[str, Any]:
        keywords = epilogue.keywords()
        if self.accumulate:
            keywords["accumulate"] = True
        return keywords

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Self, Operands]:
        arguments = self.arguments(args, kwargs)
        call = type(self)(arguments.get("offs"), bool(arguments.get("accumulate")))
        return call, self.operands(arguments)


def _result_shape(_op, arguments):
    a, b, offs = arguments["a"], arguments["b"], arguments.get("offs")

    def agree(what, x, y):
        check(x == y, lambda: f"tcgemm.grouped_mm: {what} must agree, but they are {x} and {y}.")

    agree("K of a and of b", a.shape[-1], b.shape[-2])
    if a.dim() == b.dim() == 3:
        agree("the groups of a and of b", a.shape[0], b.shape[0])
        return a.shape[0], a.shape[1], b.shape[2]
    if a.dim() == b.dim():
        return offs.shape[0], a.shape[0], b.shape[1]
    batch = a if a.dim() == 3 else b
    agree(f"the groups of {'a' if batch is a else 'b'} and of offs", batch.shape[0], offs.shape[0])
    return a.shape[-2], b.shape[-1]


def _flops(_op, arguments, _out):
    """2 * K for each element of the result in a group, as if each row, column or k were in one."""
    a, b = arguments["a"], arguments["b"]
    rows = a.shape[1:] if a.dim() > b.dim() else a.shape
    return 2 * math.prod(rows) * b.shape[-1]


OPERATOR: Grouped = Grouped()
fake.register(OPERATOR, _result_shape, function="tcgemm.grouped_mm")
autograd.register(OPERATOR, GroupedGemm)
autograd.register_constant("grouped_mm", "with_z")
vmap.register_one_by_one("grouped_mm")
vmap.register_one_by_one("grouped_mm", "with_z")
negative.register(OPERATOR)
flops.count(OPERATOR, _flops)


def grouped_mm(
    a: Tensor,
    b: Tensor,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | str | None = None,
    activation: Activation | None = None,
    residual: Tensor | None = None,
    alpha: float = 1.0,
    precision: Float32Precision | None = None,
    batch_invariant: bool = False,
    out: Tensor | None = None,
    accumulate: bool = False,
) -> Tensor:
    """Multiplies groups of rows, columns or k, each with its own matrix: products of experts.

    Example:
        >>> x = torch.randn(24, 64).bfloat16()  # tokens, sorted by their expert
        >>> w = torch.randn(3, 32, 64).bfloat16()  # a weight (N, K) of each of three experts
        >>> ends = torch.tensor([8, 8, 24], dtype=torch.int32)  # the second expert has no token
        >>> tcgemm.grouped_mm(x, w.mT, offs=ends, activation="silu").shape
        torch.Size([24, 32])
        >>> tcgemm.grouped_mm(x.t(), x, offs=ends).shape  # a product for each group
        torch.Size([3, 64, 64])

    Group g has the indices from offs[g - 1] (0 for the first) up to offs[g] of the dimension T that
    the groups divide::

        a            b            result       bias      the groups divide
        (T, K)       (G, K, N)    (T, N)       (G, N)    the rows of a and of the result
        (G, M, K)    (K, T)       (M, T)       (T,)      the columns of b and of the result
        (M, T)       (T, N)       (G, M, N)    (G, N)    k: out[g] = a[:, group] @ b[group]
        (G, M, K)    (G, K, N)    (G, M, N)    (G, N)    nothing: a batch, without offs

    Rows (columns) of no group are zero in the result, without bias, activation or residual, and
    their gradients are zero. Neither their values nor those of the gradient there reach anything
    else, so that they may be NaN. An empty group of k has a result of zeros.

    Arguments:
        a (Tensor): a matrix or a batch, as in the table. Groups may have any length, also 0, and
            all strides and sizes work.
        b (Tensor): a matrix or a batch, of the dtype of a.
        offs (Tensor): (G,), int32 or int64, with any stride, on the device of a: the end of each
            group. The ends ascend, and the last is at most T. It is required where a or b is a
            matrix, and refused where both are batches. On the CPU wrong values are refused; on a
            GPU they are if the environment has TCGEMM_CHECK=1, which waits for the GPU.
        bias (Tensor): as in the table, one row for each group. It is added before the activation.
        out_dtype (torch.dtype or str): the dtype of the result, as in tcgemm.mm.
        activation (str): one of tcgemm.typing.Activation, or None.
        residual (Tensor): is added after the activation. It has the shape of the result.
        alpha (float): multiplies the product.
        precision (str): for float32 operands, as in tcgemm.mm.
        batch_invariant (bool): as in tcgemm.mm.
        out (Tensor): receives the result, zeros too. It must have the shape, the dtype and the
            device of the result, and share no memory with an input. No input may require a
            gradient, and autocast has no effect.
        accumulate (bool): True adds to out, which is required then: out + alpha * (a @ b), in the
            accumulator's dtype before one rounding. The dtype of out is that of the result, so a
            float32 out takes products of 16-bit operands. Rows of no group and empty groups stay
            as they are. There can be no bias, activation or residual.

    Returns:
        A new contiguous tensor with a storage of its own size, or out.

    Operands are float16, bfloat16, float32 or float64, both of one dtype. bias and residual may
    each be float16, bfloat16 or float32; also float64 beside float64. The bits of a row are those
    of tcgemm.mm of its group on the CPU. Gradients work as with tcgemm.mm, of any order; offs has
    none. torch.vmap computes one example after the other.

    Raises:
        TypeError: an operand is no tensor, or an option has a wrong type.
        RuntimeError: a shape, dtype, device, option or value of offs is not supported. The message
            names the tensor, what was expected, what came, and a remedy.
    """
    given = (a, b, offs, bias, residual, out)
    if has_torch_function_variadic(*given) and has_torch_function(dispatch.tensors_of(*given)):
        return handle_torch_function(
            grouped_mm,
            dispatch.tensors_of(*given),
            a,
            b,
            offs=offs,
            bias=bias,
            out_dtype=out_dtype,
            activation=activation,
            residual=residual,
            alpha=alpha,
            precision=precision,
            batch_invariant=batch_invariant,
            out=out,
            accumulate=accumulate,
        )
    if not dispatch.all_tensors(OPERATOR, *given):
        raise dispatch.no_tensor("grouped_mm", _named(given))
    if type(alpha) is not float:
        alpha = number("grouped_mm", "alpha", alpha)
    for name, value in (("accumulate", accumulate), ("batch_invariant", batch_invariant)):
        if type(value) is not bool:
            check_flag("grouped_mm", name, value)
    flag = bool(batch_invariant)
    options: tuple[Any, ...] = (activation, alpha, 1.0, out_dtype, None, precision, flag)
    epilogue = shared(Epilogue(*options))
    call = Grouped(offs, bool(accumulate))
    try:
        return _call(call, a, b, bias, residual, out, epilogue)
    except RuntimeError as error:
        clearer = dispatch.clearer_error(call, error, _named(given), epilogue)
        if clearer is None:
            raise
        raise clearer from None


def _named(tensors) -> dict[str, Any]:
    return dict(zip(("a", "b", "offs", "bias", "residual", "out"), tensors, strict=True))


def _call(call, a, b, bias, residual, out, epilogue):
    traced = _compiling()
    if out is not None:
        operands = (a, b, None, bias, residual, dispatch.resolved(a, epilogue))
        return dispatch.into(call, call, out, out, *operands)
    if traced or any_autocast_enabled():
        a, b, bias, residual = dispatch.autocast(a, b, bias, residual)
    epilogue = dispatch.resolved(a, epilogue)
    operands = (a, b, None, bias, residual)
    if traced or call.accumulate:  # without out the operator refuses the latter
        epilogue = invariance.kept(epilogue)
        check_words(call.name, epilogue)
        return call.run(*operands, epilogue)
    return calls.call(call, *operands, epilogue)
