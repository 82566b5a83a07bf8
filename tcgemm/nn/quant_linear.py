"""The layer with 8-bit weights: tcgemm.nn.QuantLinear.

Its buffers are plain tensors, which state_dict, safetensors, deepcopy and .to(device) take as they
are: weight (N, K) of float8 or int8, weight_scale of float32 as tcgemm.quantize makes it, bias.
"""

import torch

from tcgemm.dtypes import E4M3
from tcgemm.nn import exchange
from tcgemm.nn.linear import Linear
from tcgemm.quant.linear import SOURCES, check_options, quantized_linear
from tcgemm.quant.quantize import dequantize, quantize
from tcgemm.quant.shapes import scale_shape


class QuantLinear(torch.nn.Module):
    """A linear layer whose weight is stored in 8 bits and multiplied with quantised activations.

    x (..., in_features) of float16, bfloat16 or float32 is quantised in every call;
    act(x @ weight.t() + bias) comes in x's dtype (under torch.autocast in autocast's). A gradient
    goes through to x, by a 16-bit product with the dequantised weight; the weight itself is a
    buffer and does not learn (tcgemm.quantized_linear has a master weight that does).

    Arguments:
        in_features, out_features, bias, device: as of torch.nn.Linear.
        dtype (torch.dtype): of the weight: float8_e4m3fn, float8_e5m2 or int8.
        granularity: "row" (a scale for each row of weight and of x), "tensor", or, for float8,
            "128x128" (weight in blocks of 128 x 128, x in blocks of 1 x 128).
        activation: "relu", "gelu", "gelu_tanh", "silu" or None, fused.
        bias_dtype (torch.dtype): default: torch.get_default_dtype().

    A new layer has a weight of zeros: `from_linear` makes one of a torch.nn.Linear, and
    load_state_dict takes a QuantLinear's state_dict as well as a Linear's, which it quantises.
    .half() and .to(dtype) convert the bias alone.

    Example:
        >>> linear = torch.nn.Linear(64, 32)
        >>> layer = tcgemm.nn.QuantLinear.from_linear(linear, torch.int8)
        >>> layer(torch.randn(10, 64)).shape
        torch.Size([10, 32])
        >>> layer.to_linear().weight.dtype
        torch.float32
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device=None,
        *,
        dtype: torch.dtype = E4M3,
        granularity: str = "row",
        activation: str | None = None,
        bias_dtype: torch.dtype | None = None,
    ):
        super().__init__()
        check_options("tcgemm.nn.QuantLinear", dtype, granularity)
        self.in_features = in_features
        self.out_features = out_features
        self.granularity = granularity
        self.activation = activation
        shape = (out_features, in_features)
        scale = scale_shape(shape, granularity)
        self.register_buffer("weight", torch.zeros(shape, device=device, dtype=dtype))
        self.register_buffer("weight_scale", torch.ones(scale, device=device, dtype=torch.float32))
        self.register_buffer(
            "bias", torch.zeros(out_features, device=device, dtype=bias_dtype) if bias else None
        )

    @classmethod
    @torch.no_grad()
    def from_linear(
        cls, linear: torch.nn.Linear, dtype: torch.dtype = E4M3, granularity: str = "row"
    ) -> "QuantLinear":
        """The layer with the quantised weight and a copy of the bias of a torch.nn.Linear.

        The weight is float16, bfloat16 or float32. The activation of a tcgemm.nn.Linear is kept.
        """
        check_options("tcgemm.nn.QuantLinear", dtype, granularity)
        layer = cls.__new__(cls)
        torch.nn.Module.__init__(layer)
        layer.in_features, layer.out_features = linear.in_features, linear.out_features
        layer.granularity = granularity
        layer.activation = getattr(linear, "activation", None)
        values, scale = quantize(linear.weight.detach(), dtype, granularity)
        layer.register_buffer("weight", values)
        layer.register_buffer("weight_scale", scale)
        bias = linear.bias
        layer.register_buffer("bias", bias if bias is None else bias.detach().clone())
        layer.training = linear.training
        return layer

    def to_linear(self, dtype: torch.dtype | None = None) -> torch.nn.Linear:
        """A tcgemm.nn.Linear with the dequantised weight, in the bias's dtype if none is given
        (without a bias: torch.get_default_dtype())."""
        if dtype is None:
            dtype = torch.get_default_dtype() if self.bias is None else self.bias.dtype
        options = {"device": "meta", "dtype": dtype, "activation": self.activation}
        linear = Linear(self.in_features, self.out_features, self.bias is not None, **options)
        weight = dequantize(self.weight, self.weight_scale, dtype)
        linear.weight = torch.nn.Parameter(weight)
        if self.bias is not None:
            linear.bias = torch.nn.Parameter(self.bias.to(dtype, copy=True))
        return linear.train(self.training)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return quantized_linear(
            input,
            self.weight,
            self.bias,
            weight_scale=self.weight_scale,
            dtype=self.weight.dtype,
            granularity=self.granularity,
            activation=self.activation,
        )

    def extra_repr(self) -> str:
        activation = "" if self.activation is None else f", activation={self.activation}"
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, dtype={self.weight.dtype}, "
            f"granularity={self.granularity}{activation}"
        )

    def _apply(self, fn, recurse=True):
        """Moves the weight and its scale, but never converts them: .half() is for the bias."""
        kept = {"weight": self.weight, "weight_scale": self.weight_scale}
        super()._apply(fn, recurse)
        for name, tensor in kept.items():
            moved = self._buffers[name]
            if moved.dtype is not tensor.dtype:
                self._buffers[name] = tensor.to(moved.device)
        return self

    def _load_from_state_dict(self, state_dict, prefix, metadata, strict, missing, *lists):
        """Quantises the weight if the state is that of a Linear."""
        key, dtype = prefix + "weight", self.weight.dtype
        weight = state_dict.get(key)
        if weight is not None and weight.dtype in SOURCES:
            weight, scale = quantize(weight.detach(), dtype, self.granularity)
            state_dict[key], state_dict[prefix + "weight_scale"] = weight, scale
        if weight is not None and weight.dtype is not dtype:
            _unexpected, errors = lists
            errors.append(
                f"{key} is {weight.dtype}, but this QuantLinear holds {dtype}: make it with "
                f"dtype={weight.dtype}, or load a weight of torch.float16, torch.bfloat16 or "
                "torch.float32, which is quantised."
            )
            return
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, *lists)


_NAMES = ("_parameters", "_buffers", "granularity", "activation")


def _state(module, **options):
    return exchange.state_of(QuantLinear.from_linear(module, **options), module, _NAMES)


exchange.register(
    exchange.Exchange(
        layer=QuantLinear,
        options=("dtype", "granularity"),
        names=_NAMES,
        state=_state,
        why_not=lambda module: exchange.why_not_converted(module, SOURCES, "quantised"),
    )
)
