"""The sums that a kernel of a plan computes: its instructions in ascending k, promoted or not."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tcgemm.emulate import gemv, rounding, table, thin
from tcgemm.emulate.chains import BLOCK, Chain, slices_of
from tcgemm.emulate.instruction import Promotion, columns_of
from tcgemm.emulate.stream_k import StreamK
from tcgemm.operands.sparse import SparseTensor24
from tcgemm.operands.sparse.positions import decompress

FMA = "mma.m8n8k4.f64.f64.f64"  # all kernels with float64 sums compute as this one
GROUP = 8  # slices of k whose sums one warp adds: csrc/kernels/passes/add_slices.cuh


class Kernel(NamedTuple):
    """What of a plan decides the sums."""

    row: dict[str, Any]  # of tcgemm.info.catalog()
    gpu: str  # "Hopper": the generation whose tensor cores add
    swap_ab: bool  # it computes the transpose
    slices: int = 1  # of k, summed by themselves
    stream_k: StreamK | None = None  # the slices differ between tiles

    def instruction(self) -> table.Instruction:
        """The instruction that the kernel issues, with the types of a and b of the call."""
        row = self.row
        if row["accumulator"] == "f64":
            return table.rows()[self.gpu, FMA][0]
        with_mma = row["gemv"] or row["mainloop"] in ("packed_mma", "thin")
        wgmma = row["arch"] == "sm90a" and not with_mma
        family = ("wgmma" if wgmma else "mma") + (".sp" if row["sparse"] else "")
        operands = (row["input"], row["input_b"])
        if row["mainloop"] == "tf32x2":
            operands = ("tf32", "tf32")
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
    kernel: Kernel,
    a: Tensor,
    b: Tensor,
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
) -> Tensor:
    """The accumulators of the kernel after its mainloop, (..., M, N). The scales are of blocks.
    float64 sums are rounded once to the dtype of the operands."""
    row = kernel.row
    if not row["sparse"]:
        a, b = (decompress(x) if isinstance(x, SparseTensor24) else x for x in (a, b))
    elif not isinstance(a, SparseTensor24):  # the kernel's a is the sparse operand
        swapped = kernel._replace(swap_ab=not kernel.swap_ab)
        scales = (None if scale is None else scale.mT for scale in (scale_b, scale_a))
        return of_floats(swapped, b.t(), a.mT, *scales).mT
    mma, metadata = kernel.instruction(), None
    values = a
    if isinstance(a, SparseTensor24):  # its groups have to lie along the rows
        values, metadata, _ = a.stored(a.transposed)
    left, right = rounding.operand(values, mma.input), rounding.operand(b, mma.input_b)
    if row["gemv"]:
        total = gemv.sums(kernel, left, right)
    elif row["mainloop"] == "thin":
        total = thin.sums(kernel, left, right)
    else:
        columns = columns_of(mma, values, metadata)
        promotion = _promotion(mma, a, b, scale_a, scale_b) if row["promoted"] else None
        chain = Chain(mma, left, right, None, columns, promotion)
        total = _of_tiles(kernel, chain) if kernel.stream_k else _of_slices(kernel, chain)
    return total.to(a.dtype) if row["accumulator"] == "f64" else total


def _of_tiles(kernel: Kernel, chain: Chain) -> Tensor:
    """The sums of tiles, each of which has slices of its own."""
    assert kernel.stream_k is not None
    batch = torch.broadcast_shapes(chain.a.shape[:-2], chain.b.shape[:-2])
    a = chain.a.expand(*batch, *chain.a.shape[-2:]).reshape(-1, *chain.a.shape[-2:])
    b = chain.b.expand(*batch, *chain.b.shape[-2:]).reshape(-1, *chain.b.shape[-2:])
    total = torch.empty(a.shape[0], a.shape[-2], b.shape[-1], device="cpu")
    m, n = total.shape[:0:-1] if kernel.swap_ab else total.shape[1:]
    k_blocks = -(-b.shape[-2] // kernel.row["tile"][2])
    for matrix, rows, columns, slices in kernel.stream_k.blocks(a.shape[0], m, n, k_blocks):
        if kernel.swap_ab:
            rows, columns = columns, rows
        tile = chain._replace(a=a[matrix, rows], b=b[matrix][:, columns])
        total[matrix, rows, columns] = _of_slices(kernel, tile, slices)
    return total.reshape(*batch, *total.shape[1:])


def _of_slices(kernel: Kernel, chain: Chain, slices: list[tuple[int, int]] | None = None) -> Tensor:
    """The sums of slices of k, added in float32 or float64: each group of GROUP in the order of k,
    and then the groups."""
    depth, parts = kernel.row["tile"][2], []
    for first, last in slices or slices_of(-(-chain.b.shape[-2] // depth), kernel.slices):
        part = chain.part(slice(first * depth, last * depth))
        parts.append(rounding.from_sums(_of_groups(kernel, part)))
    firsts = range(0, len(parts), GROUP)
    return _added([_added(parts[first : first + GROUP]) for first in firsts])


def _of_groups(kernel: Kernel, chain: Chain) -> Tensor:
    """The sums of a chain. Groups of warpgroups that divide the k-blocks have a chain each, whose
    sums are added in float32: csrc/kernels/sm90/mainloop/packed.cuh."""
    groups = kernel.row["k_groups"]
    if groups == 1:
        return chain.sums()
    block = torch.arange(chain.b.shape[-2], device="cpu") // kernel.row["tile"][2]
    masks = [block % groups == group for group in range(groups)]
    return _added([Chain(chain.mma, chain.a[..., k], chain.b[..., k, :]).sums() for k in masks])


def _added(parts: list[Tensor]) -> Tensor:
    return functools.reduce(torch.add, parts)


def in_float64(gpu: str, a: Tensor, b: Tensor) -> Tensor:
    """The sums in float64, rounded once to the dtype of the operands."""
    return Chain(table.rows()[gpu, FMA][0], a.double(), b.double()).sums().to(a.dtype)


def _promotion(
    mma: table.Instruction, a: Tensor, b: Tensor, scale_a: Tensor | None, scale_b: Tensor | None
) -> Promotion:
    """Chains of BLOCK elements of k, with the scales of blocks."""
    blocks = -(-b.shape[-2] // BLOCK)
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return Promotion(
        BLOCK // 2 if mma.is_sparse else BLOCK,
        _factors(scale_a, (*batch, a.shape[-2], blocks)),
        _factors(None if scale_b is None else scale_b.mT, (*batch, b.shape[-1], blocks)),
    )


def _factors(scale: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
    """The scale of each row and block of k, float32 (..., rows, blocks)."""
    if scale is None:
        return None
    scale, rows = scale.cpu().float(), shape[-2]
    if scale.dim() < 2:
        scale = scale.reshape(1, 1)
    if scale.shape[-2] not in (1, rows):
        scale = scale.repeat_interleave(BLOCK, dim=-2)[..., :rows, :]
    return scale.expand(shape)
