"""FLOP formulas for torch.utils.flop_counter.FlopCounterMode.

A product counts 2 * M * N * K, as torch counts its own; bias, activation and residual count
nothing. A product that the backward of an activation computes again counts, too. A 2:4 operand
counts as the dense matrix that it stands for, so that a model has the same number before and after
its weights are pruned. quantize, prepare and the 2:4 conversions count nothing.
"""

import math
from collections.abc import Callable
from typing import Any

import torch

from tcgemm.ops.after_import import after_import
from tcgemm.ops.operators import ALL, Operator


def _of_result(op, arguments, out):
    """2 * K for each element of the result."""
    # The values of a 2:4 operand have fewer columns than K.
    k = (
        arguments["b"].shape[-2]
        if arguments.get("sparse_a") is not None
        else arguments["a"].shape[-1]
    )
    return 2 * math.prod(out.shape) * k * op.per_byte


def count(op: Operator, flops: Callable[..., Any] = _of_result) -> None:
    """Registers the formula of an operator: flops(op, arguments by name, its result)."""

    def formula(*args, out_val=None, **kwargs):
        arguments = op.arguments(args, kwargs)
        out = arguments["out"] if out_val is None else out_val
        return flops(op, arguments, out[0] if isinstance(out, tuple | list) else out)

    def register(flop_counter):
        packet = getattr(torch.ops.tcgemm, op.name)
        flop_counter.register_flop_formula(packet, get_raw=True)(formula)

    after_import("torch.utils.flop_counter", register)


class _Linear24(Operator):
    positional = ("b", "sparse_b", "a", "bias")


for _op in (*ALL, Operator("_gemm"), _Linear24("_linear24")):
    count(_op)
