"""The sharding rules of products with scales, of quantize, and of the 2:4 conversions.

    scaled_mm        as the products of sharding.py. A scale or a zero point of one element is
                     Replicate; one of rows (columns) is sharded as the rows of a (columns of b).
                     Blocks of 128 rows are not divided, and blocks of 128 along k forbid Partial.
    quantize         Shard(dim) of dimensions that no group crosses; with one given scale any
                     dimension, and amax is Partial("max")
    2:4              Shard(rows) of a matrix: each row has values and metadata of its own
    prepare, tile24  Replicate: their results are in the order of a kernel. So is compress24, whose
                     third result has the place of the first group that does not fit.

A sparse or prepared operand of a product is Replicate, and the other one may be sharded along its
rows or columns. What no rule allows is gathered first, as DTensor does for torch's operators.
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
from tcgemm.ops.operators import SCALED, SCALED_AMAX, Operator
from tcgemm.ops.sharding import SUMMED, addend, dimensions

_OPS = torch.ops.tcgemm
_R = Replicate()
_OPERAND = {"scale_a": "a", "zero_a": "a", "scale_b": "b", "zero_b": "b"}
_FORMS = {"a": ("sparse_a",), "b": ("prepared_b", "sparse_b")}  # beside an operand, not divided

Rule = tuple[list[Any], list[Any]]  # the placements of the results, and of the arguments


def _divided(spec: Any, operand: Any, dim: int) -> Any:
    """The placement of a scale where dimension `dim` of its operand is sharded, or None."""
    own = dim - operand.ndim + spec.ndim
    if math.prod(spec.shape) == 1 or own < 0 or spec.shape[own] == 1 < operand.shape[dim]:
        return _R
    return Shard(own) if spec.shape[own] == operand.shape[dim] else None


class _Product:
    """The rules of one call of scaled_mm or scaled_mm_amax."""

    def __init__(self, op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.op, self.kwargs = op, kwargs
        self.given = dict(zip(op.positional, args, strict=False))

    def rules(self) -> list[Rule]:
        dims, (k_of_a, k_of_b) = dimensions(self.op, self.given["a"], self.given["b"])
        results = 1 + self.op.amax
        rules = [self.rule([_R] * results, {}, lambda _: _R)]
        for dim, (of_a, of_b) in enumerate(dims):
            addends = functools.partial(addend, dim=dim, ndim=len(dims))
            outs = [Shard(dim), Partial("max")][:results]
            rules.append(self.rule(outs, {"a": of_a, "b": of_b}, addends))
        if self.sums():
            k = {"a": k_of_a, "b": k_of_b}
            rules.append(self.rule([Partial()], k, lambda _: Partial()))
        return [each for each in rules if each is not None]

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
        """Is the result the sum of those of parts of k?"""
        if self.op.amax or self.kwargs.get("activation") is not None:
            return False
        return self.kwargs.get("out_dtype") in SUMMED


def _scaled(op: Operator, *args: Any, **kwargs: Any) -> list[Rule]:
    return _Product(op, args, kwargs).rules()


def _whole_dims(ndim: int, granularity: str) -> range:
    """The dimensions of a tensor that no group of elements with one scale crosses."""
    crossed = {"tensor": ndim, "row": 1, "1x128": 1, "128x128": 2}.get(granularity, ndim)
    return range(ndim - crossed)


def _quantize(x: Any, *options: Any) -> list[Rule]:
    """quantize(x, dtype, granularity)"""
    granularity, rest = (*options, "tensor")[1], [None] * len(options)
    whole = [Shard(dim) for dim in _whole_dims(x.ndim, granularity)]
    return [([each, each], [each, *rest]) for each in (_R, *whole)]


def _quantize_given(x: Any, scale: Any, *options: Any) -> list[Rule]:
    """quantize.scaled(x, scale, dtype, granularity)"""
    granularity, rest = (*options, "tensor")[1], [None] * len(options)
    whole = [Shard(dim) for dim in _whole_dims(x.ndim, granularity)]
    rules: list[Rule] = [([each, each], [each, each, *rest]) for each in (_R, *whole)]
    if granularity == "tensor":
        dims = [Shard(dim) for dim in range(x.ndim)]
        rules += [([each, Partial("max")], [each, _R, *rest]) for each in dims]
    return rules


def _rows(tensors: int, results: int, divides: Any, *args: Any, **kwargs: Any) -> list[Rule]:
    """Shard(0) of all tensors and of the result, if divides(args) is true."""
    rest = [None] * (len(args) - tensors + len(kwargs))
    rules = [([_R] * results, [_R] * tensors + rest)]
    if divides(args):
        rules.append(([Shard(0)] * results, [Shard(0)] * tensors + rest))
    return rules


def _never(_args: Any) -> bool:
    return False


def _always(_args: Any) -> bool:
    return True


def _each_row(args: tuple[Any, ...]) -> bool:
    """prune24(w, pattern, transposable): a transposable pattern is that of blocks of rows."""
    return not (len(args) > 2 and args[2])


for _op in (SCALED, SCALED_AMAX):
    register_sharding(_op.default, functools.partial(_scaled, _op), Epilogue._fields)
register_sharding(_OPS.quantize.default, _quantize, ())
register_sharding(_OPS.quantize.scaled, _quantize_given, ())
for _packet, _tensors, _results, _divides in (
    (_OPS.compress24, 1, 3, _never),
    (_OPS.prepare, 1, 1, _never),
    (_OPS.tile24, 1, 1, _never),
    (_OPS.gather24, 2, 1, _always),
    (_OPS.decompress24, 2, 1, _always),
    (_OPS.prune24, 1, 1, _each_row),
):
    register_sharding(_packet.default, functools.partial(_rows, _tensors, _results, _divides), ())
