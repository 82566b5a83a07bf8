"""The product of float32 operands that are split into terms of 16 bits, by all of its kernels.

    ranges -> decision -> float16 terms, or the alternative of the plan -> tiles computed again

csrc/core/split_fp32.h describes these steps, csrc/launch/split_fp32.cpp launches them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tcgemm import info
from tcgemm.emulate import split_fp32, split_ranges, sums

if TYPE_CHECKING:
    from torch import Tensor

    from tcgemm.ops.explanation import Explanation

TILE = 64  # rows and columns of a result that are computed again together, kRecomputeTile


class Passes(NamedTuple):
    """What of a plan decides beside its kernel: facts about the operands of the caller."""

    alternative: dict[str, Any] | None  # row of the catalog; a kernel of bfloat16 terms has none
    mn_major: tuple[bool, bool]
    # One matrix serves every batch, so that its rows are counted once.
    shared: tuple[bool, bool]
    merged: bool  # the rows of all batches of a are one dimension


def passes_of(plan: Explanation, a: Tensor, b: Tensor) -> Passes:
    """The passes of a plan for these operands."""
    split: Any = plan.split_fp32
    split_a, split_b = (split[name] for name in ("ba" if plan.swap_ab else "ab"))
    rows = {row["name"]: row for row in info.catalog()}
    alternative = split["alternative"]
    return Passes(
        alternative=alternative and rows[alternative["kernel"]],
        mn_major=(split_a["mn_major"], split_b["mn_major"]),
        shared=(_is_shared(a), _is_shared(b)),
        merged=split_a["rows"] != a.shape[-2],
    )


def of_terms(kernel: sums.Kernel, passes: Passes, a: Tensor, b: Tensor) -> Tensor:
    """The accumulators of the kernels before their epilogue, float32 (..., M, N)."""
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*batch, a.shape[-2], b.shape[-1])
    b = b[0] if b.dim() == 3 and (passes.merged or passes.shared[1]) else b
    if passes.merged:
        a = a.reshape(-1, a.shape[-1])
    elif a.dim() == 3 and passes.shared[0]:
        a = a[0]
    if kernel.swap_ab:
        mn_major = passes.mn_major[::-1]
        return _product(kernel, passes._replace(mn_major=mn_major), b.mT, a.mT).mT.reshape(shape)
    return _product(kernel, passes, a, b).reshape(shape)


def _is_shared(x: Tensor) -> bool:
    return x.dim() < 3 or x.shape[0] == 1 or x.stride(0) == 0


def _product(kernel: sums.Kernel, passes: Passes, a: Tensor, b: Tensor) -> Tensor:
    """As the kernels see the operands: a (M, K) or (B, M, K), b (K, N) or (B, K, N)."""
    row, k, slices = kernel.row, b.shape[-2], kernel.slices
    ranges = (split_ranges.ranges_of(a), split_ranges.ranges_of(b.mT))
    left, right = (split_fp32.Rows(x, of_x) for x, of_x in zip((a, b.mT), ranges, strict=True))
    if passes.alternative is not None and split_ranges.use_bf16(ranges, passes.mn_major, k):
        row = passes.alternative
        if row["terms"] == 1:  # float64 sums of all results
            return sums.in_float64(kernel.gpu, a, b)
        slices = 1
    kind = split_fp32.kind_of(row["terms"], k)
    values = split_fp32.sums(row, left, right, slices)
    is_inaccurate = split_fp32.inaccurate(kind, k, values, *ranges)
    values = split_fp32.rescaled(kind, values, *ranges)
    if bool(is_inaccurate.any()):
        return computed_again(kernel.gpu, values, is_inaccurate, left.values, right.values)
    return values


def computed_again(gpu: str, values: Tensor, is_inaccurate: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """`values`, where each tile that has an inaccurate element comes from float64 sums. b has
    columns as rows."""
    m, n = values.shape[-2:]
    values = values.reshape(-1, m, n).clone()
    left, right = (x.expand(values.shape[0], *x.shape[-2:]) for x in (a, b))
    for index, matrix in enumerate(is_inaccurate.reshape(-1, m, n)):
        for first in range(0, m, TILE):
            rows = slice(first, first + TILE)
            tiles = [
                torch.arange(col, min(col + TILE, n), device="cpu")
                for col in range(0, n, TILE)
                if bool(matrix[rows, col : col + TILE].any())
            ]
            if tiles:
                cols = torch.cat(tiles)
                tile = sums.in_float64(gpu, left[index, rows], right[index, cols].mT)
                values[index, rows, cols] = tile
    return values.reshape(is_inaccurate.shape)
