"""Chains of instructions in ascending k, each of which adds to the result of the one before."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tcgemm.emulate import instruction
from tcgemm.sparse.positions import pack_positions, unpack_positions

if TYPE_CHECKING:
    from torch import Tensor

    from tcgemm.emulate import table

FMA = "mma.m8n8k4.f64.f64.f64"  # all kernels with float64 sums compute as this one


class Stored(NamedTuple):
    """An operand (..., M, K) as its kernel reads it: a sparse one has metadata."""

    values: Tensor
    metadata: Tensor | None = None


def chain(
    arithmetic: tuple[table.Instruction, Any],
    a: Stored,
    b: Tensor,
    promotion: instruction.Promotion | None = None,
) -> Tensor:
    """The sums of a chain of instructions. Zeros fill k, as TMA and cp.async do."""
    instruction_row, entry = arithmetic
    batch = torch.broadcast_shapes(a.values.shape[:-2], b.shape[:-2])
    steps = -(-b.shape[-2] // instruction_row.shape[2])
    stored, length = a.values.shape[-1], steps * instruction_row.stored
    values = a.values.expand(*batch, *a.values.shape[-2:])
    values = torch.nn.functional.pad(values, (0, length - stored))
    b = b.expand(*batch, *b.shape[-2:])
    b = torch.nn.functional.pad(b, (0, 0, 0, steps * instruction_row.shape[2] - b.shape[-2]))
    metadata = None
    if a.metadata is not None:
        metadata = _fill_metadata(a.metadata, stored, length, instruction_row.group)
        metadata = metadata.expand(*batch, *metadata.shape[-2:])
    options = {"metadata": metadata, "promotion": promotion}
    return instruction.multiply(instruction_row, entry.arithmetic, values, b, None, **options)


def _fill_metadata(metadata: Tensor, stored: int, length: int, group: int) -> Tensor:
    """The metadata of more columns: the first positions of each group, whose values are zero."""
    positions = unpack_positions(metadata.cpu(), stored)
    first = torch.arange(group // 2, dtype=torch.uint8)
    filler = first.repeat((length - stored) // first.numel())
    return pack_positions(torch.cat([positions, filler.expand(*positions.shape[:-1], -1)], dim=-1))


def slices_of(blocks: int, count: int) -> list[tuple[int, int]]:
    """The first k-block of each slice, and the one behind its last. The first slices are longer
    where they differ."""
    size, longer = divmod(blocks, count)
    firsts = [index * size + min(index, longer) for index in range(count + 1)]
    return list(itertools.pairwise(firsts))
