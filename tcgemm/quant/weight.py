"""Weights of 8 bits and fewer as other modules see them: matrices of a usual dtype.

    DequantizedWeight    what they have in common
    QuantizedWeight      the weight of a QuantLinear; tcgemm/packed/view.py has the PackedLinear's

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


class DequantizedWeight(torch.Tensor):
    """A weight that is read-only, and dequantised by each operator."""

    LAYER = ""  # its layer, and what that stores, for errors
    STORED = ""

    def to_dense(
        self, dtype: torch.dtype | None = None, *, masked_grad: bool | None = None
    ) -> torch.Tensor:
        """A plain tensor of this dtype; the arguments are torch's."""
        raise NotImplementedError

    def like(self, dtype: torch.dtype, device: torch.device | None = None) -> DequantizedWeight:
        """The same weight with another dtype and on another device."""
        raise NotImplementedError

    def data_ptr(self) -> int:
        """0, as for other tensors without memory. accelerate looks for it among tied weights."""
        return 0

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
            return args[0].like(args[0].dtype)
        if func is _aten.as_strided.default and _as_it_is(*args):
            return args[0].like(args[0].dtype)
        if func is _aten._to_copy.default and kwargs.get("device") is not None:
            return args[0].like(kwargs.get("dtype") or args[0].dtype, kwargs["device"])
        if is_mutable(func) and isinstance(args[0], DequantizedWeight):
            raise RuntimeError(
                f"{args[0].LAYER}: an operator writes into weight, which is the dequantised "
                f"form of the {args[0].STORED} and read-only; load a weight with load_state_dict, "
                "or make another layer with from_linear."
            )
        dense_args, dense_kwargs = tree_map_only(
            DequantizedWeight, lambda value: value.to_dense(), (args, kwargs)
        )
        return func(*dense_args, **dense_kwargs)


class QuantizedWeight(DequantizedWeight):
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

    LAYER = "tcgemm.nn.QuantLinear"
    STORED = "8-bit values"
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

    def like(self, dtype: torch.dtype, device: torch.device | None = None) -> QuantizedWeight:
        values, scale = self.values, self.scale
        if device is not None:
            values, scale = values.to(device), scale.to(device)
        return QuantizedWeight(values, scale, dtype)

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return (
            f"QuantizedWeight(shape={tuple(self.shape)}, dtype={self.dtype}, "
            f"values={self.values.dtype}, device='{self.device}')"
        )
