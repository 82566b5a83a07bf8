"""QuantizedWeight: an 8-bit weight as other modules see it, a matrix of a usual dtype.

Models read `layer.weight.dtype` and cast activations to it: a cast to 8 bits would lose nearly all
digits. torch's own modules multiply with `layer.weight`: 8-bit values without their scale would
give wrong results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tcgemm.ops._torch_private import (
    is_mutable,
    transforms_active,
    tree_map_only,
    wrapper_subclass,
)
from tcgemm.quant.quantize import dequantize

_aten = torch.ops.aten


class _View(torch.autograd.Function):
    """bytes.view(dtype) under torch.func, whose vmap has no rule for it."""

    @staticmethod
    def forward(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return values.view(dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        values, dtype = args
        return values.view(dtype), in_dims[0]


def view_bytes(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The bytes of 8-bit values as a tensor of another 8-bit dtype."""
    if values.dtype is dtype:
        return values
    if not torch.compiler.is_compiling() and transforms_active():
        return _View.apply(values, dtype)
    return values.view(dtype)


def _as_it_is(
    weight: torch.Tensor, shape: Sequence[int], strides: Sequence[int], offset: int | None = None
) -> bool:
    """Does as_strided with these arguments return the whole weight? fully_shard calls it so."""
    return not offset and (*shape,) == weight.shape and (*strides,) == weight.stride()


class QuantizedWeight(torch.Tensor):
    """The weight of a tcgemm.nn.QuantLinear: read-only, and dequantised by each operator.

    Example:
        >>> layer = tcgemm.nn.QuantLinear.from_linear(torch.nn.Linear(64, 32))
        >>> layer.weight.dtype, layer.weight.values.dtype
        (torch.float32, torch.float8_e4m3fn)

    Attributes:
        values (Tensor): the 8-bit values, (N, K).
        scale (Tensor): float32, as tcgemm.quantize returned it.
        dtype (torch.dtype): the dtype that operators see; values.dtype is the 8-bit one.
    """

    values: torch.Tensor  # hides torch.Tensor.values(), which only torch's sparse layouts have
    scale: torch.Tensor

    @staticmethod
    def __new__(
        cls: type[QuantizedWeight], values: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype
    ) -> QuantizedWeight:
        shape = values.shape
        strides = (max(shape[1], 1), 1)
        return wrapper_subclass(cls, shape, strides=strides, dtype=dtype, device=values.device)

    def __init__(self, values: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> None:
        self.values = values  # pyright: ignore[reportIncompatibleMethodOverride]
        self.scale = scale

    def to_dense(
        self, dtype: torch.dtype | None = None, *, masked_grad: bool | None = None
    ) -> torch.Tensor:
        """values * scale, as a plain tensor of this dtype; the arguments are torch's."""
        return dequantize(self.values, self.scale, dtype or self.dtype)

    def data_ptr(self) -> int:
        """0, as for other tensors without memory. accelerate looks for it among tied weights."""
        return 0

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return (
            f"QuantizedWeight(shape={tuple(self.shape)}, dtype={self.dtype}, "
            f"values={self.values.dtype}, device='{self.device}')"
        )

    @classmethod
    def __torch_dispatch__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in (_aten.detach.default, _aten.alias.default):
            weight = args[0]
            return QuantizedWeight(weight.values, weight.scale, weight.dtype)
        if func is _aten.as_strided.default and _as_it_is(*args):
            return QuantizedWeight(args[0].values, args[0].scale, args[0].dtype)
        if func is _aten._to_copy.default and kwargs.get("device") is not None:
            weight, device = args[0], kwargs["device"]
            dtype = kwargs.get("dtype") or weight.dtype
            return QuantizedWeight(weight.values.to(device), weight.scale.to(device), dtype)
        if is_mutable(func) and isinstance(args[0], QuantizedWeight):
            raise RuntimeError(
                "tcgemm.nn.QuantLinear: an operator writes into weight, which is the dequantised "
                "form of the 8-bit values and read-only; load a weight with load_state_dict, or "
                "make another layer with from_linear."
            )
        dense_args, dense_kwargs = tree_map_only(cls, cls.to_dense, (args, kwargs))
        return func(*dense_args, **dense_kwargs)
