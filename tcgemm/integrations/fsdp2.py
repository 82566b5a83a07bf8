"""FSDP2 that gathers the weights of tcgemm.nn.Float8Linear in float8.

    a process                      all processes             a forward and a backward
    shard of 16 or 32 bits  -->    largest magnitude  -->    the 8-bit weight and its scale,
                                   8-bit shards              which the products read as they are

A gather moves one byte for each element of a weight, and one number. fully_shard calls
fsdp_pre_all_gather and fsdp_post_all_gather of a Parameter that has these methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn.functional import pad

from tcgemm.dtypes import E4M3
from tcgemm.nn import Float8Linear
from tcgemm.operands.quant.float8 import amax_of, scale_of
from tcgemm.operands.quant.quantize import quantize
from tcgemm.operands.quant.weight import QuantizedWeight
from tcgemm.ops._torch_private import below_dispatch_modes, results_are_plain, tree_map_only
from tcgemm.ops.dtensor import is_dtensor
from tcgemm.ops.operands import TensorOperand

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from torch.distributed.device_mesh import DeviceMesh

__all__ = ["gather_in_float8"]

_BYTES = torch.uint8  # gloo and NCCL send no float8
_aten = torch.ops.aten
_KEPT = (
    *(_aten.detach.default, _aten.alias.default, _aten.view.default, _aten.as_strided.default),
    *(_aten.split.Tensor, _aten.slice.Tensor, _aten.new_zeros.default, _aten.empty_like.default),
    *(_aten.clone.default, _aten._to_copy.default, _aten._pin_memory.default),
    _aten.new_empty.default,
)


class _ShardedWeight(TensorOperand):
    """A weight, or a shard of it, that FSDP2 gathers in float8. Everywhere else it is its data.

    fully_shard makes its shards with the operators of _KEPT, and asks the shards for the methods.
    """

    __torch_function__: Any = results_are_plain  # pyright: ignore[reportIncompatibleMethodOverride]

    @classmethod
    def otherwise(cls, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        with below_dispatch_modes():
            result = func(*args, **kwargs)
        if func in _KEPT:
            return tree_map_only(torch.Tensor, lambda tensor: tensor.as_subclass(cls), result)
        return result

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A file has the plain tensor, which torch.load reads with weights_only."""
        return self._plain().__reduce_ex__(protocol)

    def _plain(self) -> Tensor:
        with below_dispatch_modes():
            return self.detach().as_subclass(torch.Tensor)

    def fsdp_pre_all_gather(
        self,
        mesh: DeviceMesh,
        outer_size: torch.Size,
        outer_stride: tuple[int, ...],
        module: torch.nn.Module,
        mp_policy: Any,
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, torch.Size]]:
        """The bytes of this process, and what fsdp_post_all_gather gets beside the bytes of all."""
        shard = self._plain()
        amax = amax_of(shard, E4M3)
        dist.all_reduce(amax, dist.ReduceOp.MAX, group=mesh.get_group())
        scale = scale_of(amax, E4M3)
        values, _ = quantize(shard, E4M3, scale=scale)
        rows = -(-outer_size[0] // mesh.size()) - values.shape[0]  # of an uneven last shard
        return (pad(values.view(_BYTES), (0, 0, 0, rows)),), (scale, outer_size)

    def fsdp_post_all_gather(
        self,
        all_gather_outputs: Sequence[Tensor],
        metadata: tuple[Tensor, torch.Size],
        param_dtype: torch.dtype,
        *,
        out: Any = None,
    ) -> tuple[Tensor, tuple[Tensor, ...]] | None:
        """The whole weight; `out` is the last gather's weight, whose memory has the new bytes."""
        (gathered,), (scale, shape) = all_gather_outputs, metadata
        values = gathered[: shape[0]].view(E4M3)
        if out is None:
            return QuantizedWeight(values, scale, param_dtype), ()
        out.values, out.scale = values, scale
        return None


def gather_in_float8(model: torch.nn.Module) -> list[str]:
    """Lets fully_shard (FSDP2) gather the weights of all tcgemm.nn.Float8Linear in float8.

    Example:
        >>> from tcgemm.integrations.fsdp2 import gather_in_float8
        >>> model = torch.nn.Sequential(torch.nn.Linear(32, 16))
        >>> report = tcgemm.swap_linear(model, to=tcgemm.nn.Float8Linear)
        >>> gather_in_float8(model)
        ['0']

    Call it before fully_shard, and before the optimizer is made: each weight becomes another
    Parameter. Results have the bits of a gather in 16 or 32 bits with current scaling. A weight has
    current scaling here, also in a layer with delayed scaling: its amax is reduced over all
    processes before each gather.

    Arguments:
        model (torch.nn.Module): is changed in place.

    Returns the names of the layers.

    Raises:
        ValueError: The model has no such layer, or it is sharded already.
    """
    layers = {
        name: layer for name, layer in model.named_modules() if isinstance(layer, Float8Linear)
    }
    if not layers:
        raise ValueError(
            "gather_in_float8: the model has no tcgemm.nn.Float8Linear; call "
            "tcgemm.swap_linear(model, to=tcgemm.nn.Float8Linear) before."
        )
    parameters: dict[int, torch.nn.Parameter] = {}  # a tied weight stays tied
    for name, layer in layers.items():
        weight = layer.weight
        if is_dtensor(weight):
            raise ValueError(
                f"gather_in_float8: {name}.weight is sharded already; call it before fully_shard."
            )
        if id(weight) not in parameters:
            data = weight.detach().as_subclass(_ShardedWeight)
            parameters[id(weight)] = torch.nn.Parameter(data, requires_grad=weight.requires_grad)
        layer.weight = parameters[id(weight)]
    return list(layers)
