"""The linear layer whose forward and backward multiply in float8.

    forward    x  (M, K) -> x8 e4m3      weight (N, K) -> w8 e4m3      one scale each
               act((x8 @ w8.t()) * sx * sw + bias)
    backward   gz (M, N) -> g8 e5m2      gz = g * act'(z)
               gx = (g8 @ w8) * sg * sw            gw = (g8.t() @ x8) * sg * sx
               gbias = the sum of the rows of gz, before it is rounded to 8 bits

The 8-bit formats are from Micikevicius and others, "FP8 Formats for Deep Learning" (2022): four
bits of exponent for x and the weight, and five for gradients, whose magnitudes differ more. The
forward saves x8 and w8 instead of x and the weight.

Current scaling: a scale comes from the tensor itself, which is read twice. Delayed scaling: a scale
comes from the tensors of former steps, and the pass that rounds also finds amax for later ones.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from tcgemm.dtypes import E4M3, E5M2
from tcgemm.operands.quant.weight import QuantizedWeight
from tcgemm.ops import dispatch, fake, fused_backward, nested
from tcgemm.ops._torch_private import (
    NestedTensor,
    SingleLevelFunction,
    any_autocast_enabled,
    any_requires_grad,
    below_autograd,
    enable_single_level_autograd_function,
    foreach_copy,
    is_gradient_batch,
    under_transform,
)
from tcgemm.ops.activations import ACTIVATIONS, activate
from tcgemm.ops.epilogue import Epilogue, Scales
from tcgemm.ops.memory import eager
from tcgemm.ops.operand_gradients import as_rows
from tcgemm.ops.operators import Scaled
from tcgemm.typing import Activation, Precision

_LAYER = "nn.Float8Linear"
_NAME = f"tcgemm.{_LAYER}"
SOURCES = (torch.float16, torch.bfloat16, torch.float32)
FORMATS = (E4M3, E4M3, E5M2)  # of x, of the weight and of the gradient
X, WEIGHT, GRADIENT = range(3)
_quantize = eager(torch.ops.tcgemm.quantize.default)
_quantize_scaled = eager(torch.ops.tcgemm.quantize.scaled)

_library = torch.library.Library("tcgemm", "FRAGMENT")  # owns the registrations
_library.define(
    "_float8_linear(Tensor x, Tensor weight, Tensor? bias, Tensor? scales, Tensor(a!)? amax, "
    "Tensor(b!)? gradient_amax, str? activation, str? precision) -> Tensor"
)


class Delayed(NamedTuple):
    """The state of delayed scaling that a call reads and writes; all None with current scaling.

    scales: (3,) for x, the weight and the gradient; None: not known yet; the tensors give them.
    amax: (2,), which grows to the largest magnitudes of x and of the weight.
    gradient_amax: (1,), which the backward lets grow to the amax of the gradient.
    """

    scales: Tensor | None = None
    amax: Tensor | None = None
    gradient_amax: Tensor | None = None


class State(NamedTuple):
    """The buffers of a layer with delayed scaling; history (3, steps) has the newest step first."""

    amax: Tensor
    gradient_amax: Tensor
    history: Tensor
    scales: Tensor


def amax_of(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The amax of a whole tensor, as quantize(tensor, dtype) finds it."""
    one = torch.ones((), dtype=torch.float32, device=tensor.device)
    return _quantize_scaled(tensor, one, dtype, "tensor")[1]


def scale_of(amax: Tensor, dtype: torch.dtype) -> Tensor:
    """The scale that tcgemm.quantize takes for this amax."""
    return _scales(amax, torch.full_like(amax, torch.finfo(dtype).max))


def _scales(amax: Tensor, limits: Tensor) -> Tensor:
    """The scales of these magnitudes; limits has the largest value of the format of each one."""
    # On a GPU torch divides by a number as it multiplies by the reciprocal, which rounds twice, and
    # torch.where with a number waits for the GPU.
    return (amax / limits).clamp(min=2.0**-126).masked_fill(~(amax > 0), 1.0)


@torch.no_grad()
def move_history(states: list[State], group: Any = None) -> Tensor:
    """Moves the magnitudes of a step into the histories, and sets the scales of the next one.

    The layers go together: a model has hundreds of them, and one of them needs thirty operators.
    A magnitude of zero is no measurement, and leaves its history as it is. The largest magnitude of
    the processes of a group counts.

    Returns bool (layers,): all magnitudes of the layer are known.
    """
    amax, gradient_amax, history, scales = zip(*states, strict=True)
    newest = torch.stack([*map(torch.cat, zip(amax, gradient_amax, strict=True))])
    if group is not None:
        torch.distributed.all_reduce(newest, torch.distributed.ReduceOp.MAX, group)
    newest = newest.unsqueeze(2)
    histories = torch.stack(history)  # (layers, 3, steps)
    moved = torch.cat([newest, histories[:, :, :-1]], dim=2)
    histories = torch.where(newest > 0, moved, histories)
    largest = histories.amax(2)
    limits = torch.empty_like(largest)
    for which, dtype in enumerate(FORMATS):
        limits.select(1, which).fill_(torch.finfo(dtype).max)
    zeros = torch.zeros_like(largest)
    foreach_copy(
        [*history, *scales, *amax, *gradient_amax],
        [*histories, *_scales(largest, limits), *zeros[:, :2], *zeros[:, 2:]],
    )
    return (largest > 0).all(1)


def quantize(
    tensor: Tensor, which: int, scales: Tensor | None, amax: Tensor | None
) -> tuple[Tensor, Tensor]:
    """(values, scale) of X, WEIGHT or GRADIENT. `amax`, of one element, grows to its amax."""
    dtype = FORMATS[which]
    if amax is None:
        return _quantize(tensor, dtype, "tensor")
    if scales is None:
        scale = scale_of(amax_of(tensor, dtype), dtype)
    else:
        scale = scales[which].clone()  # the backward needs it, and the buffer may change
    values, largest = _quantize_scaled(tensor, scale, dtype, "tensor")
    torch.maximum(amax, largest, out=amax)
    return values, scale


def _product(a, b, scale_a, scale_b, dtype, precision, bias=None, activation=None):
    epilogue = Epilogue(activation=activation, out_dtype=dtype, precision=precision)
    return eager(Scaled(Scales(scale_a, scale_b)).run)(a, b, None, bias, None, epilogue)


def _check(x, weight):
    for name, tensor in (("x", x), ("weight", weight)):
        if tensor.dtype not in SOURCES:
            raise RuntimeError(
                f"{_NAME}: {name} is {tensor.dtype}, but it must be torch.float16, torch.bfloat16 "
                "or torch.float32; convert it with .to(...)."
            )
    if weight.dim() != 2:
        raise RuntimeError(
            f"{_NAME}: weight has shape {tuple(weight.shape)}, but it must be a matrix (N, K); "
            "reshape it."
        )
    if x.dim() == 0 or x.shape[-1] != weight.shape[1]:
        raise RuntimeError(
            f"{_NAME}: x has shape {tuple(x.shape)}, but the weight of shape "
            f"{tuple(weight.shape)} multiplies rows of {weight.shape[1]}; reshape x."
        )


def _forward(x, weight, bias, scales, amax, _gradient_amax, activation, precision, learns=False):
    """(act(x @ weight.t() + bias), what the backward needs if there is one)."""
    _check(x, weight)
    with below_autograd():
        rows = as_rows(x)
        amax_x, amax_weight = (None, None) if amax is None else amax.unbind()
        x8, scale_x = quantize(rows, X, scales, amax_x)
        if isinstance(weight, QuantizedWeight):  # FSDP2 has gathered it in 8 bits
            w8, scale_w = weight.values, weight.scale
        else:
            w8, scale_w = quantize(weight, WEIGHT, scales, amax_weight)
        # The gradient of relu needs the sign of the result. That of others needs z, which the
        # kernels do not store beside a result of 8-bit operands.
        keeps_z = learns and activation in ACTIVATIONS and activation != "relu"
        fused = None if keeps_z else activation
        # z has its shape from the product: torch refuses to change the result of a Function in
        # place if it is a view.
        a = x8.view(x.shape)
        z = _product(a, w8.t(), scale_x, scale_w, x.dtype, precision, bias, fused)
        out = activate(z, activation) if keeps_z else z
    saved = x8, scale_x, w8, scale_w, bias, None if activation is None else z
    return out, saved


class Float8(SingleLevelFunction):
    """The product and its gradients. Neither has a second derivative."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        """act(x @ weight.t() + bias); ctx gets what the gradients need."""
        out, saved = _forward(*arguments, learns=True)
        ctx.save_for_backward(*saved)
        x, weight, _bias, ctx.scales, _amax, ctx.gradient_amax, ctx.activation, _ = arguments
        ctx.shape, ctx.dtypes = x.shape, (x.dtype, weight.dtype)
        return out

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, g: Tensor
    ) -> tuple[Tensor | None, ...]:
        """The gradients of x, the weight and the bias, and None for the other arguments."""
        if torch.is_grad_enabled():
            raise RuntimeError(
                f"{_NAME}: a second derivative is asked for (create_graph=True), but products in "
                "float8 have none; use tcgemm.nn.Linear."
            )
        if ctx.gradient_amax is not None and is_gradient_batch(g):
            raise RuntimeError(
                f"{_NAME}: is_grads_batched=True asks for a batch of gradients, but delayed "
                'scaling keeps the amax of one; use scaling="current", or one backward for '
                "each gradient."
            )
        need_x, need_weight, need_bias = ctx.needs_input_grad[:3]
        x8, scale_x, w8, scale_w, bias, z = ctx.saved_tensors
        with below_autograd():
            g = as_rows(g)
            z = None if z is None else as_rows(z)
            sum_dtype = bias.dtype if need_bias else None
            gz, sums = fused_backward.run(g, z, ctx.activation, g.dtype, sum_dtype)
            if need_bias and sums is None:
                sums = gz.sum(0, dtype=torch.float32).to(bias.dtype)
            gx = gw = None
            if need_x or need_weight:
                g8, scale_g = quantize(gz, GRADIENT, ctx.scales, ctx.gradient_amax)
                if gz.dtype is torch.float16 and ctx.gradient_amax is not None:
                    # With the scale of former steps Inf saturates, but torch.amp.GradScaler has to
                    # see it: 0 * Inf is NaN.
                    scale_g = scale_g + 0 * gz.sum(dtype=torch.float32)
                if need_x:
                    gx = _product(g8, w8, scale_g, scale_w, ctx.dtypes[0], None)
                    gx = gx.reshape(ctx.shape)
                if need_weight:
                    gw = _product(g8.t(), x8, scale_g, scale_x, ctx.dtypes[1], None)
        return gx, gw, sums, None, None, None, None, None


_apply: Any = getattr(Float8, "apply")  # noqa: B009  (its base class has no stub)


def _kernel(*arguments):
    """The kernel of the operator without derivatives, on every device."""
    return _forward(*arguments)[0]


def _autograd_kernel(*arguments):
    if under_transform():
        raise RuntimeError(
            f"{_NAME}: torch.func and forward mode are not supported; use "
            "tcgemm.quantized_linear, whose derivatives they know."
        )
    if torch.is_grad_enabled() and any_requires_grad(*arguments):
        with enable_single_level_autograd_function():
            return _apply(*arguments)
    return _kernel(*arguments)


def _fake(x, weight, *_others):
    return x.new_empty(*x.shape[:-1], weight.shape[0])


_library.impl("_float8_linear", _kernel, "CompositeExplicitAutograd")
_library.impl("_float8_linear", _autograd_kernel, "Autograd")
fake.implement(torch.ops.tcgemm._float8_linear.default, _fake, _NAME, any_extents=True)


def float8_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    delayed: Delayed,
    activation: Activation | None,
    precision: Precision | None,
) -> Tensor:
    """x (..., K) or jagged (B, j, K), weight (N, K), bias (N,) -> (..., N) in x's dtype or
    autocast's."""
    if isinstance(x, NestedTensor):  # a jagged one: its rows
        options = {"delayed": delayed, "activation": activation, "precision": precision}
        return nested.linear(float8_linear, _LAYER, x, weight, bias, **options)
    if x.is_nested:
        raise RuntimeError(
            f"{_NAME}: x is a nested tensor, but x must be a dense, strided tensor or a jagged "
            "NestedTensor; make it with layout=torch.jagged, or call the layer for each part of "
            "x.unbind()."
        )
    if any_autocast_enabled():
        x, bias = dispatch.autocast(x, bias)
    arguments = (x, weight, bias, *delayed, activation, precision)
    if torch.compiler.is_compiling():
        _check(x, weight)
        return torch.ops.tcgemm._float8_linear.default(*arguments)
    return _autograd_kernel(*arguments)
