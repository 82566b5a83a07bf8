"""The checks of products with a SparseTensor24: dimensions, devices, dtypes and precisions.

The operators see the values of a SparseTensor24, which have another shape, so they cannot make
these checks. Each error names the operands as the called function names them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tcgemm import dtypes
from tcgemm.operands.sparse.tensor import SparseTensor24
from tcgemm.ops import fake
from tcgemm.ops.dtensor import is_dtensor
from tcgemm.ops.operators import ADDMM, LINEAR, MM, Operator

_MATRICES = (MM, ADDMM)  # neither operand has a batch
_MIXED = (dtypes.FP8, dtypes.INT8)  # the dtypes of a group may be mixed
_PRECISIONS = (None, "high", "medium")


def check_operands(
    op: Operator,
    a: Any,
    b: Any,
    others: Mapping[str, Tensor | None],
) -> None:
    """Raises RuntimeError unless the tensors fit each other and the function.

    `others` are the addends, scales, zero points and out by name.
    """
    first, second = op.operand_names
    w_name, w = (first, a) if isinstance(a, SparseTensor24) else (second, b)
    x_name, x = (second, b) if w is a else (first, a)
    device = w.values.device
    for name, tensor in ((x_name, x), *others.items()):
        if tensor is None:
            continue
        _check_layout(op, name, tensor)
        if tensor.device != device:
            fake.check_devices(f"tcgemm.{op.name}", {w_name: w.values, name: tensor})
    _check_shapes(op, a, b, others["bias"])
    if w.dtype is not x.dtype and not any(a.dtype in pair and b.dtype in pair for pair in _MIXED):
        raise RuntimeError(
            f"tcgemm.{op.name}: {second} is {b.dtype}, but {first} is {a.dtype}; both must have "
            "one dtype (the two of float8 may be mixed, and so may int8 and uint8): convert one of "
            "them with .to(...)."
        )


def _check_layout(op, name, tensor):
    if tensor.is_nested:
        raise RuntimeError(
            f"tcgemm.{op.name}: {name} is a nested tensor, but every operand must be a dense, "
            f"strided tensor or a SparseTensor24; pass {name}.to_padded_tensor(0.0), or one "
            f"product for each part of {name}.unbind()."
        )
    if tensor.layout is not torch.strided:
        raise RuntimeError(
            f"tcgemm.{op.name}: {name} has the layout {tensor.layout}, but every operand must be a "
            f"dense, strided tensor or a SparseTensor24; pass {name}.to_dense()."
        )


def _check_shapes(op, a, b, bias):
    if op is LINEAR:
        fits = a.dim() >= 1 and b.dim() == 2 and a.shape[-1] == b.shape[1]
    elif op in _MATRICES:
        fits = a.dim() == b.dim() == 2 and a.shape[1] == b.shape[0]
    else:
        fits = not op.batched and 0 not in (a.dim(), b.dim())
        fits = fits and a.shape[-1] == b.shape[-1 if b.dim() == 1 else -2]
    if not fits:
        raise RuntimeError(
            f"tcgemm.{op.name}: operands of shapes {tuple(a.shape)} and {tuple(b.shape)}, one of "
            "them a SparseTensor24, do not fit each other or the function; pass a dense operand "
            "with the same K, to matmul if it is a vector or has a batch."
        )
    if bias is None:
        return
    if op is LINEAR and bias.dim() != 1:
        raise RuntimeError(
            f"tcgemm.linear: bias must have shape ({b.shape[0]},), one number for each row of "
            f"weight, but has {tuple(bias.shape)}; pass anything that varies along other "
            "dimensions as residual."
        )
    if op in _MATRICES and bias.dim() > 2:
        raise RuntimeError(
            f"tcgemm.{op.name}: bias must have shape (N,), (1, N) or (M, 1), but has "
            f"{tuple(bias.shape)}; pass anything that varies along both as residual, or as c of "
            "tcgemm.addmm."
        )


def check_no_dtensor(name: str, tensors: tuple[Any, ...]) -> None:
    """Raises RuntimeError if one of the tensors beside a SparseTensor24 is a DTensor."""
    if any(map(is_dtensor, tensors)):
        raise RuntimeError(
            f"tcgemm.{name}: an operand is a SparseTensor24, but another tensor is a DTensor, "
            "which is not multiplied with it; pass to_local() of a DTensor that is sharded by "
            "rows, or make a tcgemm.nn.SparseLinear24 parallel with the styles of "
            "tcgemm.integrations.tensor_parallel."
        )


def check_float32(name: str, w: SparseTensor24, precision: str | None) -> None:
    """Raises RuntimeError if no kernel multiplies a float32 SparseTensor24 with this precision."""
    if precision not in (*_PRECISIONS, "highest"):
        raise RuntimeError(
            f'tcgemm.{name}: precision is "{precision}", but for a torch.float32 SparseTensor24 '
            'there are "high" (tf32, the default) and "medium" (bfloat16); pass one of these, or '
            "None."
        )
    if precision == "medium":
        return
    if w.pattern == "2:4":
        raise RuntimeError(
            f"tcgemm.{name}: a float32 SparseTensor24 of pattern '2:4' cannot be multiplied as "
            'tf32, which needs pattern 1:2; pass precision="medium" to multiply it as bfloat16, '
            "compress24(w.to_dense(), pattern='1:2', prune=True), or w.to_dense()."
        )
    if precision == "highest":
        raise RuntimeError(
            f"tcgemm.{name}: a float32 SparseTensor24 is multiplied as tf32, so there is no "
            'precision="highest"; pass "high" (the default here), "medium", or w.to_dense().'
        )
