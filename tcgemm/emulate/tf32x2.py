"""The product of float32 operands in two TF32 terms each, which the kernel makes of them.

csrc/core/split_fp32.h describes the terms, csrc/kernels/sm90/mainloop/tf32x2.cuh the chains. Tiles
with a result that is not finite are computed again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tcgemm.emulate import split_product, sums, table
from tcgemm.emulate.chains import Chain, slices_of

if TYPE_CHECKING:
    from torch import Tensor

    from tcgemm.ops.explanation import Explanation

BLOCK = 32  # elements of k in a stage
CHAIN = 16  # in a chain
LANES = 4  # of a warp: lane k % 4 has element k of a row of a
SPREAD = 28  # exponents between elements whose products are as accurate as float32
LEAST_EXPONENT = -112  # of an element whose low term has all bits
MASK_BYTES = 4  # of a tile in the recompute mask
DROPPED_BITS = 13  # of a float32, which tensor cores ignore
INSTRUCTION = "wgmma.m64nNk8.f32.tf32.tf32"


def is_merged(plan: Explanation, a: Tensor) -> bool:
    """Are the rows of all batches of a one dimension?"""
    again: Any = plan.recompute
    matrices = again["mask_bytes"] // (MASK_BYTES * again["tiles_m"] * again["tiles_n"])
    return a.dim() == 3 and matrices == 1


def product(kernel: sums.Kernel, a: Tensor, b: Tensor, merged: bool) -> Tensor:
    """The accumulators of the kernel before its epilogue, float32 (..., M, N): a (..., M, K) and
    b (..., K, N)."""
    if merged:
        b = b[0] if b.dim() == 3 else b
        return product(kernel, a.flatten(0, 1), b, False).unflatten(0, a.shape[:2])
    if kernel.swap_ab:
        return product(kernel._replace(swap_ab=False), b.mT, a.mT, False).mT
    left, right = _terms(a), _terms(b.mT)
    blocks = -(-b.shape[-2] // BLOCK)
    values = torch.zeros((), device="cpu")
    is_wide = _wide_columns(b)[..., None, :]
    for first, last in slices_of(blocks, kernel.slices):
        values = values + _sums_of_blocks(left, right, range(first, last))
        is_wide = is_wide | _wide_rows(a[..., first * BLOCK : last * BLOCK])[..., :, None]
    again = ~values.isfinite() | is_wide
    return split_product.computed_again(kernel.gpu, values, again, a, b.mT)


def _sums_of_blocks(left: list[Tensor], right: list[Tensor], blocks: range) -> Tensor:
    """The sums of the blocks of k with these indices. Some blocks are summed separately first."""
    per_sum = 8 if len(blocks) > 48 else 4
    total = partial = torch.zeros((), device="cpu")
    for block in blocks:
        for start in range(block * BLOCK, (block + 1) * BLOCK, CHAIN):
            partial = partial + _chain(left, right, slice(start, start + CHAIN))
        if (blocks.stop - block) % per_sum == 0:
            total, partial = total + partial, torch.zeros((), device="cpu")
    return partial + total


def _chain(left: list[Tensor], right: list[Tensor], k: slice) -> Tensor:
    """low high, high low, high high: the float32 sum of a chain of WGMMAs."""
    (high_a, low_a), (high_b, low_b) = ([term[..., k] for term in x] for x in (left, right))
    mma = table.rows()["Hopper", INSTRUCTION][0]
    a, b = torch.cat([low_a, high_a, high_a], -1), torch.cat([high_b, low_b, high_b], -1)
    return Chain(mma, a, b.mT).sums()


def _terms(x: Tensor) -> list[Tensor]:
    """The high and the low term of rows; zeros fill k."""
    x = torch.nn.functional.pad(x, (0, -x.shape[-1] % BLOCK))
    bits = x.view(torch.int32).long()
    half = (1 << DROPPED_BITS - 1) - 1 + (bits >> DROPPED_BITS & 1)  # to nearest even
    high = ((bits + half) >> DROPPED_BITS << DROPPED_BITS).int().view(torch.float32)
    high = high.where(x.isfinite(), x)
    low = ((x - high).view(torch.int32) >> DROPPED_BITS << DROPPED_BITS).view(torch.float32)
    return [high, low]


def _wide_rows(a: Tensor) -> Tensor:
    """For each row of a slice of a: have the elements of a lane a wide range?"""
    a = torch.nn.functional.pad(a, (0, -a.shape[-1] % LANES))
    return torch.stack([_is_wide(a[..., lane::LANES]) for lane in range(LANES)]).any(0)


def _wide_columns(b: Tensor) -> Tensor:
    """For each column of b: have four adjacent elements a wide range?"""
    columns = torch.nn.functional.pad(b.mT, (0, -b.shape[-2] % 4))
    return _is_wide(columns.unflatten(-1, (-1, 4))).any(-1)


def _is_wide(x: Tensor) -> Tensor:
    """Has the last dimension a range that is too wide for two TF32 terms?"""
    exponents = x.view(torch.int32) >> 23 & 0xFF  # NaN does not count
    high = exponents.where(~x.isnan(), 0).amax(-1, keepdim=True)
    return ((x != 0) & (exponents < (high - SPREAD).clamp(min=127 + LEAST_EXPONENT))).any(-1)
