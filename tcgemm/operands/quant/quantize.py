"""Conversion to 8-bit values with scales, and back."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal, overload

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_variadic

from tcgemm import dtypes
from tcgemm.dtypes import QUANTIZED
from tcgemm.ops import autograd, calls, dispatch, fake
from tcgemm.ops.arguments import wrong_type
from tcgemm.typing import Granularity

BLOCK = 128  # elements along each side of a block that shares a scale
_quantize = torch.ops.tcgemm.quantize.default
_quantize_scaled = torch.ops.tcgemm.quantize.scaled


def scale_shape(shape: Sequence[int], granularity: str) -> tuple[int, ...]:
    """The shape of the scales that quantize returns for a tensor of this shape."""
    if granularity == "tensor":
        return ()
    if granularity == "row":
        return (*shape[:-1], 1)
    columns = -(-shape[-1] // BLOCK)
    if granularity == "1x128":
        return (*shape[:-1], columns)
    return (*shape[:-2], -(-shape[-2] // BLOCK), columns)


@overload
def quantize(
    x: Tensor,
    dtype: torch.dtype | str,
    granularity: Granularity = ...,
    *,
    scale: Tensor | None = ...,
    amax: Literal[False] = ...,
) -> tuple[Tensor, Tensor]: ...


@overload
def quantize(
    x: Tensor,
    dtype: torch.dtype | str,
    granularity: Granularity = ...,
    *,
    scale: Tensor,
    amax: Literal[True],
) -> tuple[Tensor, Tensor, Tensor]: ...


def quantize(
    x: Tensor,
    dtype: torch.dtype | str,
    granularity: Granularity = "tensor",
    *,
    scale: Tensor | None = None,
    amax: bool = False,
) -> tuple[Tensor, ...]:
    """Rounds a tensor to 8 bits, with float32 scales: x is about values * scale.

    Example:
        >>> x, w = torch.randn(4, 256), torch.randn(48, 256)
        >>> values, scale = tcgemm.quantize(x, torch.int8, "row")
        >>> values.dtype, scale.shape
        (torch.int8, torch.Size([4, 1]))
        >>> w_values, w_scale = tcgemm.quantize(w, torch.int8, "row")
        >>> options = {"scale_a": scale, "scale_b": w_scale.t(), "out_dtype": torch.float32}
        >>> tcgemm.mm(values, w_values.t(), **options).shape
        torch.Size([4, 48])

    The elements of a group share a scale:

        scale = max(amax / limit, 2**-126), but 1 for a group of zeros, and NaN for a group with
                NaN or Inf
        values = x / scale, rounded to nearest even and saturated

    amax is the largest magnitude of the group. limit is the largest value of dtype: 448 for
    float8_e4m3fn, 57344 for float8_e5m2 (OCP 8-bit floating point, revision 1.0), 127 for int8.
    So a group with NaN or Inf is NaN as a whole, and so are the products with it. The CPU and a GPU
    give the same bits.

    With a given scale, values = x / scale with the same rounding, and what is too large saturates,
    Inf too. NaN stays NaN in float8 and becomes 0 in int8, which has no NaN. So give a scale only
    for an x without NaN, or leave it out.
    A scale of a former step needs no pass over x to find amax: this is delayed scaling. With
    amax=True the third result is the amax of each group, found in the same pass.

    Arguments:
        x (Tensor): (..., M, K) of float16, bfloat16 or float32, any strides. One dimension is
            enough except for "128x128".
        dtype (torch.dtype or its name): float8_e4m3fn, float8_e5m2 or int8.
        granularity (str): the elements that share a scale, and the shape of the scales.

            - "tensor": all elements; ()
            - "row": a row along K; (..., M, 1)
            - "1x128": 128 elements along K; (..., M, ceil(K/128))
            - "128x128": blocks of 128 x 128; (..., ceil(M/128), ceil(K/128))

        scale (Tensor): float32 scales of the shape of the granularity, to be used as they are;
            a positive number each. Default: the scales of amax.
        amax (bool): whether to return amax, too: float32, in the shape of the scales. It is the
            largest finite magnitude, and 0 for a group without one. It needs a given scale.

    Returns (values, scale), or (values, scale, amax). values has the shape of x and is contiguous.
    scale is float32, and fits scale_a of tcgemm.mm. For the operand b, quantise b.mT and pass the
    transposes of both. The results have no derivatives: tcgemm.quantized_linear is for layers that
    learn.

    Raises:
        TypeError: x or scale is no tensor.
        RuntimeError: a dtype, granularity, shape or device is none of these, or amax is asked for
            without a scale.
    """
    dtype = dtypes.of("tcgemm.quantize", "dtype", dtype, QUANTIZED)
    if has_torch_function_variadic(x, scale):
        options: dict[str, Any] = {"scale": scale, "amax": amax}
        return handle_torch_function(quantize, (x, scale), x, dtype, granularity, **options)
    if not isinstance(x, torch.Tensor):
        raise dispatch.no_tensor("quantize", {"x": x})
    if scale is not None and not isinstance(scale, torch.Tensor):
        raise wrong_type("quantize", "scale", scale)
    if amax and scale is None:
        raise RuntimeError(
            "tcgemm.quantize: amax is asked for without a scale, but only a call with a given "
            "scale returns it; pass scale, or take scale * limit of the result."
        )
    try:
        if scale is None:
            return calls.without_grad(_quantize, x, dtype, granularity)
        values, largest = calls.without_grad(_quantize_scaled, x, scale, dtype, granularity)
    except RuntimeError as error:
        raise _refusal(error, dtype, granularity) from None
    scale = scale.detach()
    return (values, scale, largest) if amax else (values, scale)


def _refusal(error: RuntimeError, dtype: object, granularity: object) -> RuntimeError:
    """The error to raise for one of the operator. The dispatcher's errors name its own types."""
    if str(error).startswith("tcgemm."):
        return error
    if dtype not in QUANTIZED:
        return wrong_dtype("tcgemm.quantize", dtype)
    return error if isinstance(granularity, str) else _wrong_granularity(granularity)


def wrong_dtype(function: str, dtype: object, condition: str = "") -> RuntimeError:
    """The error for a dtype that values are not quantised to."""
    return RuntimeError(
        f"{function}: dtype is {dtype!r}, but values are quantised to "
        f"{', '.join(map(str, QUANTIZED))}{condition}; pass one of these."
    )


def _wrong_granularity(granularity: object) -> RuntimeError:
    shown = f'"{granularity}"' if isinstance(granularity, str) else repr(granularity)
    return RuntimeError(
        f'tcgemm.quantize: granularity is {shown}, but there are "tensor", "row", "1x128" and '
        '"128x128"; pass one of these.'
    )


def dequantize(values: Tensor, scale: Tensor, dtype: torch.dtype | str = torch.float32) -> Tensor:
    """Returns values * scale, for the results of tcgemm.quantize in any of its granularities.

    Example:
        >>> x = torch.randn(4, 256)
        >>> error = tcgemm.dequantize(*tcgemm.quantize(x, torch.int8, "row")) - x
        >>> bool((error.abs().amax(1) <= x.abs().amax(1) / 253).all())
        True

    Arguments:
        values (Tensor): 8-bit values (..., M, K).
        scale (Tensor): float32; one element, (..., M, 1), (..., M, ceil(K/128)) or
            (..., ceil(M/128), ceil(K/128)).
        dtype (torch.dtype): the dtype of the result, which is rounded once, from float32.

    Raises:
        TypeError: values or scale is no tensor, or dtype is no torch.dtype.
        RuntimeError: the shapes do not fit each other.
    """
    for name, tensor in (("values", values), ("scale", scale)):
        if not isinstance(tensor, torch.Tensor):
            raise wrong_type("dequantize", name, tensor)
    dtype = dtypes.of("tcgemm.dequantize", "dtype", dtype)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(
            f"tcgemm.dequantize: dtype is {dtype!r}, but it must be a torch.dtype; pass one of "
            "torch's, such as torch.bfloat16."
        )
    if scale.numel() != 1:
        for granularity in ("row", "1x128", "128x128")[: 2 + (values.dim() > 1)]:
            if scale.shape == scale_shape(values.shape, granularity):
                break
        else:
            raise RuntimeError(
                f"tcgemm.dequantize: scale has shape {tuple(scale.shape)}, but values of shape "
                f"{tuple(values.shape)} have a scale of one element, or one element for each row "
                "or block; pass the scale that tcgemm.quantize returned with these values."
            )
        if granularity == "128x128":
            scale = scale.repeat_interleave(BLOCK, -2)[..., : values.shape[-2], :]
        if granularity != "row":
            scale = scale.repeat_interleave(BLOCK, -1)[..., : values.shape[-1]]
    elif scale.dim() > values.dim():
        scale = scale.reshape(())
    return (values.float() * scale).to(dtype)


def _fake(x, dtype, granularity="tensor"):
    scale = x.new_empty(scale_shape(x.shape, granularity), dtype=torch.float32)
    return x.new_empty(x.shape, dtype=dtype), scale


def _fake_scaled(x, scale, dtype, granularity="tensor"):
    return _fake(x, dtype, granularity)


def _vmap(op, info, in_dims, *arguments):
    """Each example has the scales of a group of its own. The tensors are x, or x and the scale."""
    count = sum(isinstance(argument, torch.Tensor) for argument in arguments)
    x, *scale = (
        tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        for tensor, dim in zip(arguments[:count], in_dims, strict=False)
    )
    dtype, granularity = (*arguments[count:], "tensor")[:2]
    if granularity != "tensor":
        return op(x, *scale, dtype, granularity), (0, 0)
    values, groups = op(x.flatten(1), *(one.reshape(-1, 1) for one in scale), dtype, "row")
    return (values.reshape(x.shape), groups.squeeze(-1)), (0, 0)


autograd.register_constant("quantize")
autograd.register_constant("quantize", "scaled")
fake.implement(_quantize, _fake, "tcgemm.quantize", any_extents=True)
fake.implement(_quantize_scaled, _fake_scaled, "tcgemm.quantize", any_extents=True)
torch.library.register_vmap(_quantize, functools.partial(_vmap, _quantize))
torch.library.register_vmap(_quantize_scaled, functools.partial(_vmap, _quantize_scaled))
