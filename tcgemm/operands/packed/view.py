"""The weight of a tcgemm.nn.PackedLinear as other modules see it: a matrix of a usual dtype."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tcgemm.operands.packed.weight import PackedWeight
from tcgemm.operands.quant.weight import DequantizedWeight
from tcgemm.ops._torch_private import wrapper_subclass

if TYPE_CHECKING:
    import torch


class PackedView(DequantizedWeight):
    """The weight of a tcgemm.nn.PackedLinear: read-only, and dequantised by each operator.

    Example:
        >>> layer = tcgemm.nn.PackedLinear.from_linear(torch.nn.Linear(128, 32))
        >>> layer.weight.dtype, layer.weight.packed.codes.dtype
        (torch.float32, torch.uint8)

    Attributes:
        packed (PackedWeight): the weight with its tensors.
        dtype (torch.dtype): the dtype that operators see.
    """

    LAYER = "tcgemm.nn.PackedLinear"
    STORED = "codes and scales"
    packed: PackedWeight

    @staticmethod
    def __new__(cls: type[PackedView], packed: PackedWeight) -> PackedView:
        return wrapper_subclass(cls, packed.shape, dtype=packed.dtype, device=packed.device)

    def __init__(self, packed: PackedWeight) -> None:
        self.packed = packed

    def to_dense(
        self, dtype: torch.dtype | None = None, *, masked_grad: bool | None = None
    ) -> torch.Tensor:
        """The dequantised weight, as a plain tensor of this dtype; the arguments are torch's."""
        return self.packed.dequantize(dtype or self.dtype)

    def like(self, dtype: torch.dtype, device: torch.device | None = None) -> PackedView:
        packed = self.packed.to(dtype)
        return PackedView(packed if device is None else packed.to(device))

    def __deepcopy__(self, memo: dict[int, Any]) -> PackedView:
        return PackedView(copy.deepcopy(self.packed, memo))

    def __reduce_ex__(self, protocol: object) -> tuple[Callable[..., PackedView], tuple[Any, ...]]:
        return restored_view, (self.packed,)

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"PackedView({self.packed!r})"


def restored_view(packed: PackedWeight) -> PackedView:
    """The inverse of __reduce_ex__, for pickle and torch.load, with a check of its argument."""
    if type(packed) is not PackedWeight:
        raise RuntimeError(
            f"tcgemm.nn.PackedLinear: the saved weight is damaged: it has {type(packed).__name__} "
            "and no PackedWeight; load another copy of the file."
        )
    return PackedView(packed)
