"""Products of two Int4Tensors.

    tcgemm.mm --> autograd --> an operator --> __torch_dispatch__ --> _int4_mm of the bytes

_int4_mm computes scaled_mm, so all options of the products work: bias, activation, residual, c,
scales, zero points, amax, out. c, bias and residual have gradients as for int8 operands.
"""

from __future__ import annotations

from typing import Any

import torch

from tcgemm.integers.int4 import Int4Tensor
from tcgemm.ops.arguments import refusal
from tcgemm.ops.epilogue import DESCRIBED
from tcgemm.ops.operands import register_products
from tcgemm.ops.operators import Operator, Scaled

_OPS = torch.ops.tcgemm


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


def _types(a: Int4Tensor, b: Int4Tensor) -> str:
    return ",".join("s4" if operand.signed else "u4" for operand in (a, b))


def _check(op: Operator, a: Any, b: Any, others: dict[str, Any]) -> None:
    _check_operands(op.name, op.operand_names, a, b)
    _check_others(op.name, others)
    if not op.takes(a, b, others["bias"]):
        raise RuntimeError(
            f"tcgemm.{op.name}: operands of shapes {tuple(a.shape)} and {tuple(b.shape)}, or the "
            "bias, do not have the dimensions that it takes; tcgemm.matmul takes vectors and "
            "batches."
        )


def _multiply(
    op: Operator,
    call: Scaled,
    out: Any,
    a: Int4Tensor,
    b: Int4Tensor,
    c: Any,
    bias: Any,
    residual: Any,
    epilogue: Any,
) -> Any:
    first, second = op.operand_names
    _check_bytes(op.name, first, a, -1, "M")
    _check_bytes(op.name, second, b, -2, "N")
    scale_a, scale_b, *others = call.constants
    tensors = (a.bytes, b.bytes, scale_a, scale_b, c, bias, residual, *others)
    keywords = call.keywords(epilogue) | {"types": _types(a, b)}
    operator = _OPS._int4_mm_amax if call.amax else _OPS._int4_mm
    try:
        if out is not None:
            return operator.out(*tensors, **keywords, out=out)
        return operator.default(*tensors, **keywords)
    except RuntimeError as error:
        raise (refusal(op.name, error, epilogue) or error) from None


def _describe(name: str, a: Any, b: Any, *others: Any, **options: Any) -> Any:
    """explain or check_layout, of matrices or batches of them."""
    _check_operands(name, ("a", "b"), a, b)
    _check_others(name, dict(zip(DESCRIBED, others, strict=False)))
    _check_bytes(name, "a", a, -1, "M")
    _check_bytes(name, "b", b, -2, "N")
    op = getattr(_OPS, name).default
    return op(a.bytes, b.bytes, *others, **options, types=_types(a, b))


register_products(Int4Tensor, _check, _multiply, _describe)
