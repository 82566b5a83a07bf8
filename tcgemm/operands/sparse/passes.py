"""Registrations of the operators that make and read 2:4 sparse matrices.

Each operator gets a fake implementation for tracing, an Autograd kernel that records no derivative,
and a batching rule that runs the examples of torch.vmap one after another.
"""

import torch

from tcgemm import dtypes
from tcgemm.operands.sparse.parts import GROUPS, metadata_columns, tiles_size, value_columns
from tcgemm.ops import autograd, dtensor, fake, vmap


def _check(name, pattern, k=0, **matrices):
    """Checks the arguments that decide the shapes of results; the kernels check the others."""
    if pattern not in GROUPS:
        raise RuntimeError(
            f'tcgemm.{name}: pattern is "{pattern}", but there are "2:4" and, for torch.float32, '
            '"1:2"; pass one of these.'
        )
    for matrix, tensor in matrices.items():
        if tensor.dim() != 2:
            raise RuntimeError(
                f"tcgemm.{name}: {matrix} must be a matrix, but has shape {tuple(tensor.shape)}; "
                "take one matrix at a time, or reshape it."
            )
    if k < 0:
        raise RuntimeError(
            f"tcgemm.{name}: k is {k}, but is the number of columns of the tensor that was "
            "compressed; pass its shape[1]."
        )


def _compress24(w, pattern, prune=False):
    _check("compress24", pattern, w=w)
    rows, columns = w.shape[0], value_columns(w.shape[1], pattern)
    metadata = w.new_empty((rows, metadata_columns(columns)), dtype=torch.uint8)
    return w.new_empty((rows, columns)), metadata, w.new_empty(2, dtype=torch.int64)


def _decompress24(values, metadata, k, pattern):
    _check("decompress24", pattern, k, values=values, metadata=metadata)
    fake.check_devices("tcgemm.decompress24", {"values": values, "metadata": metadata})
    return values.new_empty((values.shape[0], k))


def _gather24(w, metadata, pattern):
    _check("gather24", pattern, w=w, metadata=metadata)
    fake.check_devices("tcgemm.gather24", {"w": w, "metadata": metadata})
    return w.new_empty((w.shape[0], value_columns(w.shape[1], pattern)))


def _prune24(w, pattern, transposable=False):
    _check("prune24", pattern, w=w)
    return w.new_empty(w.shape)


def _tile24(metadata, k, pattern, dtype):
    _check("tile24", pattern, k, metadata=metadata)
    return metadata.new_empty(tiles_size(metadata.shape[0], k, dtype), dtype=torch.uint8)


def _linear24(weight, metadata, x, bias=None, *, constant_b=False):
    tensors = {"x": x, "weight": weight, "sparse_b": metadata, "bias": bias}
    fake.check_devices("tcgemm.linear", tensors)
    return x.new_empty((*x.shape[:-1], weight.shape[0]), dtype=dtypes.result(x.dtype))


for _fake in (_compress24, _decompress24, _gather24, _prune24, _tile24):
    _name = _fake.__name__.removeprefix("_")
    torch.library.register_fake(getattr(torch.ops.tcgemm, _name).default, _fake)
    autograd.register_constant(_name)
    vmap.register_one_by_one(_name)
torch.library.register_fake(torch.ops.tcgemm._linear24.default, _linear24)
dtensor.rules_in("tcgemm.operands.sparse.sharding")
