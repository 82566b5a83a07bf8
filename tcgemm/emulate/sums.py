"""The sums that a kernel of a plan computes: its instructions in ascending k, promoted or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tcgemm.emulate import instruction, rounding, table
from tcgemm.sparse import SparseTensor24
from tcgemm.sparse.positions import decompress, pack_positions, unpack_positions

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 128  # elements of k in a promoted chain, and in a block of scales
GROUP = 8  # slices of k whose sums one warp adds: csrc/kernels/passes/add_slices.cuh
FMA_CHAIN = "mma.m8n8k4.f64.f64.f64"  # all kernels with float64 sums compute as this one


class Kernel(NamedTuple):
    """What of a plan decides the sums."""

    row: dict[str, Any]  # of tcgemm.info.catalog()
    gpu: str  # "Hopper": the generation whose tensor cores add
    swap_ab: bool  # it computes the transpose
    slices: int = 1  # of k, summed by themselves

    def instruction(self) -> table.Instruction:
        """The instruction that the kernel issues, with the types of a and b of the call."""
        row = self.row
        family = ("wgmma" if row["arch"] == "sm90a" else "mma") + (".sp" if row["sparse"] else "")
        operands = (row["input"], row["input_b"])
        types = (*(reversed(operands) if self.swap_ab else operands), row["accumulator"])
        for known, _ in table.rows().values():
            if (known.arch, known.family, known.in_kernels) != (self.gpu, family, True):
                continue
            if types == (known.input, known.input_b, known.accumulator):
                return known
        raise NotImplementedError(f"The arithmetic of {row['name']} on {self.gpu} is not known.")


class Stored(NamedTuple):
    """An operand (..., M, K) as its kernel reads it: a sparse one has metadata."""

    values: Tensor
    metadata: Tensor | None = None


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
    if row["accumulator"] == "f64":
        return in_float64(kernel.gpu, a, b)
    if not row["sparse"]:
        a, b = (decompress(x) if isinstance(x, SparseTensor24) else x for x in (a, b))
    elif not isinstance(a, SparseTensor24):  # the kernel's a is the sparse operand
        turned = kernel._replace(swap_ab=not kernel.swap_ab)
        scales = (None if scale is None else scale.mT for scale in (scale_b, scale_a))
        return of_floats(turned, b.t(), a.mT, *scales).mT
    found = kernel.instruction()
    promotion = None
    if row["promoted"]:
        stored = BLOCK // 2 if found.is_sparse else BLOCK
        blocks = -(-b.shape[-2] // BLOCK)
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        factors = (
            _factors(scale_a, (*batch, a.shape[-2]), blocks),
            _factors(None if scale_b is None else scale_b.mT, (*batch, b.shape[-1]), blocks),
        )
        promotion = instruction.Promotion(stored, *factors)
    values, metadata = _stored(a)
    left = Stored(rounding.operand(values, found.input), metadata)
    known = table.rows()[found.arch, found.name]
    right = rounding.operand(b, found.input_b)
    if kernel.slices == 1:
        return _chain(known, left, right, promotion)
    return _of_slices(kernel, known, left, right, promotion)


def _of_slices(
    kernel: Kernel,
    known: tuple[table.Instruction, Any],
    a: Stored,
    b: Tensor,
    promotion: instruction.Promotion | None,
) -> Tensor:
    """The sums of slices of k, added in float32: each group of GROUP in the order of k, and then
    the groups."""
    depth, count = kernel.row["tile"][2], kernel.slices
    blocks, longer = divmod(-(-b.shape[-2] // depth), count)
    groups: list[Tensor] = []
    for index in range(count):
        first = index * blocks + min(index, longer)
        last = first + blocks + (index < longer)
        k = slice(first * depth, last * depth)
        part = None if promotion is None else _part(promotion, slice(first, last))
        found = _chain(known, _columns(a, k, b.shape[-2]), b[..., k, :], part).float()
        if index % GROUP == 0:
            groups.append(found)
        else:
            groups[-1] = groups[-1] + found
    total = groups[0]
    for more in groups[1:]:
        total = total + more
    return total


def _columns(a: Stored, k: slice, depth: int) -> Stored:
    """The part of an operand whose dense columns are k. depth: its number of dense columns."""
    if a.metadata is None:
        return Stored(a.values[..., k])
    stored = a.values.shape[-1]
    kept = slice(k.start * stored // depth, k.stop * stored // depth)
    positions = unpack_positions(a.metadata.cpu(), stored)[..., kept]
    return Stored(a.values[..., kept], pack_positions(positions))


def _part(promotion: instruction.Promotion, blocks: slice) -> instruction.Promotion:
    """The promotion of some blocks of k; a block is BLOCK elements, as the tile's depth."""
    a, b = (None if each is None else each[..., blocks].contiguous() for each in promotion[1:])
    return instruction.Promotion(promotion[0], a, b)


def in_float64(gpu: str, a: Tensor, b: Tensor) -> Tensor:
    """The sums in float64, rounded once to the dtype of the operands."""
    sums = _chain(table.rows()[gpu, FMA_CHAIN], Stored(a.double()), b.double(), None)
    return sums.to(a.dtype)


def _stored(a: Tensor) -> Stored:
    """The kept elements of a SparseTensor24 whose groups lie along its rows."""
    if not isinstance(a, SparseTensor24):
        return Stored(a)
    values, metadata, _ = a.stored(a.transposed)
    return Stored(values, metadata)


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


def _chain(
    known: tuple[table.Instruction, Any],
    a: Stored,
    b: Tensor,
    promotion: instruction.Promotion | None,
) -> Tensor:
    """The sums of a chain of instructions. Zeros fill k, as TMA and cp.async do."""
    found, row = known
    batch = torch.broadcast_shapes(a.values.shape[:-2], b.shape[:-2])
    steps = -(-b.shape[-2] // found.shape[2])
    stored, filled = a.values.shape[-1], steps * found.stored
    values = a.values.expand(*batch, *a.values.shape[-2:])
    values = torch.nn.functional.pad(values, (0, filled - stored))
    b = b.expand(*batch, *b.shape[-2:])
    b = torch.nn.functional.pad(b, (0, 0, 0, steps * found.shape[2] - b.shape[-2]))
    metadata = None
    if a.metadata is not None:
        metadata = _fill_metadata(a.metadata, stored, filled, found.group)
        metadata = metadata.expand(*batch, *metadata.shape[-2:])
    options = {"metadata": metadata, "promotion": promotion}
    return instruction.multiply(found, row.arithmetic, values, b, None, **options)


def _fill_metadata(metadata: Tensor, stored: int, filled: int, group: int) -> Tensor:
    """The metadata of more columns: the first positions of each group, whose values are zero."""
    positions = unpack_positions(metadata.cpu(), stored)
    first = torch.arange(group // 2, dtype=torch.uint8)
    more = first.repeat((filled - stored) // first.numel())
    return pack_positions(torch.cat([positions, more.expand(*positions.shape[:-1], -1)], dim=-1))
