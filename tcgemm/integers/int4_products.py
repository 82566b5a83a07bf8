"""Products of two Int4Tensors.

    tcgemm.mm --> autograd --> an operator --> __torch_dispatch__ --> _int4_mm of the bytes

_int4_mm computes scaled_mm, so all options of the products work: bias, activation, residual, c,
scales, zero points, amax, out. c, bias and residual have gradients as for int8 operands.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from tcgemm.integers.int4 import Int4Tensor
from tcgemm.ops.arguments import refusal
from tcgemm.ops.epilogue import ADDENDS, NO_SCALES, Scales
from tcgemm.ops.operators import ADDMM, ALL, LINEAR, MM, Operator, Scaled

_OPS = torch.ops.tcgemm
_MATRICES = (MM, ADDMM)  # neither operand has a batch
_OTHERS = (*ADDENDS, *Scales._fields, "out")  # no Int4Tensor can be one of these


def _check_operands(name: str, names: tuple[str, str], a: Any, b: Any) -> None:
    """Raises RuntimeError unless both operands are Int4Tensors."""
    for argument, tensor, other in ((names[0], a, names[1]), (names[1], b, names[0])):
        if isinstance(tensor, Int4Tensor):
            continue
        raise RuntimeError(
            f"tcgemm.{name}: {argument} is {tensor.dtype}, but {other} is an Int4Tensor, and both "
            f"must be; pass Int4Tensor.from_int8 of {argument}, or {other}.to_int8()."
        )


def _check_others(name: str, tensors: dict[str, Any]) -> None:
    for argument, tensor in tensors.items():
        if isinstance(tensor, Int4Tensor):
            raise RuntimeError(
                f"tcgemm.{name}: {argument} is an Int4Tensor, but only the operands of the product "
                f"can be; pass {argument}.to_int8() in a dtype that {argument} can have."
            )


def _check_bytes(name: str, argument: str, tensor: Int4Tensor, along: int, other: str) -> None:
    """Raises RuntimeError unless the elements of a byte follow each other along K."""
    if tensor.byte_dim == along:
        return
    raise RuntimeError(
        f"tcgemm.{name}: {argument}, as a matrix of shape {tuple(tensor.shape[-2:])}, shares "
        f"bytes along {other}, but the two elements of a byte must follow each other along K; pack "
        f"the transpose: Int4Tensor.from_int8({argument}.to_int8().mT.contiguous()).mT."
    )


def _fits(op: Operator, a: Any, b: Any, bias: Any) -> bool:
    """True if this function takes the shapes. _int4_mm checks only what all functions share."""
    if op is LINEAR:
        return b.dim() == 2 and (bias is None or bias.dim() == 1)
    if op in _MATRICES:
        return a.dim() == b.dim() == 2 and (bias is None or bias.dim() <= 2)
    if op.batched:
        return a.dim() == b.dim() == 3 and a.shape[0] == b.shape[0]
    return True


def _matrices(op: Operator, a: Any, b: Any) -> tuple[Any, Any]:
    return op.matrix_a(a, a.dim()), op.matrix_b(b, b.dim())


def _types(a: Int4Tensor, b: Int4Tensor) -> str:
    return ",".join("s4" if operand.signed else "u4" for operand in (a, b))


def _gemm(op: Operator, *args: Any, out: Any = None, **kwargs: Any) -> Any:
    call, (a, b, c, bias, residual, epilogue) = op.bind(args, kwargs)
    scales = call.constants if isinstance(call, Scaled) else NO_SCALES
    _check_operands(op.name, op.operand_names, a, b)
    _check_others(op.name, dict(zip(_OTHERS, (c, bias, residual, *scales, out), strict=True)))
    if not _fits(op, a, b, bias):
        raise RuntimeError(
            f"tcgemm.{op.name}: operands of shapes {tuple(a.shape)} and {tuple(b.shape)}, or the "
            "bias, do not have the dimensions that it takes; tcgemm.matmul takes vectors and "
            "batches."
        )
    dims = a.dim(), b.dim()
    a, b = _matrices(op, a, b)
    first, second = op.operand_names
    _check_bytes(op.name, first, a, -1, "M")
    _check_bytes(op.name, second, b, -2, "N")
    if residual is not None and residual.dim() > 0:
        residual = op.lift(residual, *dims)
    scale_a, scale_b, *others = scales
    tensors = (a.bytes, b.bytes, scale_a, scale_b, c, bias, residual, *others)
    keywords = epilogue.keywords() | {"types": _types(a, b), "kernel_name": call.kernel_name}
    try:
        if out is not None:
            return _OPS._int4_mm.out(*tensors, **keywords, out=op.lift(out, *dims))
        if not call.amax:
            return op.lower(_OPS._int4_mm.default(*tensors, **keywords), *dims)
        result, amax = _OPS._int4_mm_amax.default(*tensors, **keywords)
        return op.lower(result, *dims), amax
    except RuntimeError as error:
        raise (refusal(op.name, error, epilogue) or error) from None


for _op in ALL:
    Int4Tensor.TABLE[_op.default] = functools.partial(_gemm, _op)
    if _op.out is not None:
        Int4Tensor.TABLE[_op.out] = functools.partial(_gemm, _op)


# The tensors of explain and check_layout after a and b, in the order of their schema.
_DESCRIBED = ("bias", "residual", "scale_a", "scale_b", "c", "zero_a", "zero_b", "scale_out")


def _describe(name: str, a: Any, b: Any, *others: Any, **options: Any) -> Any:
    """explain or check_layout, of matrices or batches of them."""
    _check_operands(name, ("a", "b"), a, b)
    _check_others(name, dict(zip(_DESCRIBED, others, strict=False)))
    _check_bytes(name, "a", a, -1, "M")
    _check_bytes(name, "b", b, -2, "N")
    op = getattr(_OPS, name).default
    return op(a.bytes, b.bytes, *others, **options, types=_types(a, b))


for _name in ("explain", "check_layout"):
    _describes = functools.partial(_describe, _name)
    Int4Tensor.TABLE[getattr(_OPS, _name).default] = _describes
