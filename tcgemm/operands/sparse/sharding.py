"""The sharding rules of the 2:4 conversions for DTensor.

Shard(0) of a matrix stays: each row has values and metadata of its own. compress24 and tile24 are
Replicate: the third result of the one has the place of the first group that does not fit, and the
result of the other is in the order of a kernel.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.distributed.tensor import Replicate, Shard

from tcgemm.ops._torch_private import register_sharding
from tcgemm.ops.sharding import Rule

_OPS = torch.ops.tcgemm
_R = Replicate()


def _rows(tensors: int, results: int, divides: bool, *args: Any, **kwargs: Any) -> list[Rule]:
    """Shard(0) of all tensors and of the result, if `divides`."""
    rest = [None] * (len(args) - tensors + len(kwargs))
    rules = [([_R] * results, [_R] * tensors + rest)]
    if divides:
        rules.append(([Shard(0)] * results, [Shard(0)] * tensors + rest))
    return rules


def _prune(*args: Any) -> list[Rule]:
    """prune24(w, pattern, transposable): a transposable pattern is one of blocks of rows."""
    return _rows(1, 1, not any(args[2:]), *args)


for _packet, _tensors, _results, _divides in (
    (_OPS.compress24, 1, 3, False),
    (_OPS.tile24, 1, 1, False),
    (_OPS.gather24, 2, 1, True),
    (_OPS.decompress24, 2, 1, True),
):
    register_sharding(_packet.default, functools.partial(_rows, _tensors, _results, _divides), ())
register_sharding(_OPS.prune24.default, _prune, ())
