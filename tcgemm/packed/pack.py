"""Packing: the codes and scales of a weight, by rounding to nearest or by the least squared error.

    scale = amax / limit, in the dtype of the scales        code = nearest(w / scale)

With zero points, scale = (max - min) / 15 of the group and 0, and the zero point is the code of 0.
A group with a NaN or an infinity gets the scale NaN: every product with it is NaN.
"""

from __future__ import annotations

import itertools
import math
import struct
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

from tcgemm.dtypes import E4M3
from tcgemm.ops.arguments import check_flag, wrong_type
from tcgemm.packed.codes import MIDDLE, pack_nibbles, row_chunks
from tcgemm.packed.formats import (
    E8M0,
    ENTRIES,
    FLOATS,
    Format,
    check_group,
    format_of,
)
from tcgemm.packed.parts import Layout, Parts
from tcgemm.packed.weight import PackedWeight
from tcgemm.typing import PackedFormat, PackMethod, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_NAME = "tcgemm.pack_weight"
_CHUNK = 2**24  # elements that are packed at a time: each takes about 40 bytes meanwhile
_UNSIGNED = 15  # the largest code with zero points
# The scales that are tried for the least squared error, as multiples of amax / limit. The first one
# is kept where none is better. Scales of mxfp4 are powers of two.
_FACTORS = (1.0, *(step / 50 for step in range(54, 26, -1) if step != 50))
_POWERS = (1.0, 2.0, 0.5)


class _Book(NamedTuple):
    """A code book in the order of its values, for torch.bucketize."""

    boundaries: torch.Tensor  # the largest numbers that are rounded to each value
    values: torch.Tensor
    codes: torch.Tensor  # uint8


class _Scaled(NamedTuple):
    """The scales and zero points of some rows, as they are stored."""

    scales: torch.Tensor
    zero_points: torch.Tensor | None


def pack_weight(
    w: Tensor,
    format: PackedFormat = "int4",
    group_size: int | Literal["default"] | None = "default",
    *,
    method: PackMethod = "nearest",
    zero_points: bool = False,
    scale_dtype: torch.dtype | None = None,
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
        scale_dtype (torch.dtype): float16, bfloat16 or float32; default: the dtype of w. "mxfp4"
            and "nvfp4" have scales of their own.
        table (Tensor): the 16 values of "table", in the order of the codes.

    Returns:
        A tcgemm.PackedWeight on the device of w. It has no gradient.

    A group that has a NaN or an infinity becomes NaN as a whole. So does a group whose scale is too
    large for scale_dtype.

    The memory that the call needs besides the result does not depend on the size of w.

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
    dtype = _scale_dtype(form, scale_dtype, w.dtype)
    _check_words(form, method, zero_points)
    layout = Layout(format, n, k, size)
    with torch.no_grad():
        book, values = _book(form, table, w.device)
        limit = form.limit or float(max(abs(each) for each in _listed(table)))
        whole = _global_scale(w, form) if form.has_global_scale else None
        packer = _Packer(layout, dtype, method, zero_points, book, limit, whole)
        parts = packer.pack(w.detach())
    return PackedWeight.of(parts._replace(table=values, global_scale=whole), layout, w.dtype)


def _check_words(form: Format, method: object, zero_points: bool) -> None:
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


def _scale_dtype(form: Format, given: torch.dtype | None, own: torch.dtype) -> torch.dtype:
    if form.scales != FLOATS:
        (fixed,) = form.scales
        if given not in (None, fixed):
            raise RuntimeError(
                f"{_NAME}: scale_dtype is {given}, but the format {form.name!r} has scales of "
                f"{fixed}; leave it out."
            )
        return fixed
    if given is not None and given not in FLOATS:
        raise RuntimeError(
            f"{_NAME}: scale_dtype is {given}, but it must be torch.float16, torch.bfloat16 or "
            "torch.float32; pass one of these, or leave it out for the dtype of w."
        )
    return given or own


def _listed(table: object) -> list[float]:
    """The values of a table that the user gave."""
    values = table.tolist() if isinstance(table, torch.Tensor) else table
    try:
        listed = [float(each) for each in values]  # pyright: ignore[reportGeneralTypeIssues]
    except TypeError:
        listed = []
    finite = all(map(math.isfinite, listed))
    if len(listed) != ENTRIES or not finite or not any(listed):
        came = f"{len(listed)} values" if finite else "values that are not finite"
        came = came if listed else repr(table)
        raise RuntimeError(
            f"{_NAME}: table is {came}, but the format 'table' has a code book of {ENTRIES} finite "
            "numbers, not all of them 0; pass these."
        )
    return listed


def _book(form: Format, table: object, device: torch.device) -> tuple[_Book | None, Tensor | None]:
    """(the code book in the order of its values, and in the order of its codes)."""
    if table is not None and form.name != "table":
        raise RuntimeError(
            f"{_NAME}: table is given, but the format is {form.name!r}; pass format='table', or "
            "leave table out."
        )
    if not form.indexes:
        return None, None
    listed = [_single(each, below=False) for each in form.table or _listed(table)]
    values = torch.tensor(listed, dtype=torch.float32, device=device)
    first: dict[float, int] = {}
    for code, value in enumerate(listed):
        first.setdefault(value, code)  # 0.0 and -0.0 are one
    ordered = sorted(first)
    # A tie goes to the even code, as the mantissas of e2m1 are rounded.
    boundaries = [
        _single((low + high) / 2, below=first[low] % 2 == 1)
        for low, high in itertools.pairwise(ordered)
    ]
    book = _Book(
        torch.tensor(boundaries, dtype=torch.float32, device=device),
        torch.tensor(ordered, dtype=torch.float32, device=device),
        torch.tensor([first[value] for value in ordered], dtype=torch.uint8, device=device),
    )
    return book, values


def _single(value: float, below: bool) -> float:
    """A number in float32, or the largest one below it."""
    (bits,) = struct.unpack("i", struct.pack("f", value))
    if below:
        bits = bits - 1 if bits > 0 else bits + 1 if bits < 0 else -(2**31) + 1
    return struct.unpack("f", struct.pack("i", bits))[0]


def _global_scale(w: Tensor, form: Format) -> Tensor:
    """The scale with which that of the group of the largest finite magnitude is the largest."""
    amax = torch.zeros((), dtype=torch.float32, device=w.device)
    for rows in row_chunks(w.shape[0], w.shape[1], _CHUNK):
        chunk = w[rows].float().abs()
        chunk = chunk.masked_fill(~(chunk < math.inf), 0.0)
        amax = torch.maximum(amax, chunk.amax()) if chunk.numel() else amax
    scale = _quotient(amax, form.limit * torch.finfo(E4M3).max)
    return scale.masked_fill(scale == 0, 1.0)


def _quotient(numbers: Tensor, divisor: float) -> Tensor:
    """numbers / divisor, rounded once. On a GPU torch divides by a number as it multiplies by the
    reciprocal, which rounds twice."""
    return numbers / torch.full((), divisor, dtype=torch.float32, device=numbers.device)


class _Packer(NamedTuple):
    """The packing of one weight, some rows at a time."""

    layout: Layout
    dtype: torch.dtype  # of the scales
    method: str
    has_zeros: bool
    book: _Book | None
    limit: float
    global_scale: torch.Tensor | None

    def pack(self, w: Tensor) -> Parts:
        """The codes, scales and zero points of a weight."""
        layout, device = self.layout, w.device
        codes = torch.zeros((layout.n, layout.code_columns), dtype=layout.form.codes, device=device)
        groups = (layout.n, layout.groups)
        scales = torch.ones(groups, dtype=torch.float32, device=device).to(self.dtype)
        zeros = torch.zeros(groups, dtype=torch.uint8, device=device) if self.has_zeros else None
        for rows in row_chunks(layout.n, layout.k, _CHUNK):
            chunk = w[rows].float().unflatten(-1, (layout.groups, -1))
            found = self.scaled(chunk)
            scales[rows] = found.scales
            if zeros is not None and found.zero_points is not None:
                zeros[rows] = found.zero_points
            codes[rows] = self.codes(chunk, found)
        return Parts(codes, scales, zeros)

    def scaled(self, w: Tensor) -> _Scaled:
        """The scales and zero points of rows (n, G, g)."""
        best = self.scaled_by(w, 1.0)
        if self.method == "nearest":
            return best
        least = self.error(w, best)
        for factor in (_POWERS if self.dtype is E8M0 else _FACTORS)[1:]:
            tried = self.scaled_by(w, factor)
            error = self.error(w, tried)
            better = error < least
            least = torch.where(better, error, least)
            zeros = None
            if best.zero_points is not None and tried.zero_points is not None:
                zeros = torch.where(better, tried.zero_points, best.zero_points)
            best = _Scaled(_chosen(better, tried.scales, best.scales), zeros)
        return best

    def scaled_by(self, w: Tensor, factor: float) -> _Scaled:
        """The scales and zero points of the largest magnitudes, times a factor."""
        if not self.has_zeros:
            return _Scaled(self.stored(_quotient(w.abs().amax(-1), self.limit) * factor), None)
        low, high = w.amin(-1).clamp(max=0), w.amax(-1).clamp(min=0)
        scales = self.stored(_quotient(high - low, _UNSIGNED) * factor)
        zeros = torch.round(-low * factor / self.divisor(scales)).clamp(0, _UNSIGNED)
        return _Scaled(scales, zeros.nan_to_num(0).to(torch.uint8))

    def stored(self, scale: Tensor) -> Tensor:
        """Scales in their dtype: NaN for what is not finite, and 1 where all elements are 0."""
        scale = scale.masked_fill(scale == 0, 1.0)
        if self.dtype is E8M0:
            exponent = torch.frexp(scale).exponent + 126  # of the power of two below
            byte = exponent.clamp(0, 254).masked_fill(~(scale < math.inf), 255)
            return byte.to(torch.uint8).view(E8M0)
        if self.global_scale is not None:
            scale = scale / self.global_scale
        stored = scale
        if self.dtype is E4M3:
            stored = scale.clamp(max=448.0).masked_fill(~(scale < math.inf), math.nan)
        stored = stored.to(self.dtype)
        least = torch.finfo(self.dtype)
        smallest = least.smallest_normal * least.eps  # positive
        wide = stored.float()
        wide = wide.masked_fill((wide == 0) & (scale > 0), smallest)
        return wide.masked_fill(~(wide < math.inf), math.nan).to(self.dtype)

    def divisor(self, scales: Tensor) -> Tensor:
        """The scales in float32."""
        wide = scales.float()
        return wide if self.global_scale is None else wide * self.global_scale

    def error(self, w: Tensor, scaled: _Scaled) -> Tensor:
        """The squared error of each group."""
        scale = self.divisor(scaled.scales).unsqueeze(-1)
        values = self.rounded(w / scale, scaled)
        if self.book is not None:
            values = self.book.values[values]
        elif scaled.zero_points is not None:
            values = values - scaled.zero_points.unsqueeze(-1)
        return torch.square(values * scale - w).sum(-1)

    def rounded(self, w: Tensor, scaled: _Scaled) -> Tensor:
        """The nearest codes as numbers, or the positions of the nearest values in the book."""
        if self.book is not None:
            return torch.bucketize(w, self.book.boundaries, out_int32=True)
        if self.layout.format == "e4m3":
            return w.clamp(-448.0, 448.0).to(E4M3).float()
        if scaled.zero_points is not None:
            return (torch.round(w) + scaled.zero_points.unsqueeze(-1)).clamp(0, _UNSIGNED)
        limit = int(self.limit)
        return torch.round(w).clamp(-limit - 1, limit)

    def codes(self, w: Tensor, scaled: _Scaled) -> Tensor:
        """The codes as they are stored."""
        scale = self.divisor(scaled.scales).unsqueeze(-1)
        found = self.rounded((w / scale).nan_to_num(0.0), scaled).flatten(-2)
        form = self.layout.form
        if form.bits == 8:
            return found.to(form.codes)
        if self.book is not None:
            found = self.book.codes[found]
        elif scaled.zero_points is None:
            found = (found.to(torch.int8) & 2 * MIDDLE - 1).to(torch.uint8)
        return pack_nibbles(found.to(torch.uint8))


def _chosen(better: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """The new elements where they are better. float8 has no torch.where."""
    if new.dtype.itemsize > 1:
        return torch.where(better, new, old)
    bits = torch.where(better, new.view(torch.uint8), old.view(torch.uint8))
    return bits.view(new.dtype)
