"""The linear layer in float8 of DTensors: each process multiplies its part with scales of its own.

    weight      x            the result   the gradient of x
    Shard(0)    Replicate    Shard(-1)    Partial
    Shard(1)    Shard(-1)    Partial      Shard(-1)
    Replicate   rows, whole  as x         as x

These are the placements of ColwiseParallel and RowwiseParallel of torch. Each process adds a share
of the bias to a Partial result.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tcgemm.operands.quant.float8 import Delayed, float8_linear
from tcgemm.ops import dtensor
from tcgemm.ops.dtensor import is_dtensor, local_bias
from tcgemm.typing import Activation, Precision

_NAME = "tcgemm.nn.Float8Linear"


def _check(x: Any, weight: Any, bias: Any) -> None:
    """Raises RuntimeError unless all are DTensors of one mesh with one dimension."""
    tensors = {"weight": weight, "x": x} | ({} if bias is None else {"bias": bias})
    for name, tensor in tensors.items():
        if not is_dtensor(tensor):
            raise RuntimeError(
                f"{_NAME}: {name} is a plain tensor, but x, the weight or the bias is a DTensor; "
                "give the layer to parallelize_module, or call the module that fully_shard was "
                "given."
            )
        if tensor.device_mesh != weight.device_mesh or tensor.device_mesh.ndim != 1:
            raise RuntimeError(
                f"{_NAME}: {name} has the mesh {tensor.device_mesh} and the weight "
                f"{weight.device_mesh}, but they must have the same one, of one dimension; pass "
                'such a part of it as mesh["model"].'
            )


def parallel_float8_linear(
    x: Any,
    weight: Any,
    bias: Any,
    delayed: Delayed,
    activation: Activation | None,
    precision: Precision | None,
) -> Tensor:
    """float8_linear of DTensors, as a DTensor."""
    _check(x, weight, bias)
    tensors = dtensor.tensors()
    replicate, partial, last = tensors.Replicate(), tensors.Partial(), tensors.Shard(x.dim() - 1)
    mesh, (held,) = weight.device_mesh, weight.placements
    bias_at, sums = held, [held]
    if held == tensors.Shard(0):
        rows, result, gradient = replicate, last, partial
    elif held == tensors.Shard(1):
        if activation is not None:
            raise RuntimeError(
                f"{_NAME}: the weight is sharded by columns, and the layer has the activation "
                f"{activation!r}, which comes after the sum over all processes; put it into the "
                "layer before, which is column-parallel, or call it on the result."
            )
        rows, result, gradient, bias_at = last, partial, last, replicate
    elif held == replicate:
        (rows,) = x.placements
        rows = rows if rows.is_shard() and rows != last else replicate
        result = gradient = rows
        sums = [partial] if rows.is_shard() else [replicate]
    else:
        raise RuntimeError(
            f"{_NAME}: the weight has the placement {held}, but there are Shard(0), Shard(1) and "
            "Replicate(); redistribute it."
        )
    local_x = x.redistribute(mesh, [rows]).to_local(grad_placements=[gradient])
    # Gradients of the placements of the Parameters come back through redistribute.
    local_weight = weight.redistribute(mesh, [held]).to_local(grad_placements=sums)
    if bias is not None:
        bias = bias.redistribute(mesh, [bias_at])
        bias = local_bias(bias) if held.is_shard() else bias.to_local(grad_placements=sums)
    out = float8_linear(local_x, local_weight, bias, delayed, activation, precision)
    shape = (*x.shape[:-1], weight.shape[0])
    strides = torch.empty(shape, device="meta").stride()
    return tensors.DTensor.from_local(
        out, mesh, [result], run_check=False, shape=torch.Size(shape), stride=strides
    )
