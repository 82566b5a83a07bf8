"""The sharding rules of quantized_linear for DTensor.

    out              x                     weight              weight_scale
    Replicate        Replicate             Replicate           Replicate
    Shard(rows)      Shard(rows)           Replicate           Replicate    "row", "128x128"
    Shard(features)  Replicate             Shard(0)            Shard(0)     "row"
    Shard(features)  Replicate             Shard(0)            Replicate    "tensor", given

A bias and a residual are sharded as the result, where they have the dimension. k is never sharded:
a row of x, or all of x, has one scale.
"""

from __future__ import annotations

from typing import Any

from torch.distributed.tensor import Replicate, Shard

from tcgemm.ops._torch_private import register_sharding
from tcgemm.ops.sharding import addend
from tcgemm.quant.linear import OPERATOR

_R = Replicate()


def _quantized_linear(
    x: Any,
    weight: Any,
    weight_scale: Any = None,
    bias: Any = None,
    residual: Any = None,
    *,
    granularity: str,
    **kwargs: Any,
) -> list[Any]:
    names = [None] * (len(kwargs) + 1)
    n = x.ndim - 1

    def rule(out: Any, of_x: Any, of_weight: Any, of_scale: Any, dim: int) -> Any:
        addends = [
            None if each is None else _R if dim < 0 else addend(each, dim, x.ndim)
            for each in (bias, residual)
        ]
        scale = None if weight_scale is None else of_scale
        return [out], [of_x, of_weight, scale, *addends, *names]

    rules = [rule(_R, _R, _R, _R, -1)]
    if granularity != "tensor":
        rules += [rule(Shard(dim), Shard(dim), _R, _R, dim) for dim in range(n)]
    if granularity == "row":
        rules.append(rule(Shard(n), _R, Shard(0), Shard(0), n))
    elif granularity == "tensor" and weight_scale is not None:
        rules.append(rule(Shard(n), _R, Shard(0), _R, n))
    return rules


register_sharding(
    OPERATOR.default,
    _quantized_linear,
    ("dtype", "granularity", "activation", "out_dtype", "precision"),
)
