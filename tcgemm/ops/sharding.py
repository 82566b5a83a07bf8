"""The sharding rules of the products for DTensor, as tensor parallelism needs them.

    out             a @ b                       addends
    Replicate       Replicate @ Replicate       Replicate
    Shard(batch)    Shard(batch) @ Shard(batch)
    Shard(m)        Shard(m) @ Replicate        Shard where they have the dimension, else Replicate
    Shard(n)        Replicate @ Shard(n)
    Partial         Shard(k) @ Shard(k)         Partial: each rank has a part of the sum

A sum over ranks comes before the activation, so with one there is no Partial. With amax=True there
is none either, and amax is Partial("max").

A scale or a zero point of one element is Replicate; one of rows (columns) is sharded as the rows of
a (columns of b). Blocks of 128 rows are not divided, and blocks of 128 along k forbid Partial. A
sparse or prepared operand is Replicate, and the other one may be sharded along its rows or columns.

What no rule allows is gathered first, as DTensor does for torch's operators. dtensor.py imports
this module when torch.distributed.tensor is imported. sharding.py in each folder of
operands has the rules of the other operators.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch.distributed.tensor import Partial, Replicate, Shard

from tcgemm.ops._torch_private import register_sharding
from tcgemm.ops.epilogue import ADDENDS, Epilogue
from tcgemm.ops.operators import ALL, Operator

Rule = tuple[list[Any], list[Any]]  # the placements of the results, and of the arguments

_SUMMED = (None, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32)
_R = Replicate()
_OPERAND = {"scale_a": "a", "zero_a": "a", "scale_b": "b", "zero_b": "b"}
_FORMS = {"a": ("sparse_a",), "b": ("terms_b", "sparse_b")}  # beside an operand, not divided


def _dimensions(
    op: Operator, a: Any, b: Any
) -> tuple[list[tuple[int | None, int | None]], tuple[int, int]]:
    """For each dimension of the result, the dimensions of a and of b that it comes from, or None;
    and the dimensions of k."""
    a_rows, b_columns = a.ndim > 1, b.ndim > 1
    k = (a.ndim - 1, 1 if op.weight else max(b.ndim - 2, 0))
    if op.weight:
        return [*((i, None) for i in range(a.ndim - 1)), (None, 0)], k
    batch = max(a.ndim - 2, b.ndim - 2, 0)
    dims: list[tuple[int | None, int | None]] = []
    for i in range(batch):
        dim_a, dim_b = i - batch + a.ndim - 2, i - batch + b.ndim - 2
        dims.append(
            (
                dim_a if a_rows and dim_a >= 0 and a.shape[dim_a] > 1 else None,
                dim_b if b_columns and dim_b >= 0 and b.shape[dim_b] > 1 else None,
            )
        )
    if a_rows:
        dims.append((a.ndim - 2, None))
    if b_columns:
        dims.append((None, b.ndim - 1))
    return dims, k


def addend(tensor: Any, dim: int | None, ndim: int) -> Shard | Replicate | None:
    """The placement of an addend, if there is one, where dimension `dim` of the result is sharded,
    or none is."""
    if tensor is None or dim is None:
        return None if tensor is None else _R
    own = dim - ndim + tensor.ndim
    return Shard(own) if own >= 0 and tensor.shape[own] > 1 else Replicate()


def _divided(spec: Any, operand: Any, dim: int) -> Any:
    """The placement of a scale where dimension `dim` of its operand is sharded, or None."""
    own = dim - operand.ndim + spec.ndim
    if math.prod(spec.shape) == 1 or own < 0 or spec.shape[own] == 1 < operand.shape[dim]:
        return _R
    return Shard(own) if spec.shape[own] == operand.shape[dim] else None


class _Product:
    """The rules of one call."""

    def __init__(self, op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.op, self.kwargs = op, kwargs
        self.given = dict(zip(op.positional, args, strict=False))

    def rules(self) -> list[Rule]:
        dims, (k_of_a, k_of_b) = _dimensions(self.op, self.given["a"], self.given["b"])
        results = 1 + self.op.amax
        rules = [self.rule([_R] * results, {}, lambda _: _R)]
        for dim, (of_a, of_b) in enumerate(dims):
            addends = functools.partial(addend, dim=dim, ndim=len(dims))
            outs = [Shard(dim), Partial("max")][:results]
            rules.append(self.rule(outs, {"a": of_a, "b": of_b}, addends))
        if self.sums():
            k = {"a": k_of_a, "b": k_of_b}
            rules.append(self.rule([Partial()], k, lambda _: Partial()))
        return [rule for rule in rules if rule is not None]

    def rule(self, outs: list[Any], dims: Mapping[str, int | None], addends: Any) -> Rule | None:
        """The rule whose operands are sharded along `dims`, or None if one cannot be divided."""
        inputs: list[Any] = []
        for name, spec in self.given.items():
            side = _OPERAND.get(name, name)
            dim = dims.get(side)
            if spec is None:
                inputs.append(None)
            elif name in ADDENDS:
                inputs.append(addends(spec))
            elif dim is None:
                inputs.append(_R)
            elif name in _OPERAND:
                inputs.append(_divided(spec, self.given[side], dim))
                if inputs[-1] is None:
                    return None
            elif any(self.given.get(form) is not None for form in _FORMS[name]):
                return None
            else:
                inputs.append(Shard(dim))
        return outs, [*inputs, *[None] * len(self.kwargs)]

    def sums(self) -> bool:
        """True if the result is the sum of the results of parts of k."""
        if self.op.amax or self.kwargs.get("activation") is not None:
            return False
        return self.kwargs.get("out_dtype") in _SUMMED


def rules_of(op: Operator, *args: Any, **kwargs: Any) -> list[Rule]:
    """The rules of a call of `op` with these arguments, of which tensors have placements."""
    return _Product(op, args, kwargs).rules()


for _op in ALL:
    register_sharding(_op.default, functools.partial(rules_of, _op), Epilogue._fields)
# The terms of a weight are in the order of a kernel.
register_sharding(torch.ops.tcgemm.prepare.default, lambda w: [([_R], [_R])], ())
