"""The sharding rules of packed_mm and _pack_weight for DTensor.

    out             a             packed_b     addends
    Replicate       Replicate     Replicate    Replicate
    Shard(rows)     Shard(rows)   Replicate    Shard where they have the dimension, else Replicate

amax is Partial("max") where rows are divided.

The bytes of a packed weight are in the order of a kernel, so they are never divided. A weight that
is packed can be divided by rows, and so are its codes and scales.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.distributed.tensor import Partial, Replicate, Shard

from tcgemm.ops._torch_private import register_sharding
from tcgemm.ops.sharding import Rule, addend

_R = Replicate()


def _packed_mm(amax: int, a: Any, packed_b: Any, *addends: Any, **kwargs: Any) -> list[Rule]:
    """packed_mm(a, packed_b, c, bias, residual, scale_out)"""
    missing = [None] * len(kwargs)

    def rule(dim: int | None) -> Rule:
        of_result = _R if dim is None else Shard(dim)
        results = [of_result, _R if dim is None else Partial("max")][: 1 + amax]
        placed = [addend(tensor, dim, a.ndim) for tensor in addends]
        return results, [of_result, _R, *placed, *missing]

    return [rule(None), *map(rule, range(a.ndim - 1))]


for _amax, _op in enumerate((torch.ops.tcgemm.packed_mm, torch.ops.tcgemm.packed_mm_amax)):
    register_sharding(_op.default, functools.partial(_packed_mm, _amax), ("n", "out_dtype"))


def _pack_weight(w: Any, book: Any, global_scale: Any, *options: Any, **kwargs: Any) -> list[Rule]:
    """_pack_weight(w, book, global_scale, format, group_size, limit, scale_type, ..)"""
    others = [None if tensor is None else _R for tensor in (book, global_scale)]
    missing = [None] * (len(options) + len(kwargs))
    zero_points = options[4] if len(options) > 4 else kwargs.get("zero_points", False)
    return [
        ([placed, placed, placed if zero_points else _R], [placed, *others, *missing])
        for placed in (_R, Shard(0))
    ]


register_sharding(torch.ops.tcgemm._pack_weight.default, _pack_weight, ())
