"""QuantizedWeight: an 8-bit weight as other modules see it, a matrix of a usual dtype.

Models read `layer.weight.dtype` and cast activations to it, and torch's own modules multiply with
`layer.weight`. An 8-bit tensor would make the first lose nearly everything, and the second wrong.
"""

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
    def forward(values, dtype):
        return values.view(dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, in_dims, values, dtype):
        return values.view(dtype), in_dims[0]


def view_bytes(values, dtype):
    """8-bit values of a dtype as those of another one, with the same bytes."""
    if values.dtype is dtype:
        return values
    if not torch.compiler.is_compiling() and transforms_active():
        return _View.apply(values, dtype)
    return values.view(dtype)


class QuantizedWeight(torch.Tensor):
    """The weight of a tcgemm.nn.QuantLinear: read-only, and dequantised by each operator.

    Attributes:
        values (Tensor): the 8-bit values, (N, K).
        scale (Tensor): float32, as tcgemm.quantize returned it.
        dtype: the dtype that operators see; values.dtype is the 8-bit one.

    Example:
        >>> layer = tcgemm.nn.QuantLinear.from_linear(torch.nn.Linear(64, 32))
        >>> layer.weight.dtype, layer.weight.values.dtype
        (torch.float32, torch.float8_e4m3fn)
    """

    @staticmethod
    def __new__(cls, values, scale, dtype):
        shape = values.shape
        strides = (max(shape[1], 1), 1)
        return wrapper_subclass(cls, shape, strides=strides, dtype=dtype, device=values.device)

    def __init__(self, values, scale, dtype):
        self.values, self.scale = values, scale

    def to_dense(self) -> torch.Tensor:
        """values * scale, as a plain tensor of this dtype."""
        return dequantize(self.values, self.scale, self.dtype)

    def __repr__(self):
        return (
            f"QuantizedWeight(shape={tuple(self.shape)}, dtype={self.dtype}, "
            f"values={self.values.dtype}, device='{self.device}')"
        )

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func in (_aten.detach.default, _aten.alias.default):
            weight = args[0]
            return QuantizedWeight(weight.values, weight.scale, weight.dtype)
        if func is _aten._to_copy.default and (kwargs or {}).get("device") is not None:
            weight, device = args[0], kwargs["device"]
            dtype = kwargs.get("dtype") or weight.dtype
            return QuantizedWeight(weight.values.to(device), weight.scale.to(device), dtype)
        if is_mutable(func) and isinstance(args[0], QuantizedWeight):
            raise RuntimeError(
                "tcgemm.nn.QuantLinear: weight is written to, but it is the dequantised view of "
                "8-bit values; load a weight with load_state_dict, or make another layer with "
                "from_linear."
            )
        args, kwargs = tree_map_only(cls, cls.to_dense, (args, kwargs or {}))
        return func(*args, **kwargs)
