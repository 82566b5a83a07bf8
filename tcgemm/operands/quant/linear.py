"""The linear layer that multiplies in 8 bits and learns in 16.

    x  (..., K) --quantize--> x8, sx --+
                                       +--> scaled_mm --> act((x8 @ w8.t()) * sx * sw + bias)
    weight (N, K) --quantize--> w8, sw-+                  + residual

Gradients are as for linear(x, weight, bias): the derivative of the rounding counts as one. Only
the derivative of the activation is taken at the quantised product.

The layer is an operator of its own, torch.ops.tcgemm.quantized_linear, so that torch.compile,
torch.func and autograd find its derivatives as they find the derivatives of the other operators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_variadic

from tcgemm import dtypes
from tcgemm.dtypes import E4M3, FP8, QUANTIZED
from tcgemm.operands.quant.quantize import dequantize, wrong_dtype
from tcgemm.ops import autograd, calls, dispatch, dtensor, fake, flops, invariance, nested, vmap
from tcgemm.ops._torch_private import NestedTensor, any_autocast_enabled
from tcgemm.ops.arguments import check_words, refusal
from tcgemm.ops.epilogue import Epilogue, Scales, shared
from tcgemm.ops.operators import Operands, Operator, Scaled, Tensors
from tcgemm.typing import Activation, Precision, WeightGranularity, words

# The granularity of the weight -> the granularity of x.
GRANULARITIES: dict[str, str] = {name: name for name in words(WeightGranularity)}
GRANULARITIES["128x128"] = "1x128"
_NAME = "tcgemm.quantized_linear"
_SIXTEEN = (torch.float16, torch.bfloat16)
SOURCES = (*_SIXTEEN, torch.float32)
_quantize = torch.ops.tcgemm.quantize.default
# An int32 holds the sum of this many products of -128 to 127 and of -127 to 127.
_INT8_SLICE = 1 << 17

_library = torch.library.Library("tcgemm", "FRAGMENT")  # owns the registrations
_library.define(
    "quantized_linear(Tensor x, Tensor weight, Tensor? weight_scale=None, Tensor? bias=None, "
    "Tensor? residual=None, *, ScalarType? dtype=None, str granularity, str? activation=None, "
    "ScalarType? out_dtype=None, str? precision=None, bool batch_invariant=False, "
    "bool constant_b=False) -> Tensor"
)


class QuantizedLinear(Operator):
    """The operator of one call. weight_scale belongs to a weight that is quantised already."""

    name = "quantized_linear"
    default = torch.ops.tcgemm.quantized_linear.default
    weight = True
    operand_names: tuple[str, str] = ("x", "weight")
    positional: tuple[str, ...] = ("a", "b", "weight_scale", "bias", "residual")
    constant_names: tuple[str, ...] = ("weight_scale",)

    def __init__(
        self, weight_scale: Tensor | None = None, work: torch.dtype = torch.bfloat16, **own: Any
    ) -> None:
        self.constants: tuple[Tensor | None, ...] = (weight_scale,)
        self.work = work  # the dtype of the products for the gradients
        self.own = own  # dtype and granularity

    def tensors(self, a: Any, b: Any, c: Any, bias: Any, residual: Any) -> Tensors:
        return a, b, *self.constants, bias, residual

    def keywords(self, epilogue: Epilogue) -> dict[str, Any]:
        return super().keywords(epilogue) | self.own

    def bind(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[QuantizedLinear, Operands]:
        arguments = self.arguments(args, kwargs)
        own = {name: arguments.get(name) for name in ("dtype", "granularity")}
        work = _work(arguments["a"], arguments["b"])
        call = QuantizedLinear(arguments.get("weight_scale"), work, **own)
        return call, self.operands(arguments)

    def grad_operands(
        self, a: Tensor | None, b: Tensor | None, precision: str | None
    ) -> tuple[Tensor | None, Tensor | None, None]:
        """x and the weight in 16 bits."""
        if b is not None and self.constants[0] is not None:
            b = dequantize(b, self.constants[0], self.work)
        a, b = (operand if operand is None else operand.to(self.work) for operand in (a, b))
        return a, b, None


def _work(x: Tensor, weight: Tensor) -> torch.dtype:
    """The dtype of the products for the gradients: x's, else the weight's, else bfloat16."""
    sixteen = [tensor.dtype for tensor in (x, weight) if tensor.dtype in _SIXTEEN]
    return sixteen[0] if sixteen else torch.bfloat16


def check_options(name: str, dtype: object, granularity: object) -> None:
    """Raises RuntimeError for a dtype or a granularity that the weight of `name` cannot have."""
    if granularity not in GRANULARITIES:
        raise RuntimeError(
            f"{name}: granularity is {granularity!r}, but weights have "
            '"tensor", "row" or "128x128"; pass one of these.'
        )
    if dtype not in QUANTIZED or (granularity == "128x128" and dtype not in FP8):
        only = " (with granularity 128x128 only float8)" if granularity == "128x128" else ""
        raise wrong_dtype(name, dtype, only)


def check_invariant(name: str, granularity: object) -> None:
    """Raises RuntimeError if the scale of x depends on other rows. `name` is batch-invariant."""
    if granularity == "tensor":
        raise RuntimeError(
            f'{name}: batch_invariant is True with the granularity "tensor", but then the scale of '
            'x comes from all rows, and so do the bits of each row; pass the granularity "row" or '
            '"128x128", or leave batch_invariant out.'
        )


def _checked_dtype(weight, weight_scale, dtype, granularity):
    """The dtype of the product: the argument, or the dtype of a quantised weight."""
    if dtype is None:
        dtype = weight.dtype if weight_scale is not None and weight.dtype in QUANTIZED else E4M3
    check_options(_NAME, dtype, granularity)
    if weight_scale is None and weight.dtype not in SOURCES:
        raise RuntimeError(
            f"{_NAME}: weight is {weight.dtype}, but it must be torch.float16, torch.bfloat16 or "
            "torch.float32; convert it with .to(...), or pass weight_scale as well if it is "
            "quantised already."
        )
    if weight_scale is not None and weight.dtype is not dtype:
        raise RuntimeError(
            f"{_NAME}: weight is {weight.dtype} and has a weight_scale, but dtype is {dtype}; "
            "pass the dtype that it was quantised to, or leave dtype out."
        )
    return dtype


def _forward(
    x, weight, weight_scale=None, bias=None, residual=None, *, granularity, dtype=None, **options
):
    """The kernel of the operator, on every device."""
    dtype = _checked_dtype(weight, weight_scale, dtype, granularity)
    if weight_scale is None:
        weight, weight_scale = _quantize(weight, dtype, granularity)
    x8, scale = _quantize(x, dtype, GRANULARITIES[granularity])
    vector = x.dim() == 1
    if vector:
        x8, scale = x8.unsqueeze(0), scale if scale.numel() == 1 else scale.unsqueeze(0)
    call = Scaled(Scales(scale, weight_scale.t()))
    options["out_dtype"] = options.get("out_dtype") or x.dtype
    weight, done = weight.t(), None
    if dtype is torch.int8 and x8.shape[-1] > _INT8_SLICE:
        x8, weight, done = _but_last_slice(call, x8, weight, options)
    out = call.run(x8, weight, done, bias, residual, shared(Epilogue(**options)))
    return out.squeeze(0) if vector else out


def _but_last_slice(call, x8, weight, options):
    """(the last slices along K of both operands, the scaled product of those before in float32).
    An int32 sum over all of K could overflow."""
    inner = {"out_dtype": torch.float32, "batch_invariant": options.get("batch_invariant", False)}
    slices_x, slices_weight = x8.split(_INT8_SLICE, -1), weight.split(_INT8_SLICE, 0)
    done = None
    for part_x, part_weight in zip(slices_x[:-1], slices_weight[:-1], strict=True):
        done = call.run(part_x, part_weight, done, None, None, Epilogue(**inner))
    return slices_x[-1], slices_weight[-1], done


def _fake(x, weight, weight_scale=None, bias=None, residual=None, *, out_dtype=None, **_):
    return x.new_empty((*x.shape[:-1], weight.shape[0]), dtype=out_dtype or x.dtype)


def _vmap(info, in_dims, *args, **kwargs):
    """With the granularity "tensor" each example has a scale of its own."""
    rule = vmap.one_by_one if kwargs["granularity"] == "tensor" else vmap.joined_rows
    return rule(OPERATOR.default)(info, in_dims, *args, **kwargs)


_library.impl("quantized_linear", _forward, "CompositeExplicitAutograd")
OPERATOR = QuantizedLinear()
fake.implement(OPERATOR.default, _fake, _NAME, any_extents=True)
torch.library.register_vmap("tcgemm::quantized_linear", _vmap)
autograd.register(OPERATOR)
flops.count(OPERATOR)
dtensor.rules_in("tcgemm.operands.quant.sharding")


def quantized_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    weight_scale: Tensor | None = None,
    dtype: torch.dtype | str | None = None,
    granularity: WeightGranularity = "row",
    activation: Activation | None = None,
    residual: Tensor | None = None,
    out_dtype: torch.dtype | str | None = None,
    precision: Precision | None = None,
    batch_invariant: bool = False,
) -> Tensor:
    """A linear layer whose product runs in 8 bits: x (..., K), weight (N, K) -> (..., N).

    Example:
        >>> x, weight = torch.randn(8, 64).bfloat16(), torch.randn(32, 64, requires_grad=True)
        >>> tcgemm.quantized_linear(x, weight, activation="gelu").sum().backward()
        >>> weight.grad.dtype
        torch.float32

    Every call quantises x and weight (tcgemm.quantize) and multiplies them by tcgemm.linear with
    their scales. The result is act(x @ weight.t() + bias) + residual, rounded once to out_dtype.

    The derivative of the rounding counts as one: x, weight, bias and residual get the gradients of
    linear(x, weight, bias). These are computed by products of 16 bits, in x's dtype, or else the
    weight's, or bfloat16 if both are float32. So a master weight of any dtype learns.

    Arguments:
        x, weight (Tensor): float16, bfloat16 or float32. Their dtypes may differ.
        bias (Tensor): (N,).
        weight_scale (Tensor): the scale of a weight that is quantised already, as tcgemm.quantize
            returned it. The weight then has an 8-bit dtype and gets no gradient.
        dtype (torch.dtype or str): float8_e4m3fn, float8_e5m2 or int8. Default: the dtype of a
            weight with a weight_scale, else float8_e4m3fn. Sums of int8 do not overflow: from
            K = 131,073 on, sums of 131,072 products each are added in float32.
        granularity (str): the elements that share a scale.

            - "row": each row of x and of weight
            - "tensor": all elements of x, and all of weight
            - "128x128": blocks of 128 x 128 of weight, and of 1 x 128 of x; float8 only

        activation, residual: as in tcgemm.linear.
        out_dtype (torch.dtype or str): the dtype of the result; default: x's dtype.
        precision (str): "promoted" or "fast" for float8, as in tcgemm.linear.
        batch_invariant (bool): as in tcgemm.linear. With the granularity "tensor" it is refused,
            because the scale of x comes from all rows.

    Under torch.autocast x, bias and residual are cast, and the result has autocast's dtype.
    torch.compile, torch.func and forward mode work.

    Raises:
        TypeError: an operand is no tensor.
        RuntimeError: a shape, dtype, device or option that is not supported.
    """
    dtype = dtypes.of(_NAME, "dtype", dtype, QUANTIZED)
    word: Any = out_dtype  # `shared` makes a dtype of a name
    epilogue = Epilogue(
        activation, 1.0, 1.0, word, precision=precision, batch_invariant=batch_invariant
    )
    own = weight_scale, dtype, granularity
    return multiply(x, weight, bias, residual, own, shared(epilogue))


def multiply(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    own: tuple[Tensor | None, torch.dtype | None, WeightGranularity],
    epilogue: Epilogue,
) -> Tensor:
    """quantized_linear. `own` has weight_scale, dtype and granularity."""
    weight_scale, dtype, granularity = own
    tensors = (x, weight, weight_scale, bias, residual)
    traced = torch.compiler.is_compiling()
    overridden = has_torch_function_variadic(*tensors)
    if traced or overridden:
        keywords = epilogue._replace(constant_b=False).keywords() | {"residual": residual}
        keywords |= {"weight_scale": weight_scale, "dtype": dtype, "granularity": granularity}
        if isinstance(x, NestedTensor):
            operands = (OPERATOR.name, x, weight, bias)
            return nested.linear(quantized_linear, *operands, rows=("residual",), **keywords)
        if overridden:
            return handle_torch_function(quantized_linear, tensors, x, weight, bias, **keywords)
    if not dispatch.all_tensors(OPERATOR, *tensors):
        names = ("x", "weight", "weight_scale", "bias", "residual")
        raise dispatch.no_tensor(OPERATOR.name, dict(zip(names, tensors, strict=True)))
    if traced or any_autocast_enabled():
        x, bias, residual = dispatch.autocast(x, bias, residual)
    if epilogue.batch_invariant:
        check_invariant(_NAME, granularity)
    call = QuantizedLinear(weight_scale, _work(x, weight), dtype=dtype, granularity=granularity)
    operands = (x, weight, None, bias, residual)
    if traced:
        check_words(OPERATOR.name, epilogue)
        return call.run(*operands, invariance.kept(epilogue))
    try:
        return calls.call_checked(call, *operands, epilogue)
    except RuntimeError as error:
        refused = error
    if not str(refused).startswith("tcgemm."):  # the dispatcher's errors name its own types
        check_options(_NAME, E4M3 if dtype is None else dtype, granularity)
    raise refusal(OPERATOR.name, refused, epilogue) or refused
