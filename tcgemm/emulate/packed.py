"""The sums of kernels with a packed weight.

GEMV kernels multiply codes and scale the sums of each group: csrc/kernels/gemv/packed.cuh. The
others multiply elements that are rounded to 16 bits: csrc/tile/packed_reader.cuh.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from tcgemm.emulate import gemv, rounding
from tcgemm.emulate.chains import Chain
from tcgemm.operands.packed.codes import MIDDLE, code_values, float_scales

if TYPE_CHECKING:
    from torch import Tensor

    from tcgemm.emulate.sums import Kernel
    from tcgemm.emulate.table import Instruction
    from tcgemm.operands.packed import PackedWeight

DEPTH = 64  # of k in a block
BASE = 128.0  # kBase of csrc/tile/decode.cuh


class _Weight(NamedTuple):
    """The weight (N, K) and its groups (N, G) in the numbers of the kernels."""

    codes: Tensor  # above 0 for int4, else the values, in the dtype of the activation
    scales: Tensor  # float32
    zeros: Tensor | None  # float32, of int4: the code of the value 0
    offsets: Tensor | None  # float32
    is_symmetric: bool  # int4 whose zeros are all 8
    group: int  # elements that share a scale


def _weight(packed: PackedWeight, dtype: torch.dtype) -> _Weight:
    parts, layout = packed.stored.parts.map(lambda tensor: tensor.cpu()), packed.stored.layout
    values = code_values(parts.codes, parts, layout)
    scales, zeros, offsets = float_scales(parts, layout), None, None
    is_symmetric = False
    if layout.form.operator == "int4":
        is_symmetric = parts.zero_points is None and parts.offsets is None
        zeros = torch.full_like(scales, MIDDLE)
        if parts.zero_points is not None:
            zeros = parts.zero_points.float()
        else:
            values = values + MIDDLE
        offsets = None if parts.offsets is None else parts.offsets.float()
    codes = rounding.to(values, dtype)
    return _Weight(codes, scales, zeros, offsets, is_symmetric, layout.group_size or layout.k)


def in_16_bits(packed: PackedWeight, dtype: torch.dtype) -> Tensor:
    """The weight (N, K) as kernels of many rows multiply it: an element, its scale and their
    product are rounded to 16 bits, and with offsets the sum instead of the product."""
    weight = _weight(packed, dtype)

    def spread(of_group: Tensor) -> Tensor:
        return of_group.repeat_interleave(weight.group, 1)[:, : weight.codes.shape[1]]

    values = weight.codes.double()
    if weight.zeros is not None:
        values = values - spread(weight.zeros)
    values = values * spread(rounding.to(weight.scales, dtype)).double()  # exact in float64
    if weight.offsets is None:
        return rounding.to(values.float(), dtype)
    sums = _to_odd(values, spread(rounding.to(weight.offsets, dtype)).double(), torch.float32)
    return rounding.to(sums, dtype)


def gemv_sums(kernel: Kernel, a: Tensor, packed: PackedWeight) -> Tensor:
    """The accumulators of a GEMV kernel, (M, N). The warps of a cluster divide the blocks of k."""
    weight, mma = _weight(packed, a.dtype), kernel.instruction()
    k = a.shape[-1]

    def of_warp(blocks: range) -> Tensor:
        sums = torch.zeros(a.shape[0], weight.codes.shape[0], device="cpu")
        for block in blocks:
            end = min((block + 1) * DEPTH, k)
            for first in range(block * DEPTH, end, min(weight.group, DEPTH)):
                sums = _add_group(mma, a, weight, first, sums)
        return sums

    return gemv.add_warps(kernel, -(-k // DEPTH), of_warp)


def _add_group(mma: Instruction, a: Tensor, weight: _Weight, first: int, sums: Tensor) -> Tensor:
    """`sums` and the products of the part of a group that begins at `first`."""
    k = slice(first, first + min(weight.group, DEPTH))
    of_a, codes, group = a[:, k], weight.codes[:, k], first // weight.group
    start, totals = None, None
    if weight.zeros is not None:
        codes = codes + BASE  # exact
        if weight.is_symmetric:
            start = Chain(mma, of_a, torch.full_like(of_a[:1], -(BASE + MIDDLE)).t()).sums()
        else:
            totals = Chain(mma, of_a, torch.ones_like(of_a[:1]).t()).sums()
            zeros = MIDDLE if weight.offsets is not None else weight.zeros[:, group]
            start = -(BASE + zeros) * totals
        start = start.expand(a.shape[0], codes.shape[0])
    products = Chain(mma, of_a, codes.t(), start).sums()
    sums = _fused(weight.scales[:, group], products, sums)
    if weight.offsets is not None and totals is not None:
        sums = _fused(weight.offsets[:, group], totals, sums)
    return sums


def _fused(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """x * y + z of float32, rounded once. The product is exact in float64."""
    return _to_odd(x.double() * y.double(), z.double(), torch.float64).float()


def _to_odd(x: Tensor, y: Tensor, dtype: torch.dtype) -> Tensor:
    """x + y of float64 in float64, or in float32, cut toward zero, and with an odd last bit where
    that is not exact. Rounding it again to fewer bits is as rounding once (Boldo and Melquiond,
    IEEE Transactions on Computers 57, 2008)."""
    near = x + y
    difference = near - x
    rest = (x - (near - difference)) + (y - difference)  # near + rest is exact
    near = _odd(near, rest)
    if dtype is torch.float64:
        return near
    narrow = near.float()
    return _odd(narrow, near - narrow.double())


def _odd(near: Tensor, rest: Tensor) -> Tensor:
    """`near`, or where there is a rest the next number on its side, whose last bit is odd."""
    word = torch.int64 if near.dtype is torch.float64 else torch.int32
    bits = near.view(word)
    even = (rest != 0) & rest.isfinite() & near.isfinite() & (bits & 1 == 0)
    away = (rest > 0) == (near > 0)
    # At zero the rest is all, and near is exact: a sum of float64 does not underflow here.
    return torch.where(even, bits + torch.where(away, 1, -1).to(word), bits).view(near.dtype)
