"""Codes of four bits, two a byte, and the numbers that codes stand for."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from tcgemm.operands.packed.formats import E8M0
from tcgemm.operands.packed.parts import Layout, Parts, bytes_of, of_bytes
from tcgemm.operands.quant.weight import view_bytes

MIDDLE = 8  # the code that stands for 0 where a code is unsigned and has no zero point
_CHUNK = 2**26  # elements whose float32 values are in memory at a time


def row_chunks(n: int, k: int, elements: int = _CHUNK) -> Iterator[slice]:
    """Slices of the n rows of k elements, each of a bounded size; none without elements."""
    rows = max(1, elements // max(k, 1))
    for start in range(0, n if k else 0, rows):
        yield slice(start, min(start + rows, n))


def pack_nibbles(codes: Tensor) -> Tensor:
    """uint8 (..., K) of values up to 15 -> uint8 (..., ceil(K/2)), the even k in the low bits."""
    if codes.shape[-1] % 2:
        codes = torch.nn.functional.pad(codes, (0, 1))
    return codes[..., ::2] | codes[..., 1::2] << 4


def unpack_nibbles(packed: Tensor, k: int) -> Tensor:
    """The inverse of pack_nibbles, for rows of k codes."""
    codes = torch.stack([packed & 15, packed >> 4], dim=-1)
    return codes.flatten(-2)[..., :k]


def float_scales(parts: Parts, layout: Layout) -> Tensor:
    """The scales (N, G) in float32, times the scale that all groups share."""
    if layout.form.scales == (E8M0,):
        scales = _powers(bytes_of(parts.scales))
    else:
        scales = of_bytes(parts, layout.form).scales.float()
    return scales if parts.global_scale is None else scales * parts.global_scale


def _powers(exponents: Tensor) -> Tensor:
    """The float32 values of bytes of float8_e8m0fnu, 2**(byte - 127), by the bits of float32.

    torch.export of torch 2.11 saves no program that has this dtype.
    """
    bits = exponents.int() << 23
    bits = bits.masked_fill(exponents == 0, 1 << 22)  # 2**-127 is subnormal
    return bits.masked_fill(exponents == 255, 0x7F800001).view(torch.float32)  # NaN


def code_values(codes: Tensor, parts: Parts, layout: Layout) -> Tensor:
    """The float32 values (n, K) of codes before zero points and scales."""
    form = layout.form
    if form.bits == 8:
        return view_bytes(codes, form.codes).float()
    unsigned = unpack_nibbles(codes, layout.k)
    if parts.table is not None:
        return parts.table.index_select(0, unsigned.flatten().int()).view(unsigned.shape)
    if parts.zero_points is not None:
        return unsigned.float()
    if parts.offsets is not None:
        return unsigned.float() - MIDDLE
    return (unsigned ^ MIDDLE).float() - MIDDLE


def dequantized(parts: Parts, layout: Layout, dtype: torch.dtype) -> Tensor:
    """The weight (N, K): computed in float32, and rounded once to dtype."""
    shape = (layout.n, layout.k)
    chunks = list(row_chunks(*shape))
    if len(chunks) == 1:
        return _dequantized_rows(parts, layout, dtype)
    out = torch.empty(shape, dtype=dtype, device=parts.codes.device)
    for rows in chunks:
        some = parts.map(lambda tensor, rows=rows: tensor[rows] if tensor.dim() == 2 else tensor)
        out[rows] = _dequantized_rows(some, layout, dtype)
    return out


def _dequantized_rows(parts: Parts, layout: Layout, dtype: torch.dtype) -> Tensor:
    values = code_values(parts.codes, parts, layout)
    values = values.unflatten(-1, (layout.groups, -1))
    if parts.zero_points is not None:
        values = values - parts.zero_points.float().unsqueeze(-1)
    values = values * float_scales(parts, layout).unsqueeze(-1)
    if parts.offsets is not None:
        values = values + parts.offsets.float().unsqueeze(-1)
    return values.flatten(-2).to(dtype)
