"""Packing: the codes and scales of a weight, by rounding to nearest or by the least squared error.

    scale = amax / limit, in the dtype of the scales        code = nearest(w / scale)

With zero points, scale = (max - min) / 15 of the group and 0, and the zero point is the code of 0.
A group with a NaN or an infinity gets the scale NaN: every product with it is NaN. The operator
_pack_weight computes this (csrc/core/pack_weight.h), with the same bits on CPU and GPU.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from tcgemm import dtypes
from tcgemm.dtypes import E4M3
from tcgemm.operands.packed.codes import row_chunks
from tcgemm.operands.packed.formats import E8M0, ENTRIES, FLOATS, Format, check_group, format_of
from tcgemm.operands.packed.parts import Layout, Parts, bytes_of
from tcgemm.operands.packed.stored import Stored
from tcgemm.operands.packed.weight import PackedWeight
from tcgemm.ops import autograd, fake, vmap
from tcgemm.ops.arguments import check_flag, wrong_type
from tcgemm.ops.memory import eager
from tcgemm.typing import PackedFormat, PackMethod, words

_NAME = "tcgemm.pack_weight"
_OPS: Any = torch.ops.tcgemm
_CHUNK = 2**24  # elements whose float32 values are in memory at a time
_SCALE_TYPES: dict[torch.dtype, str] = {  # in the words of the operator
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    E4M3: "e4m3",
    E8M0: "e8m0",
}


def pack_weight(
    w: Tensor,
    format: PackedFormat = "int4",
    group_size: int | Literal["default"] | None = "default",
    *,
    method: PackMethod = "nearest",
    zero_points: bool = False,
    scale_dtype: torch.dtype | str | None = None,
    table: Tensor | Sequence[float] | None = None,
) -> PackedWeight:
    """Packs a weight into 4 or 8 bits an element, with a scale for each group of a row.

    Example:
        >>> w = torch.randn(256, 512, dtype=torch.bfloat16)
        >>> packed = tcgemm.pack_weight(w, "int4", 128, method="mse")
        >>> packed.codes.shape, packed.scales.shape
        (torch.Size([256, 256]), torch.Size([256, 4]))
        >>> tcgemm.linear(torch.randn(8, 512).bfloat16(), packed).shape
        torch.Size([8, 256])

    Arguments:
        w (Tensor): (N, K) of float16, bfloat16 or float32, any strides.
        format (str): what a code is.

            - "int4": a whole number of 4 bits, with one zero point for all, or one for each group
            - "int8", "e4m3": a whole number of 8 bits, a float8_e4m3fn
            - "nf4", "fp4": an index of the 16 values of NormalFloat, or of the float of 4 bits
              e2m1
            - "mxfp4", "nvfp4": as "fp4", with the scales and group sizes of these standards
            - "table": an index of the 16 values of `table`

        group_size (int): the elements along K that share a scale: 32, 64 or 128, or None for a
            whole row; it divides K. "mxfp4" has 32 and "nvfp4" 16. Default: 128 for "int4", 64 for
            "nf4", "fp4" and "table", a whole row for "int8" and "e4m3".
        method (str): "nearest" takes the scale from the largest magnitude of a group. "mse" tries
            28 scales for each group (3 of "mxfp4"), and takes the one with the least squared error.
        zero_points (bool): True gives each group of "int4" a zero point as well, for weights that
            are not symmetric about 0.
        scale_dtype (torch.dtype or its name): float16, bfloat16 or float32; default: the dtype of
            w. "mxfp4" and "nvfp4" have scales of their own.
        table (Tensor): the 16 values of "table", in the order of the codes.

    Returns:
        A tcgemm.PackedWeight on the device of w. It has no gradient.

    A group that has a NaN or an infinity becomes NaN as a whole. So does a group whose scale is too
    large for scale_dtype.

    The bits do not depend on the device. The call needs no memory besides the result. Only "nvfp4"
    does, for the scale that all groups share: it converts up to 2**24 elements, or one longer row,
    to float32 at a time.

    Raises:
        TypeError: w is no tensor, or zero_points is no bool.
        RuntimeError: a shape, dtype or word is none of these, or group_size does not divide K.
    """
    if not isinstance(w, torch.Tensor):
        raise wrong_type("pack_weight", "w", w)
    check_flag("pack_weight", "zero_points", zero_points)
    form = format_of(_NAME, format)
    if w.dim() != 2 or w.dtype not in FLOATS or w.layout is not torch.strided:
        raise RuntimeError(
            f"{_NAME}: w must be a dense matrix (N, K) of torch.float16, torch.bfloat16 or "
            f"torch.float32, but is {w.dtype} of shape {tuple(w.shape)} and layout {w.layout}; "
            "pack one matrix at a time, and convert it with .to(...)."
        )
    n, k = w.shape
    size = form.default_group if group_size == "default" else group_size
    check_group(_NAME, form, size, k)
    size = None if size is None else int(size)
    scale_dtype = dtypes.of(_NAME, "scale_dtype", scale_dtype, FLOATS)
    dtype = _scale_dtype(form, scale_dtype, w.dtype)
    if method not in words(PackMethod):
        raise RuntimeError(
            f"{_NAME}: method is {method!r}, but there are {', '.join(words(PackMethod))}; pass "
            "one of these."
        )
    if zero_points and form.name != "int4":
        raise RuntimeError(
            f"{_NAME}: zero_points is True, but only the format 'int4' has them, not "
            f"{form.name!r}; leave it out."
        )
    values = _values(form, table)
    layout = Layout(format, n, k, size)
    with torch.no_grad():
        w = w.detach()
        code_book = book = whole = None
        if values:
            code_book = torch.tensor(values, dtype=torch.float32, device=w.device)
            book = _book(values, w.device)
        if form.has_global_scale:
            whole = _global_scale(w, form)
        if w.numel():
            codes, scales, zeros = eager(_OPS._pack_weight.default)(
                *(w, book, whole, form.operator, size or k),
                *(form.limit or max(map(abs, values)), _SCALE_TYPES[dtype], zero_points),
                method == "mse",
            )
        else:
            codes = w.new_zeros((n, layout.code_columns), dtype=torch.uint8)
            scales = bytes_of(w.new_ones((n, layout.groups), dtype=torch.float32).to(dtype))
            zeros = torch.zeros_like(scales, dtype=torch.uint8)
        codes = codes.view(torch.int8) if form.codes is torch.int8 else codes
        parts = Parts(codes, scales, zeros if zero_points else None, None, code_book, whole)
    return PackedWeight(Stored(parts, layout, w.dtype))


def _scale_dtype(form: Format, chosen: torch.dtype | None, own: torch.dtype) -> torch.dtype:
    if chosen in (None, *form.scales):
        return chosen or (own if own in form.scales else form.scales[0])
    rule = f"the format {form.name!r} has scales of {form.scales[0]}; leave it out"
    if form.scales == FLOATS:
        rule = (
            "it must be torch.float16, torch.bfloat16 or torch.float32; pass one of these, or "
            "leave it out for the dtype of w"
        )
    raise RuntimeError(f"{_NAME}: scale_dtype is {chosen}, but {rule}.")


def _values(form: Format, table: Any) -> list[float]:
    """The values of the codes, in float32; none where a code is no index."""
    if form.name != "table":
        if table is not None:
            raise RuntimeError(
                f"{_NAME}: table is given, but the format is {form.name!r}; pass format='table', "
                "or leave table out."
            )
        return [_single(value) for value in form.table or ()]
    try:
        values = [float(v) for v in (table.tolist() if isinstance(table, torch.Tensor) else table)]
    except TypeError:
        values = []
    finite = all(map(math.isfinite, values))
    if len(values) != ENTRIES or not finite or not any(values):
        came = f"{len(values)} values" if finite else "values that are not finite"
        came = came if values else repr(table)
        raise RuntimeError(
            f"{_NAME}: table is {came}, but the format 'table' has a code book of {ENTRIES} finite "
            "numbers, not all of them 0; pass these."
        )
    return [_single(value) for value in values]


def _book(values: list[float], device: torch.device) -> Tensor:
    """The code book of the operator. It has a row each for the largest numbers that are rounded to
    each value, for the values in ascending order, and for their codes."""
    first: dict[float, int] = {}
    for code, value in enumerate(values):
        first.setdefault(value, code)  # 0.0 and -0.0 are one
    ordered = sorted(first)
    # A tie goes to the even code, as the mantissas of e2m1 are rounded.
    boundaries = [
        _boundary((low + high) / 2, below=first[low] % 2 == 1)
        for low, high in itertools.pairwise(ordered)
    ]
    codes = [float(first[value]) for value in ordered]
    rows = ((boundaries, math.inf), (ordered, 0.0), (codes, 0.0))
    filled = [row + [rest] * (ENTRIES - len(row)) for row, rest in rows]
    return torch.tensor(filled, dtype=torch.float32, device=device)


def _single(value: float) -> float:
    """The nearest number in float32."""
    return struct.unpack("f", struct.pack("f", value))[0]


def _boundary(value: float, below: bool) -> float:
    """The largest number in float32 that is not above `value`; below: that is below it."""
    nearest = _single(value)
    if nearest < value or (nearest == value and not below):
        return nearest
    (bits,) = struct.unpack("i", struct.pack("f", nearest))
    bits = bits - 1 if bits > 0 else bits + 1 if bits < 0 else -(2**31) + 1
    return struct.unpack("f", struct.pack("i", bits))[0]


def _global_scale(w: Tensor, form: Format) -> Tensor:
    """The scale with which the group of the largest finite magnitude has the largest scale."""
    amax = torch.zeros((), dtype=torch.float32, device=w.device)
    for rows in row_chunks(w.shape[0], w.shape[1], _CHUNK):
        chunk = w[rows].float().abs()
        chunk = chunk.masked_fill(~(chunk < math.inf), 0.0)
        amax = torch.maximum(amax, chunk.amax())
    # On a GPU torch divides by a number as it multiplies by the reciprocal, which rounds twice.
    scale = amax / torch.full_like(amax, form.limit * torch.finfo(E4M3).max)
    return scale.masked_fill(scale == 0, 1.0)


def _fake(w, book, global_scale, format, group_size, _limit, scale_type, zero_points=False, *_):
    n, k = w.shape
    dtypes = {name: dtype for dtype, name in _SCALE_TYPES.items() if dtype in FLOATS}
    groups = (n, k // group_size)
    columns = k if format in ("int8", "e4m3") else (k + 1) // 2
    return (
        w.new_empty((n, columns), dtype=torch.uint8),
        w.new_empty(groups, dtype=dtypes.get(scale_type, torch.uint8)),
        w.new_empty(groups if zero_points else (0,), dtype=torch.uint8),
    )


autograd.register_constant("_pack_weight")
fake.implement(_OPS._pack_weight.default, _fake, "tcgemm._pack_weight")
vmap.register_one_by_one("_pack_weight")
