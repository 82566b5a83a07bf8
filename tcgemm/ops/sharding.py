"""The sharding rules of the products for DTensor, as tensor parallelism needs them.

    out             a @ b                       addends
    Replicate       Replicate @ Replicate       Replicate
    Shard(batch)    Shard(batch) @ Shard(batch)
    Shard(m)        Shard(m) @ Replicate        Shard where they have the dimension, else Replicate
    Shard(n)        Replicate @ Shard(n)
    Partial         Shard(k) @ Shard(k)         Partial: each rank has a part of the sum

A sum over ranks comes before the activation, so with one there is no Partial. dtensor.py imports
this module when torch.distributed.tensor is imported.
"""

import functools
from typing import Any

import torch
from torch.distributed.tensor import Partial, Replicate, Shard

from tcgemm.ops._torch_private import register_sharding
from tcgemm.ops.epilogue import ADDENDS, Epilogue
from tcgemm.ops.operators import PLAIN, Operator

SUMMED = (None, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32)


def dimensions(
    op: Operator, a: Any, b: Any
) -> tuple[list[tuple[int | None, int | None]], tuple[int, int]]:
    """For each dimension of the result, the dimensions of a and of b that it comes from, or None;
    and those of k."""
    a_rows, b_columns = a.ndim > 1, b.ndim > 1
    k = (a.ndim - 1, 1 if op.weight else max(b.ndim - 2, 0))
    if op.weight:
        return [*((i, None) for i in range(a.ndim - 1)), (None, 0)], k
    batch = max(a.ndim - 2, b.ndim - 2, 0)
    dims: list[tuple[int | None, int | None]] = []
    for i in range(batch):
        mine, its = i - batch + a.ndim - 2, i - batch + b.ndim - 2
        dims.append(
            (
                mine if a_rows and mine >= 0 and a.shape[mine] > 1 else None,
                its if b_columns and its >= 0 and b.shape[its] > 1 else None,
            )
        )
    if a_rows:
        dims.append((a.ndim - 2, None))
    if b_columns:
        dims.append((None, b.ndim - 1))
    return dims, k


def addend(tensor: Any, dim: int, ndim: int) -> Shard | Replicate:
    """The placement of an addend where dimension `dim` of the result is sharded."""
    own = dim - ndim + tensor.ndim
    return Shard(own) if own >= 0 and tensor.shape[own] > 1 else Replicate()


def _rule(op, *args, **kwargs):
    """The placements of the result and of each argument, for one dimension of the mesh."""
    given = dict(zip(op.positional, args, strict=False))
    a, b = given["a"], given["b"]
    dims, (a_k, b_k) = dimensions(op, a, b)
    ndim = len(dims)

    def placements(out, a_placement, b_placement, of_addend):
        inputs = []
        for name in op.positional[: len(args)]:
            if given[name] is None:
                inputs.append(None)
            elif name in ADDENDS:
                inputs.append(of_addend(given[name]))
            else:
                inputs.append(a_placement if name == "a" else b_placement)
        return [out], [*inputs, *[None] * len(kwargs)]

    def sharded(dim):
        return Replicate() if dim is None else Shard(dim)

    rules: list[Any] = [placements(Replicate(), Replicate(), Replicate(), lambda _: Replicate())]
    for dim, (of_a, of_b) in enumerate(dims):
        rules.append(
            placements(
                Shard(dim),
                sharded(of_a),
                sharded(of_b),
                functools.partial(addend, dim=dim, ndim=ndim),
            )
        )
    if kwargs.get("activation") is None and kwargs.get("out_dtype") in SUMMED:
        rules.append(placements(Partial(), Shard(a_k), Shard(b_k), lambda _: Partial()))
    return rules


for _op in PLAIN:
    register_sharding(_op.default, functools.partial(_rule, _op), Epilogue._fields)
