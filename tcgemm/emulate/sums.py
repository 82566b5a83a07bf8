"""The sums that a kernel of a plan computes: its instructions in ascending k, promoted or not."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tcgemm.emulate import chains, gemv, instruction, rounding, table
from tcgemm.sparse import SparseTensor24
from tcgemm.sparse.positions import decompress, pack_positions, unpack_positions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

BLOCK = 128  # elements of k in a promoted chain, and in a block of scales
GROUP = 8  # slices of k whose sums one warp adds: csrc/kernels/passes/add_slices.cuh


class Kernel(NamedTuple):
    """What of a plan decides the sums."""

    row: dict[str, Any]  # of tcgemm.info.catalog()
    gpu: str  # "Hopper": the generation whose tensor cores add
    swap_ab: bool  # it computes the transpose
    slices: int = 1  # of k, summed by themselves

    def instruction(self) -> table.Instruction:
        """The instruction that the kernel issues, with the types of a and b of the call."""
        row = self.row
        wgmma = row["arch"] == "sm90a" and not row["gemv"] and row["mainloop"] != "packed_mma"
        family = ("wgmma" if wgmma else "mma") + (".sp" if row["sparse"] else "")
        operands = (row["input"], row["input_b"])
        types = (*(reversed(operands) if self.swap_ab else operands), row["accumulator"])
        for candidate, _ in table.rows().values():
            if (candidate.arch, candidate.family, candidate.in_kernels) != (self.gpu, family, True):
                continue
            if types == (candidate.input, candidate.input_b, candidate.accumulator):
                return candidate
        raise NotImplementedError(f"The arithmetic of {row['name']} on {self.gpu} is not known.")


def of_integers(a: Tensor, b: Tensor, zero_a: Tensor | None, zero_b: Tensor | None) -> Tensor:
    """The sums of (a - zero_a) * (b - zero_b) modulo 2^64, in int64."""
    a, b = (decompress(x) if isinstance(x, SparseTensor24) else x for x in (a, b))
    a, b = a.double(), b.double()  # sums of products of 16 bits are exact
    sums = (a @ b).long()
    if zero_a is not None:
        sums = sums - zero_a.cpu().long() * b.sum(-2, keepdim=True).long()
    if zero_b is not None:
        sums = sums - zero_b.cpu().long() * a.sum(-1, keepdim=True).long()
        if zero_a is not None:
            sums = sums + a.shape[-1] * zero_a.cpu().long() * zero_b.cpu().long()
    return sums


def of_floats(
    kernel: Kernel, a: Tensor, b: Tensor, scale_a: Tensor | None, scale_b: Tensor | None
) -> Tensor:
    """The accumulators of the kernel after its mainloop, (..., M, N). The scales are of blocks."""
    row = kernel.row
    if not row["sparse"]:
        a, b = (decompress(x) if isinstance(x, SparseTensor24) else x for x in (a, b))
    if row["gemv"]:
        return gemv.sums(kernel, a, b)
    if row["accumulator"] == "f64":
        return in_float64(kernel.gpu, a, b, row["tile"][2], kernel.slices)
    if row["sparse"] and not isinstance(a, SparseTensor24):  # the kernel's a is the sparse operand
        swapped = kernel._replace(swap_ab=not kernel.swap_ab)
        scales = (None if scale is None else scale.mT for scale in (scale_b, scale_a))
        return of_floats(swapped, b.t(), a.mT, *scales).mT
    numbers = kernel.instruction()
    promotion = None
    if row["promoted"]:
        length = BLOCK // 2 if numbers.is_sparse else BLOCK
        blocks = -(-b.shape[-2] // BLOCK)
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        factors = (
            _factors(scale_a, (*batch, a.shape[-2]), blocks),
            _factors(None if scale_b is None else scale_b.mT, (*batch, b.shape[-1]), blocks),
        )
        promotion = instruction.Promotion(length, *factors)
    values, metadata = _stored(a)
    left = chains.Stored(rounding.operand(values, numbers.input), metadata)
    arithmetic = table.rows()[numbers.arch, numbers.name]
    right = rounding.operand(b, numbers.input_b)
    if kernel.slices == 1:
        return _chain(kernel, arithmetic, left, right, promotion)
    return _of_slices(kernel, arithmetic, left, right, promotion)


def _chain(
    kernel: Kernel,
    arithmetic: tuple[table.Instruction, Any],
    a: chains.Stored,
    b: Tensor,
    promotion: instruction.Promotion | None,
) -> Tensor:
    """The sums of a chain of instructions. Groups of warpgroups that divide the k-blocks have a
    chain each, whose sums are added in float32: csrc/kernels/sm90/mainloop/packed.cuh."""
    groups = kernel.row["k_groups"]
    if groups == 1:
        return chains.chain(arithmetic, a, b, promotion)
    block = torch.arange(b.shape[-2]) // kernel.row["tile"][2]
    parts = [
        chains.chain(arithmetic, chains.Stored(a.values[..., part]), b[..., part, :])
        for part in (block % groups == group for group in range(groups))
    ]
    return functools.reduce(torch.add, parts)


def _of_slices(
    kernel: Kernel,
    arithmetic: tuple[table.Instruction, Any],
    a: chains.Stored,
    b: Tensor,
    promotion: instruction.Promotion | None,
) -> Tensor:
    """The sums of slices of k, added in float32: each group of GROUP in the order of k, and then
    the groups."""
    parts_of_k = []
    for k, blocks in _slices(b.shape[-2], kernel.row["tile"][2], kernel.slices):
        part = None if promotion is None else _part(promotion, blocks)
        columns = _columns(a, k, b.shape[-2])
        parts_of_k.append(_chain(kernel, arithmetic, columns, b[..., k, :], part).float())
    return _added(parts_of_k)


def _slices(k: int, depth: int, count: int) -> Iterator[tuple[slice, slice]]:
    """The elements of k and the k-blocks, of `depth` elements, of each slice."""
    for first, last in chains.slices_of(-(-k // depth), count):
        yield slice(first * depth, last * depth), slice(first, last)


def _added(parts: list[Tensor]) -> Tensor:
    """The sum of slices: in groups of GROUP, and then the sum of the groups."""
    firsts = range(0, len(parts), GROUP)
    groups = [functools.reduce(torch.add, parts[first : first + GROUP]) for first in firsts]
    return functools.reduce(torch.add, groups)


def _columns(a: chains.Stored, k: slice, depth: int) -> chains.Stored:
    """The part of an operand whose dense columns are k. depth: its number of dense columns."""
    if a.metadata is None:
        return chains.Stored(a.values[..., k])
    stored = a.values.shape[-1]
    columns = slice(k.start * stored // depth, k.stop * stored // depth)
    positions = unpack_positions(a.metadata.cpu(), stored)[..., columns]
    return chains.Stored(a.values[..., columns], pack_positions(positions))


def _part(promotion: instruction.Promotion, blocks: slice) -> instruction.Promotion:
    """The promotion of some blocks of k; a block is BLOCK elements, as the tile's depth."""
    a, b = (None if x is None else x[..., blocks].contiguous() for x in promotion[1:])
    return instruction.Promotion(promotion[0], a, b)


def in_float64(gpu: str, a: Tensor, b: Tensor, depth: int = 1, slices: int = 1) -> Tensor:
    """The sums in float64, rounded once to the dtype of the operands. A k-block has `depth`."""
    arithmetic, left, right = table.rows()[gpu, chains.FMA], a.double(), b.double()
    slices_of_k = [
        chains.chain(arithmetic, chains.Stored(left[..., k]), right[..., k, :], None)
        for k, _ in _slices(b.shape[-2], depth, slices)
    ]
    return _added(slices_of_k).to(a.dtype)


def _stored(a: Tensor) -> chains.Stored:
    """The kept elements of a SparseTensor24 whose groups lie along its rows."""
    if not isinstance(a, SparseTensor24):
        return chains.Stored(a)
    values, metadata, _ = a.stored(a.transposed)
    return chains.Stored(values, metadata)


def _factors(scale: Tensor | None, shape: tuple[int, ...], blocks: int) -> Tensor | None:
    """The scale of each row and block of k, float32 (..., rows, blocks)."""
    if scale is None:
        return None
    scale, rows = scale.cpu().float(), shape[-1]
    if scale.dim() < 2:
        scale = scale.reshape(1, 1)
    if scale.shape[-2] not in (1, rows):
        scale = scale.repeat_interleave(BLOCK, dim=-2)[..., :rows, :]
    return scale.expand(*shape, blocks).contiguous()
