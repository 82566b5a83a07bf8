"""Weights of 8 bits and fewer as other modules see them: matrices of a usual dtype.

    DequantizedWeight    what they have in common
    QuantizedWeight      the weight of a QuantLinear; operands/packed/view.py has the PackedLinear's

Models read `layer.weight.dtype` and cast activations to it: a cast to 8 bits would lose nearly all
digits. torch's own modules multiply with `layer.weight`: 8-bit values without their scale would
give wrong results.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tcgemm.dtypes import QUANTIZED
from tcgemm.operands.quant.quantize import dequantize
from tcgemm.ops._torch_private import (
    is_mutable,
    results_are_plain,
    transforms_active,
    tree_map_only,
    wrapper_subclass,
)
from tcgemm.ops.operands import TensorOperand

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


class DequantizedWeight(TensorOperand):
    """A weight that is read-only, and dequantised by each operator."""

    LAYER = ""  # its layer, and what that stores, for errors
    STORED = ""
    __torch_function__: Any = results_are_plain  # pyright: ignore[reportIncompatibleMethodOverride]

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
    def otherwise(cls, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        first = args[0]
        if func in (_aten.detach.default, _aten.alias.default):
            return first.like(first.dtype)
        if func is _aten.as_strided.default:  # of fully_shard, which asks for the whole weight
            shape, strides, *offset = args[1:]
            if (*shape,) == first.shape and (*strides,) == first.stride() and not any(offset):
                return first.like(first.dtype)
        if func is _aten._to_copy.default and kwargs.get("device") is not None:
            return first.like(kwargs.get("dtype") or first.dtype, kwargs["device"])
        if is_mutable(func) and isinstance(first, DequantizedWeight):
            raise RuntimeError(
                f"{first.LAYER}: an operator writes into weight, which is the dequantised form of "
                f"the {first.STORED} and read-only; load a weight with load_state_dict, or make "
                "another layer with from_linear."
            )
        args, kwargs = tree_map_only(
            DequantizedWeight, lambda value: value.to_dense(), (args, kwargs)
        )
        return func(*args, **kwargs)


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
        return wrapper_subclass(cls, values.shape, dtype=dtype, device=values.device)

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

    def __deepcopy__(self, memo: dict[int, Any]) -> QuantizedWeight:
        values, scale = copy.deepcopy((self.values, self.scale), memo)
        return QuantizedWeight(values, scale, self.dtype)

    def __reduce_ex__(
        self, protocol: object
    ) -> tuple[Callable[..., QuantizedWeight], tuple[Any, ...]]:
        values = self.values.view(torch.uint8)  # pickle takes no float8
        return restored_quantized_weight, (values, self.values.dtype, self.scale, self.dtype)

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return (
            f"QuantizedWeight(shape={tuple(self.shape)}, dtype={self.dtype}, "
            f"values={self.values.dtype}, device='{self.device}')"
        )


def restored_quantized_weight(
    values: Any, values_dtype: Any, scale: Any, dtype: Any
) -> QuantizedWeight:
    """The inverse of __reduce_ex__, for pickle and torch.load.

    Files may be damaged or forged, so every argument is checked.
    """
    tensors = isinstance(values, torch.Tensor) and isinstance(scale, torch.Tensor)
    sound = isinstance(dtype, torch.dtype) and values_dtype in QUANTIZED and tensors
    if not sound or (values.dtype, scale.dtype, values.dim()) != (torch.uint8, torch.float32, 2):
        raise RuntimeError(
            f"{QuantizedWeight.LAYER}: the saved weight is damaged: it must have 8-bit values "
            "(N, K) and float32 scales; load another copy of the file."
        )
    return QuantizedWeight(values.view(values_dtype), scale, dtype)
