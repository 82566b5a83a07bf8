"""Registrations of the operators that make and read 2:4 sparse matrices.

Each operator gets a fake implementation for tracing, an Autograd kernel that records no derivative,
and a batching rule that runs the examples of torch.vmap one after another.
"""

import torch

from tcgemm import dtypes
from tcgemm.operands.sparse.parts import metadata_columns, tiles_size, value_columns
from tcgemm.ops import autograd, dtensor, fake, vmap

_OPS = torch.ops.tcgemm


def _compress24(w, pattern, prune=False):
    rows, columns = w.shape[0], value_columns(w.shape[1], pattern)
    metadata = w.new_empty((rows, metadata_columns(columns)), dtype=torch.uint8)
    return w.new_empty((rows, columns)), metadata, w.new_empty(2, dtype=torch.int64)


def _decompress24(values, metadata, k, pattern):
    return values.new_empty((values.shape[0], k))


def _gather24(w, metadata, pattern):
    return w.new_empty((w.shape[0], value_columns(w.shape[1], pattern)))


def _prune24(w, pattern, transposable=False):
    return w.new_empty(w.shape)


def _tile24(metadata, k, pattern, dtype):
    return metadata.new_empty(tiles_size(metadata.shape[0], k, dtype), dtype=torch.uint8)


def _linear24(weight, metadata, x, bias=None, *, constant_b=False):
    tensors = {"x": x, "weight": weight, "sparse_b": metadata, "bias": bias}
    fake.check_devices("tcgemm.linear", tensors)
    fake.check_call(_OPS._linear24.default, (weight, metadata, x, bias), {"constant_b": constant_b})
    return x.new_empty((*x.shape[:-1], weight.shape[0]), dtype=dtypes.result(x.dtype))


for _fake in (_compress24, _decompress24, _gather24, _prune24, _tile24):
    _name = _fake.__name__.removeprefix("_")
    fake.implement(getattr(_OPS, _name).default, _fake, f"tcgemm.{_name}")
    autograd.register_constant(_name)
    vmap.register_one_by_one(_name)
torch.library.register_fake(_OPS._linear24.default, _linear24)
dtensor.rules_in("tcgemm.operands.sparse.sharding")
