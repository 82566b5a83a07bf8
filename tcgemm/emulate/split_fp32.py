"""The sums of float32 operands that a kernel splits into terms of 16 bits.

csrc/core/split_fp32.h describes the terms, csrc/kernels/sm90/mainloop/split_fp32.cuh the chains.
Rows whose elements lie too far apart, or hold Inf or NaN, are multiplied in other ways; they are
refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tcgemm.emulate import instruction, table

if TYPE_CHECKING:
    from torch import Tensor

STEP = 16  # elements of k in a WGMMA
MOST_EXPONENT = 40  # kMaxInRangeExponent


class Kind(NamedTuple):
    """Two float16 terms, or three bfloat16 terms."""

    dtype: torch.dtype
    terms: int
    shift: int  # the second float16 term is scaled by 2^11
    block: int  # elements of k in a stage
    top: int  # the scaled exponent of the largest element of a row
    most_spread: int  # exponents that a row may span
    instruction: str


def kind_of(terms: int, k: int) -> Kind:
    """The kind of a kernel with so many terms, for this K."""
    if terms == 2:
        return Kind(torch.float16, 2, 11, 64, 14, 28, "wgmma.m64nNk16.f32.f16.f16")
    top = (125 - (k - 1).bit_length()) // 2
    return Kind(torch.bfloat16, 3, 0, 32, top, 62 + top, "wgmma.m64nNk16.f32.bf16.bf16")


class Rows(NamedTuple):
    """The terms of rows (..., M, K), and the exponent of each row's largest element."""

    terms: list[Tensor]
    high: Tensor

    def block(self, start: int, length: int) -> list[Tensor]:
        return [term[..., start : start + length] for term in self.terms]


def sums(row: dict[str, Any], a: Tensor, b: Tensor) -> Tensor:
    """The accumulators before the epilogue, (..., M, N); `row` is that of the catalog."""
    kind = kind_of(row["parts"], b.shape[-2])
    left, right = split(a, "a", kind), split(b.mT, "b", kind)
    warpgroups = row["threads"] // 128 - 1  # that multiply; one more loads
    columns = row["tile"][1]
    steps = 4 if warpgroups == 2 else 1 if columns == 64 else 2  # of a chain of the first terms
    by_levels = columns <= (64 if warpgroups == 1 else 128)
    blocks = range(0, left.terms[0].shape[-1], kind.block)
    per_sum = 8 if len(blocks) > 48 else 4
    total = added = torch.zeros(())
    for index, start in enumerate(blocks):
        of_a, of_b = (rows.block(start, kind.block) for rows in (left, right))
        for value in chains(kind, steps * STEP, of_a, of_b):
            added = added + value
        if by_levels and index % per_sum == per_sum - 1:
            total, added = total + added, torch.zeros(())
    if by_levels:
        added = added + total
    exponents = left.high[..., :, None] + right.high[..., None, :] - 2 * kind.top
    return torch.ldexp(added, exponents)


def chains(kind: Kind, length: int, a: list[Tensor], b: list[Tensor]) -> list[Tensor]:
    """What each chain of a stage adds to the accumulators, in order. `length`: elements of k in a
    chain of the first float16 terms."""
    if kind.terms == 3:
        pairs = ((2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0))
        return [_chain(kind, [a[i] for i, _ in pairs], [b[j] for _, j in pairs])]
    found = [_chain(kind, [a[1], a[0]], [b[0], b[1]]) * 2.0**-kind.shift]
    for first in range(0, kind.block, length):
        part = slice(first, first + length)
        found.append(_chain(kind, [a[0][..., part]], [b[0][..., part]]))
    return found


def split(x: Tensor, name: str, kind: Kind) -> Rows:
    """The terms of rows; zeros fill k. `name` is that of the operand in an error."""
    x = torch.nn.functional.pad(x, (0, -x.shape[-1] % kind.block))
    magnitude = x.abs()
    largest = _exponent(magnitude.amax(-1))
    smallest = _exponent(magnitude.where(x != 0, torch.inf).amin(-1))
    is_zero = (x == 0).all(-1)
    wide = (largest - smallest > kind.most_spread) | (largest.abs() > MOST_EXPONENT)
    if bool(((wide & ~is_zero) | ~x.isfinite().all(-1)).any()):
        raise NotImplementedError(
            f"A row of {name} holds Inf or NaN, spans more than 2^{kind.most_spread} or has an "
            f"exponent beyond {MOST_EXPONENT}: the kernel that splits float32 treats it in other "
            'ways, which emulate.mm does not follow; precision="high" multiplies in tf32.'
        )
    high = largest.where(~is_zero, 0)
    rest, terms = torch.ldexp(x, (kind.top - high)[..., None]), []
    for _ in range(kind.terms):
        terms.append(rest.to(kind.dtype))
        rest = (rest - terms[-1].float()) * 2.0**kind.shift
    return Rows(terms, high)


def _exponent(x: Tensor) -> Tensor:
    return torch.frexp(x).exponent - 1


def _chain(kind: Kind, a: list[Tensor], b: list[Tensor]) -> Tensor:
    """The float32 sum of a chain of WGMMAs; b has columns as rows."""
    known, row = table.rows()["Hopper", kind.instruction]
    left, right = torch.cat(a, dim=-1), torch.cat(b, dim=-1).mT
    batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    left, right = (x.expand(*batch, *x.shape[-2:]) for x in (left, right))
    return instruction.multiply(known, row.arithmetic, left, right, None)
