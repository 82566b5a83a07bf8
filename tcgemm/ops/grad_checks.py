"""The tensors of a call that must not need a gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import torch

from tcgemm.dtypes import DIFFERENTIABLE
from tcgemm.ops._torch_private import forward_gradients, under_transform, unpack_dual

if TYPE_CHECKING:
    from tcgemm.ops.operators import Operator


def _refuse(op: Operator, name: str, why: str) -> NoReturn:
    raise RuntimeError(
        f"tcgemm.{op.name}: {name} needs a gradient, but {why}; pass {name}.detach()."
    )


def _has_tangent(tensor: torch.Tensor) -> bool:
    if not under_transform():
        return False
    with forward_gradients(True):
        return unpack_dual(tensor, level=0)[1] is not None


def check_constants(op: Operator) -> None:
    """Refuses a scale whose gradient would be lost."""
    for name, tensor in zip(op.constant_names, op.constants, strict=False):
        if tensor is None:
            continue
        if (torch.is_grad_enabled() and tensor.requires_grad) or _has_tangent(tensor):
            _refuse(op, name, "scales are constants of a product")


def check_operand(op: Operator, which: int, tensor: torch.Tensor) -> None:
    """Refuses an operand that needs a gradient, but has none."""
    if tensor.dtype not in DIFFERENTIABLE:
        _refuse(
            op,
            op.operand_names[which],
            f"operands of {tensor.dtype} have none (tcgemm.quantized_linear takes what they were "
            "quantised from, and gives it a gradient)",
        )
