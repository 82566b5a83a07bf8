"""The sharding rules of quantize and quantized_linear for DTensor.

quantize: Shard(dim) of dimensions that no group of elements with one scale crosses. With one given
scale for a whole tensor, Shard of any dimension, and amax is Partial("max").

quantized_linear:

    out              x                     weight              weight_scale
    Replicate        Replicate             Replicate           Replicate
    Shard(rows)      Shard(rows)           Replicate           Replicate    "row", "128x128"
    Shard(features)  Replicate             Shard(0)            Shard(0)     "row"
    Shard(features)  Replicate             Shard(0)            Replicate    "tensor", given

A bias and a residual are sharded as the result, where they have the dimension. k is never sharded:
a row of x, or all of x, has one scale.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.distributed.tensor import Partial, Replicate, Shard

from tcgemm.ops._torch_private import register_sharding
from tcgemm.ops.sharding import Rule, addend

_OPS = torch.ops.tcgemm
_R = Replicate()


def _quantize(given: int, x: Any, *others: Any) -> list[Rule]:
    """quantize(x, dtype, granularity), or with 1 given scale (x, scale, dtype, granularity)"""
    options = others[given:]
    granularity, rest = (*options, "tensor")[1], [None] * len(options)
    crossed = {"row": 1, "1x128": 1, "128x128": 2}.get(granularity, x.ndim)
    whole = [_R, *(Shard(dim) for dim in range(x.ndim - crossed))]
    rules: list[Rule] = [([spec, spec], [spec] * (1 + given) + rest) for spec in whole]
    if given and granularity == "tensor":
        dims = [Shard(dim) for dim in range(x.ndim)]
        rules += [([spec, Partial("max")], [spec, _R, *rest]) for spec in dims]
    return rules


def _quantized_linear(
    x: Any,
    weight: Any,
    weight_scale: Any = None,
    bias: Any = None,
    residual: Any = None,
    *,
    granularity: str,
    **kwargs: Any,
) -> list[Rule]:
    names = [None] * (len(kwargs) + 1)
    n = x.ndim - 1

    def rule(out: Any, of_x: Any, of_weight: Any, of_scale: Any, dim: int | None) -> Rule:
        addends = [addend(tensor, dim, x.ndim) for tensor in (bias, residual)]
        scale = None if weight_scale is None else of_scale
        return [out], [of_x, of_weight, scale, *addends, *names]

    rules = [rule(_R, _R, _R, _R, None)]
    if granularity != "tensor":
        rules += [rule(Shard(dim), Shard(dim), _R, _R, dim) for dim in range(n)]
    if granularity == "row":
        rules.append(rule(Shard(n), _R, Shard(0), Shard(0), n))
    elif granularity == "tensor" and weight_scale is not None:
        rules.append(rule(Shard(n), _R, Shard(0), _R, n))
    return rules


register_sharding(
    _OPS.quantized_linear.default,
    _quantized_linear,
    ("dtype", "granularity", "activation", "out_dtype", "precision"),
)
register_sharding(_OPS.quantize.default, functools.partial(_quantize, 0), ())
register_sharding(_OPS.quantize.scaled, functools.partial(_quantize, 1), ())
