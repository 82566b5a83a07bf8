"""DTensor, which only its users pay for: to import it takes 0.9 s.

The sharding rules (sharding.py here and in each folder of operands) are registered when somebody
imports torch.distributed.tensor: without it there is no DTensor.
"""

import importlib
import sys
from typing import Any

import torch

from tcgemm.ops.after_import import after_import

_NAME = "torch.distributed.tensor"


def tensors() -> Any:
    """torch.distributed.tensor, where there is a DTensor. torch.compile traces no import."""
    return sys.modules[_NAME]


def is_dtensor(value: object) -> bool:
    """Is this a DTensor? There is none while its module is not imported."""
    module = sys.modules.get(_NAME)
    return module is not None and isinstance(value, module.DTensor)


def joins_rows(tensor: Any) -> bool:
    """Can the dimensions before the last one be viewed as one? Those of a DTensor cannot if it is
    sharded along the second or a later one of them, or into uneven parts along the first one."""
    if not is_dtensor(tensor):
        return True
    for placement, parts in zip(tensor.placements, tensor.device_mesh.shape, strict=True):
        if (
            placement.is_shard()
            and placement.dim < tensor.dim() - 1
            and (placement.dim or tensor.shape[0] % parts)
        ):
            return False
    return True


def local_tensor(tensor: Any) -> torch.Tensor:
    """The part of a DTensor that this process has; other tensors as they are."""
    return tensor.to_local() if is_dtensor(tensor) else tensor


def local_bias(bias: Any, parts: Any = None) -> torch.Tensor | None:
    """What this process adds of the bias of a parallel layer: its elements of a sharded one, and
    all of it to rows of its own; else a share, so that the sum over the processes has it once.

    `parts` are the Parts of tcgemm.integrations.tensor_parallel.
    """
    if not is_dtensor(bias):
        return bias
    if bias.placements[0].is_shard():
        return bias.to_local()
    partial = tensors().Partial()
    # The gradients of all processes are added in the backward of redistribute.
    local = bias.redistribute(placements=bias.placements).to_local(grad_placements=[partial])
    return local if parts is not None and parts.whole else local / bias.device_mesh.size()


def full_tensor(tensor: Any) -> torch.Tensor:
    """The whole of a DTensor, which every rank has to ask for; other tensors as they are.

    A CPU offload of FSDP2 has shards on the CPU, and the processes of its mesh may talk through
    NCCL alone: they are moved first.
    """
    if not is_dtensor(tensor):
        return tensor
    return tensor.to(tensor.device_mesh.device_type).full_tensor()


def distributed_as(tensor: torch.Tensor, like: Any) -> torch.Tensor:
    """A tensor that every rank has, sharded as the DTensor `like`, without communication."""
    return tensors().distribute_tensor(
        tensor, like.device_mesh, like.placements, src_data_rank=None
    )


def rules_in(module: str) -> None:
    """Imports a module of sharding rules when somebody imports torch.distributed.tensor."""

    def register(_torchs: object) -> None:
        importlib.import_module(module)

    after_import(_NAME, register)


rules_in("tcgemm.ops.sharding")
