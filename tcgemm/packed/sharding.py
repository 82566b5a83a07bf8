"""The sharding rules of packed_mm for DTensor.

    out             a             packed_b     addends
    Replicate       Replicate     Replicate    Replicate
    Shard(rows)     Shard(rows)   Replicate    Shard where they have the dimension, else Replicate

The bytes of a packed weight are in the order of a kernel, so they are never divided.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import Replicate, Shard

from tcgemm.ops._torch_private import register_sharding
from tcgemm.ops.sharding import Rule, addend

_R = Replicate()


def _packed_mm(a: Any, packed_b: Any, *addends: Any, **kwargs: Any) -> list[Rule]:
    """packed_mm(a, packed_b, c, bias, residual, scale_out)"""
    missing = [None] * len(kwargs)

    def rule(dim: int | None) -> Rule:
        of_result = _R if dim is None else Shard(dim)
        placed = [
            None if each is None else _R if dim is None else addend(each, dim, a.ndim)
            for each in addends
        ]
        return [of_result], [of_result, _R, *placed, *missing]

    return [rule(None), *map(rule, range(a.ndim - 1))]


register_sharding(torch.ops.tcgemm.packed_mm.default, _packed_mm, ("n", "out_dtype"))
