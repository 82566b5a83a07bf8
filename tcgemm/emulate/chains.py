"""Chains of instructions in ascending k, each of which adds to the result of the one before."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import torch

from tcgemm.emulate import instruction

if TYPE_CHECKING:
    from torch import Tensor

    from tcgemm.emulate.table import Instruction

BLOCK = 128  # elements of k in a promoted chain, and in a block of scales


class Chain(NamedTuple):
    """What a chain of instructions multiplies: a (..., M, K) and b (..., K, N)."""

    mma: Instruction
    a: Tensor  # of a sparse instruction the stored elements
    b: Tensor
    c: Tensor | None = None
    columns: Tensor | None = None  # the row of b of each stored element of a
    promotion: instruction.Promotion | None = None

    def part(self, k: slice) -> Chain:
        """The products of the rows k of b. k begins at a block of scales, if a sum is promoted."""
        a, b = self.a[..., k], self.b[..., k, :]
        columns, promotion = self.columns, self.promotion
        if columns is not None:  # half of k is stored
            stored = slice(k.start // 2, k.stop // 2)
            a, columns = self.a[..., stored], columns[..., stored] - k.start
        if promotion is not None:
            promotion = promotion.part(slice(k.start // BLOCK, -(-k.stop // BLOCK)))
        return Chain(self.mma, a, b, self.c, columns, promotion)

    def sums(self) -> Tensor:
        """The sums (..., M, N). Zeros fill k, as TMA and cp.async do."""
        mma, a, b, columns = self.mma, self.a, self.b, self.columns
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        steps, stored = -(-b.shape[-2] // mma.shape[2]), a.shape[-1]
        a = torch.nn.functional.pad(a, (0, steps * mma.stored - stored))
        b = torch.nn.functional.pad(b, (0, 0, 0, steps * mma.shape[2] - b.shape[-2]))
        if columns is not None:  # the zeros are the first of each group
            half = mma.group // 2
            filler = torch.arange(stored, a.shape[-1], dtype=torch.int32, device="cpu")
            filler = filler // half * mma.group + filler % half
            columns = torch.cat([columns, filler.expand(*columns.shape[:-1], -1)], dim=-1)
            columns = columns.expand(*batch, *columns.shape[-2:])
        a, b = (x.expand(*batch, *x.shape[-2:]) for x in (a, b))
        return instruction.multiply(mma, a, b, self.c, columns=columns, promotion=self.promotion)


def slices_of(blocks: int, count: int) -> list[tuple[int, int]]:
    """The first k-block of each slice, and the one behind its last. The first slices are longer
    where they differ."""
    size, longer = divmod(blocks, count)
    firsts = [index * size + min(index, longer) for index in range(count + 1)]
    return list(itertools.pairwise(firsts))
