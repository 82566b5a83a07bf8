"""The sums of float32 operands that a kernel splits into terms of 16 bits.

csrc/core/split_fp32.h describes the terms, csrc/kernels/sm90/mainloop/split_fp32.cuh the chains,
csrc/kernels/sm90/rescale.cuh the factors of the sums and the results that are computed again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tcgemm.emulate import split_ranges, table
from tcgemm.emulate.chains import Chain, slices_of

if TYPE_CHECKING:
    from torch import Tensor

    from tcgemm.emulate.split_ranges import Ranges

STEP = 16  # elements of k in a WGMMA


class Kind(NamedTuple):
    """Two float16 terms, or three bfloat16 terms."""

    dtype: torch.dtype
    terms: int
    shift: int  # the second float16 term is scaled by 2^11
    block: int  # elements of k in a stage
    top: int  # the scaled exponent of the largest element of a row
    most_spread: int  # exponents that a row may span before some of its results need a check
    threshold: int  # of such a row or column, the least accurate accumulator is K times 2^this
    instruction: str


def kind_of(terms: int, k: int) -> Kind:
    """The kind of a kernel with so many terms, for this K."""
    if terms == 2:
        spread = split_ranges.F16_SPREAD
        return Kind(torch.float16, 2, 11, 64, 14, spread, 3, "wgmma.m64nNk16.f32.f16.f16")
    top = (125 - (k - 1).bit_length()) // 2
    instruction = "wgmma.m64nNk16.f32.bf16.bf16"
    return Kind(torch.bfloat16, 3, 0, 32, top, 62 + top, top - 109, instruction)


class Rows(NamedTuple):
    """Rows (..., M, K) of float32, and their ranges."""

    values: Tensor
    ranges: Ranges


def sums(row: dict[str, Any], a: Rows, b: Rows, slices: int = 1) -> Tensor:
    """The accumulators before they are rescaled, (..., M, N); b has columns as rows.

    `row` is a row of the catalog. A cluster adds the sums of slices of k.
    """
    kind = kind_of(row["terms"], b.values.shape[-1])
    left, right = split(a, kind), split(b, kind)
    warpgroups = row["threads"] // 128 - 1  # that multiply; one more loads
    columns = row["tile"][1]
    steps = 4 if warpgroups == 2 else 1 if columns == 64 else 2  # of a chain of the first terms
    by_levels = columns <= (64 if warpgroups == 1 else 128)
    starts = range(0, left[0].shape[-1], kind.block)
    result = torch.zeros((), device="cpu")
    for first, last in slices_of(len(starts), slices):
        blocks = starts[first:last]
        result = result + _sums_of_blocks(kind, left, right, blocks, steps, by_levels)
    return result


def _sums_of_blocks(
    kind: Kind, left: list[Tensor], right: list[Tensor], blocks: range, steps: int, by_levels: bool
) -> Tensor:
    """The sums of the blocks of k that begin at these elements."""
    per_sum = 8 if len(blocks) > 48 else 4
    total = partial = torch.zeros((), device="cpu")
    for index, start in enumerate(blocks):
        part = slice(start, start + kind.block)
        of_a, of_b = ([term[..., part] for term in terms] for terms in (left, right))
        for value in chains(kind, steps * STEP, of_a, of_b):
            partial = partial + value
        if by_levels and index % per_sum == per_sum - 1:
            total, partial = total + partial, torch.zeros((), device="cpu")
    return partial + total if by_levels else partial


def rescaled(kind: Kind, sums: Tensor, a: Ranges, b: Ranges) -> Tensor:
    """The accumulators times the powers of two of their rows and columns, rounded once."""
    return scaled(sums, a.high[..., :, None] + b.high[..., None, :] - 2 * kind.top)


def inaccurate(kind: Kind, k: int, sums: Tensor, a: Ranges, b: Ranges) -> Tensor:
    """The accumulators whose results must be computed again: bool (..., M, N)."""
    limit = torch.tensor(float(k), device="cpu") * 2.0**kind.threshold
    of_a, of_b = (
        (ranges.wide(kind.most_spread) * limit).where(ranges.finite, torch.inf) for ranges in (a, b)
    )
    return ~(sums.abs() >= of_a[..., :, None] + of_b[..., None, :])


def chains(kind: Kind, length: int, a: list[Tensor], b: list[Tensor]) -> list[Tensor]:
    """What each chain of a stage adds to the accumulators, in order. `length`: elements of k in a
    chain of the first float16 terms."""
    if kind.terms == 3:
        pairs = ((2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0))
        return [_chain(kind, [a[i] for i, _ in pairs], [b[j] for _, j in pairs])]
    result = [_chain(kind, [a[1], a[0]], [b[0], b[1]]) * 2.0**-kind.shift]
    for first in range(0, kind.block, length):
        part = slice(first, first + length)
        result.append(_chain(kind, [a[0][..., part]], [b[0][..., part]]))
    return result


def split(x: Rows, kind: Kind) -> list[Tensor]:
    """The terms of rows; zeros fill k. Those of a row with Inf or NaN are zero."""
    values = x.values.where(x.ranges.finite[..., None], 0.0)
    values = torch.nn.functional.pad(values, (0, -values.shape[-1] % kind.block))
    rest, terms = scaled(values, (kind.top - x.ranges.high)[..., None]), []
    for _ in range(kind.terms):
        terms.append(rest.to(kind.dtype))
        rest = (rest - terms[-1].float()) * 2.0**kind.shift
    return terms


def scaled(x: Tensor, exponent: Tensor) -> Tensor:
    """x * 2^exponent in float32, rounded once."""
    powers = (exponent.long() + 1023 << 52).view(torch.float64)  # of two, by their bits
    return (x.double() * powers).float()


def _chain(kind: Kind, a: list[Tensor], b: list[Tensor]) -> Tensor:
    """The float32 sum of a chain of WGMMAs; b has columns as rows."""
    mma = table.rows()["Hopper", kind.instruction][0]
    return Chain(mma, torch.cat(a, dim=-1), torch.cat(b, dim=-1).mT).sums()
