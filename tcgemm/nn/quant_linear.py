"""The layer with 8-bit weights: tcgemm.nn.QuantLinear.

    _parameters   bias, which needs no gradient; placeholder, if swap_linear leaves no other one
    _buffers      weight: the bytes (N, K) of the values, as int8
                  weight_scale: float32, as tcgemm.quantize makes it
    .weight       a QuantizedWeight of both: a matrix of a usual dtype, for code that reads it

state_dict() has weight (float8 or int8), weight_scale and bias. The buffer has dtype int8 because
gloo does not send float8, and float8 has no arithmetic. It is no Parameter because fully_shard of
torch 2.11 raises an error for Parameters of integers.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from tcgemm import dtypes
from tcgemm.dtypes import E4M3
from tcgemm.nn import exchange
from tcgemm.nn.layer import Loading, StateError
from tcgemm.nn.stored_weight import StoredWeight
from tcgemm.operands.quant.linear import (
    GRANULARITIES,
    SOURCES,
    check_invariant,
    check_options,
    multiply,
)
from tcgemm.operands.quant.quantize import dequantize, quantize, scale_shape
from tcgemm.operands.quant.weight import QuantizedWeight, view_bytes
from tcgemm.ops.dtensor import local_bias
from tcgemm.ops.epilogue import DEFAULT, Epilogue
from tcgemm.typing import Activation, WeightGranularity

_NAME = "tcgemm.nn.QuantLinear"
_BYTES = torch.int8
_compiling = torch.compiler.is_compiling


class QuantLinear(StoredWeight):
    """A linear layer with 8-bit weights, which quantises its input in every call.

    Example:
        >>> linear = torch.nn.Linear(64, 32)
        >>> layer = tcgemm.nn.QuantLinear.from_linear(linear, torch.int8)
        >>> layer(torch.randn(10, 64)).shape
        torch.Size([10, 32])
        >>> layer.to_linear().weight.dtype
        torch.float32

    The result is act(x @ weight.t() + bias) in x's dtype, or in autocast's under torch.autocast.
    The gradient for x is a 16-bit product with the dequantised weight. The weight itself does not
    learn: tcgemm.quantized_linear can multiply a master weight that does.

    A new layer has a weight of zeros. `from_linear` makes a layer from a torch.nn.Linear.
    load_state_dict takes the state_dict of a QuantLinear, or of a Linear, which it quantises.

    `weight` is a matrix of a usual dtype, because models cast activations to weight.dtype: float32,
    or the dtype of the Linear. weight.values has the 8-bit values. The weight is a buffer. The bias
    is a Parameter that needs no gradient, so that next(model.parameters()) has a device and a
    dtype. half() and to(dtype) convert the bias and the dtype of `weight`, never the 8-bit values.

    Arguments:
        in_features, out_features, bias, device: as for torch.nn.Linear.
        dtype (torch.dtype or its name): of the 8-bit values: float8_e4m3fn, float8_e5m2 or int8.
        granularity (str): the elements that share a scale.

            - "row": each row of the weight and of x
            - "tensor": all elements of the weight, and all of x
            - "128x128": blocks of 128 x 128 of the weight, and of 1 x 128 of x; float8 only

        activation (str): one of tcgemm.typing.Activation, or None.
        bias_dtype (torch.dtype): default: torch.get_default_dtype().
        batch_invariant (bool): as for tcgemm.nn.Linear. With the granularity "tensor" it is
            refused, because the scale of x comes from all rows.
        constant_weights (bool): as for tcgemm.nn.Linear. The scales are loaded after the wait.

    Shapes: x (..., in_features), of float16, bfloat16 or float32 -> (..., out_features).
    """

    dtype: torch.dtype  # the dtype of the 8-bit values
    granularity: WeightGranularity
    weight: QuantizedWeight
    weight_scale: Tensor
    _LAYER = "QuantLinear"
    _BUFFERS = ("weight", "weight_scale")
    # The Parts of tcgemm.integrations.tensor_parallel, if the layer is parallel.
    _parts: Any = None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        *,
        dtype: torch.dtype | str = E4M3,
        granularity: WeightGranularity = "row",
        activation: Activation | None = None,
        bias_dtype: torch.dtype | str | None = None,
        batch_invariant: bool = False,
        constant_weights: bool = False,
    ) -> None:
        super().__init__()
        dtype = dtypes.of(_NAME, "dtype", dtype, dtypes.QUANTIZED)
        bias_dtype = dtypes.of(_NAME, "bias_dtype", bias_dtype)
        check_options(_NAME, dtype, granularity)
        if batch_invariant:
            check_invariant(_NAME, granularity)
        shape = (out_features, in_features)
        self._set(shape, bias_dtype or torch.get_default_dtype(), activation)
        self.dtype, self.granularity = dtype, granularity
        self.batch_invariant = batch_invariant
        self.constant_weights = constant_weights
        values = torch.zeros(shape, device=device, dtype=dtype)
        scale = torch.ones(scale_shape(shape, granularity), device=device, dtype=torch.float32)
        self._set_bias(torch.zeros(out_features, device=device, dtype=bias_dtype) if bias else None)
        self._buffers["weight"] = values.view(_BYTES)
        self.register_buffer("weight_scale", scale)

    @classmethod
    @torch.no_grad()
    def from_linear(
        cls,
        linear: torch.nn.Linear,
        dtype: torch.dtype | str = E4M3,
        granularity: WeightGranularity = "row",
        *,
        batch_invariant: bool = False,
        constant_weights: bool = False,
    ) -> Self:
        """Makes a layer with the quantised weight and a copy of the bias of a torch.nn.Linear.

        The weight must be float16, bfloat16 or float32. The layer has the activation of a
        tcgemm.nn.Linear, and is batch_invariant or has constant_weights if that does. Raises
        TypeError if `linear` is no torch.nn.Linear, and RuntimeError if a dtype or the granularity
        is not supported.
        """
        options = cls._inherited(linear, batch_invariant, constant_weights)
        weight, bias = linear.weight.detach(), linear.bias
        layer = cls(
            *(weight.shape[1], weight.shape[0], False, "meta"),
            dtype=dtype,
            granularity=granularity,
            bias_dtype=weight.dtype,
            **options,
        )
        values, layer.weight_scale = quantize(weight, layer.dtype, granularity)
        layer._buffers["weight"] = values.view(_BYTES)
        layer._set_bias(None if bias is None else bias.detach().clone())
        return layer.train(linear.training)

    def to_linear(self, dtype: torch.dtype | str | None = None) -> torch.nn.Linear:
        """A tcgemm.nn.Linear with the dequantised weight and a copy of the bias.

        The default of dtype is the bias's dtype; without a bias it is torch.get_default_dtype().
        """
        dtype = dtypes.of(f"{_NAME}.to_linear", "dtype", dtype)
        if dtype is None:
            dtype = torch.get_default_dtype() if self.bias is None else self.bias.dtype
        weight = dequantize(self._values(), self.weight_scale, dtype)
        return self._dense_linear(weight, local_bias(self.bias, self._parts))

    def _values(self) -> Tensor:
        """The 8-bit values. accelerate reads `weight`, moves it, and makes it the buffer."""
        values: Any = self._buffers["weight"]
        if isinstance(values, QuantizedWeight):
            values = self._buffers["weight"] = values.values.view(_BYTES)
        if values.dtype is not _BYTES:
            raise RuntimeError(
                f"{_NAME}: the buffer of the 8-bit weight was replaced by {values.dtype}, but it "
                f"must be {_BYTES}; load the weight with load_state_dict or with "
                "accelerate.load_checkpoint_in_model, without a device_map, and do not set "
                "offload_buffers of accelerate."
            )
        return view_bytes(values, self.dtype)

    def _watched(self) -> tuple[Tensor, ...]:
        values = self._buffers["weight"]
        return (values,) if self._parts is None and isinstance(values, torch.Tensor) else ()

    def _product(self, rows: int) -> Any:
        values = self._values()
        x, granularity = (rows, self.in_features), GRANULARITIES[self.granularity]
        scale = self.weight_scale.new_empty(scale_shape(x, granularity))
        options = {"scale_a": scale, "scale_b": self.weight_scale.t()}
        return values.new_empty(x), values.t(), options | {"out_dtype": self.shown_dtype}

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """act(x @ weight.t() + bias), by tcgemm.quantized_linear."""
        self._refuse_dtensor(input)
        values, bias = self._values(), local_bias(self.bias, self._parts)
        options = self._options()
        if self._constant is not None and self._is_constant():
            options["constant_b"] = True
        epilogue = Epilogue(**options) if options else DEFAULT
        own = self.weight_scale, None, self.granularity
        return multiply(input, values, bias, None, own, epilogue)

    def __getattr__(self, name: str) -> Any:
        if name == "weight":
            if _compiling():
                return dequantize(self._values(), self.weight_scale, self.shown_dtype)
            return QuantizedWeight(self._values().detach(), self.weight_scale, self.shown_dtype)
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "weight":
            super().__setattr__(name, value)
            return
        shape = (self.out_features, self.in_features)
        if getattr(value, "dtype", None) is not self.dtype or value.shape != shape:
            came = type(value).__name__
            if isinstance(value, torch.Tensor):
                came = f"{value.dtype} of shape {tuple(value.shape)}"
            raise RuntimeError(
                f"{_NAME}: weight is assigned {came}, but it must be 8-bit values of {self.dtype} "
                f"and shape {shape} that fit weight_scale; pass such values, or quantise a weight "
                "with load_state_dict or from_linear."
            )
        self._buffers["weight"] = value.detach().view(_BYTES)

    def _shown(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "granularity": self.granularity, **super()._shown()}

    def _saved(self) -> dict[str, Tensor]:
        return {"weight": self._values(), "weight_scale": self.weight_scale}

    def _check_scales(self, state_dict: dict[str, Any], prefix: str, weight: Tensor) -> None:
        """StateError: the state has a scale of the weight that the layer would not use."""
        own = prefix + "weight_scale"
        if weight.dtype in SOURCES and own in state_dict:
            raise StateError(
                f"{prefix}weight is {weight.dtype}, which is quantised while it is loaded, but the "
                f"state has {own} as well; load the 8-bit values, or leave the scale out."
            )
        others = [key for key in state_dict if key.startswith(own) and key != own]
        if weight.dtype is self.dtype and own not in state_dict and others:
            raise StateError(
                f"{prefix}weight is {weight.dtype}, but its scale has the name {others[0]}, which "
                f"no layer takes; rename it to {own} if a weight is its values times the scale."
            )

    def _before_load(self, loading: Loading) -> None:
        """Quantises the weight if the state is a Linear's."""
        state_dict, prefix = loading.state, loading.prefix
        if self._parts is not None:  # after QuantConv1D has transposed its weight
            self._parts.prepare(self, state_dict, prefix)
        key = prefix + "weight"
        weight = state_dict.pop(key, None)
        if weight is None:
            return
        if not isinstance(weight, torch.Tensor):
            raise StateError(
                f"{key} is a {type(weight).__name__}, but it must be a torch.Tensor; load a state "
                "that state_dict() made."
            )
        self._check_scales(state_dict, prefix, weight)
        if weight.dtype in SOURCES:
            weight, scale = quantize(weight.detach(), self.dtype, self.granularity)
            state_dict[prefix + "weight_scale"] = scale
        if weight.dtype is not self.dtype:
            raise StateError(
                f"{key} is {weight.dtype}, but this QuantLinear has {self.dtype}; make it with "
                f"dtype={weight.dtype}, or load a weight of torch.float16, torch.bfloat16 or "
                "torch.float32, which is quantised."
            )
        state_dict[key] = weight if loading.assign else weight.view(_BYTES)


_STATE = (
    *("_parameters", "_buffers", "granularity", "activation", "dtype", "shown_dtype"),
    "batch_invariant",
)


exchange.register(
    exchange.Exchange(
        layer=QuantLinear,
        options=("dtype", "granularity", "batch_invariant"),
        names=_STATE,
        state=exchange.converted(QuantLinear, _STATE),
        why_not=lambda module, **_: exchange.why_not_converted(module, SOURCES, "quantised"),
    )
)
