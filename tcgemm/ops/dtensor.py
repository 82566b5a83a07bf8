"""DTensor, which only its users pay for: to import it takes 0.9 s.

The sharding rules (sharding.py here, in quant/ and in sparse/) are registered when somebody imports
torch.distributed.tensor: without it there is no DTensor.
"""

import importlib
import sys
from typing import Any

import torch

from tcgemm.ops.after_import import after_import

_NAME = "torch.distributed.tensor"


def is_dtensor(value: object) -> bool:
    """Is this a DTensor? There is none while its module is not imported."""
    module = sys.modules.get(_NAME)
    return module is not None and isinstance(value, module.DTensor)


def joins_rows(tensor: Any) -> bool:
    """Can the dimensions before the last one be viewed as one? Those of a DTensor that is sharded
    along the second or a later one of them cannot."""
    if not is_dtensor(tensor):
        return True
    return not any(0 < getattr(each, "dim", 0) < tensor.dim() - 1 for each in tensor.placements)


def local_tensor(tensor: Any) -> torch.Tensor:
    """The part of a DTensor that this process has; other tensors as they are."""
    return tensor.to_local() if is_dtensor(tensor) else tensor


def full_tensor(tensor: Any) -> torch.Tensor:
    """The whole of a DTensor, which every rank has to ask for; other tensors as they are.

    A CPU offload of FSDP2 has shards on the CPU, and the processes of its mesh may talk through
    NCCL alone: they are moved first.
    """
    if not is_dtensor(tensor):
        return tensor
    return tensor.to(tensor.device_mesh.device_type).full_tensor()


def rules_in(module: str) -> None:
    """Imports a module of sharding rules when somebody imports torch.distributed.tensor."""

    def register(_torchs: object) -> None:
        importlib.import_module(module)

    after_import(_NAME, register)


rules_in("tcgemm.ops.sharding")
