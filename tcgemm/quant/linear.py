"""The linear layer that multiplies in 8 bits and learns in 16.

    x  (..., K) --quantize--> x8, sx --+
                                       +--> scaled_mm --> act((x8 @ w8.t()) * sx * sw + bias)
    weight (N, K) --quantize--> w8, sw-+                  + residual

Gradients are those of linear(x, weight, bias), straight through the rounding. Only the argument
of the activation's derivative is the quantised product.

The layer is an operator of its own, torch.ops.tcgemm.quantized_linear, so that torch.compile,
torch.func and autograd find its derivatives as they find those of the others.
"""

import torch
from torch.overrides import handle_torch_function, has_torch_function_variadic

from tcgemm.dtypes import E4M3, FP8, QUANTIZED
from tcgemm.ops import autograd, dispatch, fake, flops, nested, vmap
from tcgemm.ops._torch_private import any_autocast_enabled
from tcgemm.ops.arguments import check_words, refusal
from tcgemm.ops.epilogue import Scales, epilogue_of
from tcgemm.ops.operators import Operator, Scaled
from tcgemm.quant.quantize import dequantize

# granularity of the weight -> granularity of x
GRANULARITIES = {"tensor": "tensor", "row": "row", "128x128": "1x128"}
_NAME = "tcgemm.quantized_linear"
_SIXTEEN = (torch.float16, torch.bfloat16)
SOURCES = (*_SIXTEEN, torch.float32)
_quantize = torch.ops.tcgemm.quantize.default

_library = torch.library.Library("tcgemm", "FRAGMENT")  # owns the registrations
_library.define(
    "quantized_linear(Tensor x, Tensor weight, Tensor? weight_scale=None, Tensor? bias=None, "
    "Tensor? residual=None, *, ScalarType? dtype=None, str granularity, str? activation=None, "
    "ScalarType? out_dtype=None, str? precision=None) -> Tensor"
)


class QuantizedLinear(Operator):
    """The operator of one call; weight_scale belongs to a weight that is quantised already."""

    name = "quantized_linear"
    default = torch.ops.tcgemm.quantized_linear.default
    weight = True
    batched = False
    operand_names = ("x", "weight")
    positional = ("a", "b", "weight_scale", "bias", "residual")
    constant_names = ("weight_scale",)

    def __init__(self, weight_scale=None, dtype=None, granularity=None, work=None):
        self.constants = (weight_scale,)
        self.dtype = dtype
        self.granularity = granularity
        self.work = work

    def tensors(self, a, b, c, bias, residual):
        return a, b, *self.constants, bias, residual

    def keywords(self, activation, alpha, beta, out_dtype, acc_dtype, precision):
        return {
            "dtype": self.dtype,
            "granularity": self.granularity,
            "activation": activation,
            "out_dtype": out_dtype,
            "precision": precision,
        }

    def run(self, a, b, c, bias, residual, epilogue):
        return self.default(*self.tensors(a, b, c, bias, residual), **self.keywords(*epilogue))

    def bind(self, args, kwargs):
        given = self.given(args, kwargs)
        work = _work(given["a"], given["b"])
        scale, dtype, granularity = map(given.get, ("weight_scale", "dtype", "granularity"))
        return QuantizedLinear(scale, dtype, granularity, work), self.operands(given)

    def with_constants(self, constants):
        return QuantizedLinear(*constants, self.dtype, self.granularity, self.work)

    def grad_operands(self, a, b, precision):
        """x and the weight in 16 bits."""
        if b is not None and self.constants[0] is not None:
            b = dequantize(b, self.constants[0], self.work)
        return (*(each if each is None else each.to(self.work) for each in (a, b)), None)


def _work(x, weight):
    """The dtype that the gradients are multiplied in: x's, else the weight's, else bfloat16."""
    dtypes = [tensor.dtype for tensor in (x, weight) if tensor.dtype in _SIXTEEN]
    return dtypes[0] if dtypes else torch.bfloat16


def check_options(name, dtype, granularity):
    """Checks the options of the layer and the function; quantize has other granularities."""
    if granularity not in GRANULARITIES:
        raise RuntimeError(
            f"{name}: granularity is {granularity!r}, but there are "
            '"tensor", "row" and "128x128" (of the weight); pass one of these.'
        )
    if dtype not in QUANTIZED or (granularity == "128x128" and dtype not in FP8):
        also = " (128x128: the two of float8)" if granularity == "128x128" else ""
        raise RuntimeError(
            f"{name}: dtype is {dtype}, but values are quantised to "
            f"{', '.join(str(each) for each in QUANTIZED)}{also}; pass one of these."
        )


def _checked_dtype(weight, weight_scale, dtype, granularity):
    """The dtype of the product: the given one, or that of a weight that is quantised already."""
    if dtype is None:
        dtype = weight.dtype if weight_scale is not None and weight.dtype in QUANTIZED else E4M3
    check_options(_NAME, dtype, granularity)
    if weight_scale is None and weight.dtype not in SOURCES:
        raise RuntimeError(
            f"{_NAME}: weight is {weight.dtype}, but it must be torch.float16, torch.bfloat16 or "
            "torch.float32, or have a weight_scale; convert it with .to(...)."
        )
    if weight_scale is not None and weight.dtype is not dtype:
        raise RuntimeError(
            f"{_NAME}: weight is {weight.dtype} and has a weight_scale, but dtype is {dtype}; "
            "pass the dtype that it was quantised to, or none."
        )
    return dtype


def _forward(
    x,
    weight,
    weight_scale=None,
    bias=None,
    residual=None,
    *,
    dtype=None,
    granularity,
    activation=None,
    out_dtype=None,
    precision=None,
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
    epilogue = epilogue_of(activation, 1.0, 1.0, out_dtype or x.dtype, None, precision)
    out = call.run(x8, weight.t(), None, bias, residual, epilogue)
    return out.squeeze(0) if vector else out


def _fake(x, weight, weight_scale=None, *addends, dtype=None, granularity, out_dtype=None, **_):
    _checked_dtype(weight, weight_scale, dtype, granularity)
    tensors = (x, weight, weight_scale, *addends)
    return fake.gemm(OPERATOR)(*tensors, out_dtype=out_dtype or x.dtype)


def _vmap(info, in_dims, *args, **kwargs):
    """Rows have scales of their own, so a batch of x alone is one call."""
    batch_x, *others = in_dims
    alone = batch_x is not None and all(dim is None for dim in others)
    if not alone or kwargs["granularity"] == "tensor":
        return vmap.loop_over_examples(OPERATOR.default, info, in_dims, args, kwargs)
    x, *rest = args
    return OPERATOR.default(x.movedim(batch_x, 0), *rest, **kwargs), 0


_library.impl("quantized_linear", _forward, "CompositeExplicitAutograd")
OPERATOR = QuantizedLinear()
torch.library.register_fake("tcgemm::quantized_linear", _fake)
torch.library.register_vmap("tcgemm::quantized_linear", _vmap)
autograd.register(OPERATOR)
flops.count(OPERATOR)


def quantized_linear(
    x,
    weight,
    bias=None,
    *,
    weight_scale=None,
    dtype=None,
    granularity="row",
    activation=None,
    residual=None,
    out_dtype=None,
    precision=None,
):
    """A linear layer whose product runs in 8 bits: x (..., K), weight (N, K) -> (..., N).

    x and weight are quantised in every call (tcgemm.quantize), multiplied by tcgemm.linear with
    their scales, and what comes after is linear's: act(x @ weight.t() + bias) + residual, rounded
    once to out_dtype, by default x's dtype.

    Gradients go straight through the rounding: x, weight, bias and residual get those of
    linear(x, weight, bias), computed by products of 16 bits (in x's dtype, or the weight's, or
    bfloat16 if both are float32), so that a master weight of any dtype learns.

    Arguments:
        x, weight (Tensor): float16, bfloat16 or float32, also different ones. bias (N,).
        weight_scale (Tensor): of a weight that is quantised already, as tcgemm.quantize returned
            it; weight then has this dtype and no gradient.
        dtype (torch.dtype): float8_e4m3fn, float8_e5m2 or int8. Default: that of a weight with a
            weight_scale, else float8_e4m3fn.
        granularity: "row" (each row of x and of weight has a scale), "tensor", or, for float8,
            "128x128" (weight in blocks of 128 x 128, x in blocks of 1 x 128).
        activation, residual, out_dtype, precision: as in tcgemm.linear; precision is "promoted" or
            "fast" for float8.

    Under torch.autocast x, bias and residual are cast, and the result has autocast's dtype.
    torch.compile, torch.func and forward mode work.

    Raises TypeError if an operand is no tensor, RuntimeError with a sentence for everything else.

    Example:
        >>> x, weight = torch.randn(8, 64).bfloat16(), torch.randn(32, 64, requires_grad=True)
        >>> tcgemm.quantized_linear(x, weight, activation="gelu").sum().backward()
        >>> weight.grad.dtype
        torch.float32
    """
    tensors = (x, weight, weight_scale, bias, residual)
    traced = torch.compiler.is_compiling()
    overridden = has_torch_function_variadic(*tensors)
    if traced or overridden:
        options = {
            "weight_scale": weight_scale,
            "dtype": dtype,
            "granularity": granularity,
            "activation": activation,
            "residual": residual,
            "out_dtype": out_dtype,
            "precision": precision,
        }
        if nested.is_jagged(x):
            operands = (OPERATOR.name, x, weight, bias)
            return nested.linear(quantized_linear, *operands, rows=("residual",), **options)
        if overridden:
            return handle_torch_function(quantized_linear, tensors, x, weight, bias, **options)
    if not dispatch.all_tensors(OPERATOR, *tensors):
        names = ("x", "weight", "weight_scale", "bias", "residual")
        raise dispatch.no_tensor(OPERATOR.name, dict(zip(names, tensors, strict=True)))
    if traced or any_autocast_enabled():
        x, bias, residual = dispatch.autocast(x, bias, residual)
    call = QuantizedLinear(weight_scale, dtype, granularity, _work(x, weight))
    epilogue = epilogue_of(activation, 1.0, 1.0, out_dtype, None, precision)
    operands = (x, weight, None, bias, residual, epilogue)
    if traced:
        check_words(OPERATOR.name, epilogue)
        return call.run(*operands)
    try:
        return autograd.call_checked(call, *operands)
    except RuntimeError as error:
        refused = _refusal(error, dtype, granularity, epilogue)
        if refused is None:
            raise
        raise refused from None


def _refusal(error, dtype, granularity, epilogue):
    """The error to raise for one that the operator raised; None: that one."""
    if not isinstance(dtype, torch.dtype | None) or not isinstance(granularity, str):
        shown = dtype if isinstance(dtype, torch.dtype) else repr(dtype)
        try:
            check_options(_NAME, E4M3 if dtype is None else shown, granularity)
        except RuntimeError as better:
            return better
    return refusal(OPERATOR.name, error, epilogue)
