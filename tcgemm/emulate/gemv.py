"""The sums of a GEMV kernel, whose warps divide k: csrc/kernels/gemv."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

from tcgemm.emulate import chains

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from tcgemm.emulate.sums import Kernel

BLOCK_BYTES = 128  # of k, that a warp multiplies at a time
LANES = 4  # that share a row of a block; each has two vectors of 16 bytes


def sums(kernel: Kernel, a: Tensor, b: Tensor) -> Tensor:
    """The accumulators of the kernel, (..., M, N), of operands as its instruction reads them."""
    mma, depth = kernel.instruction(), kernel.row["tile"][2]
    blocks = -(-b.shape[-2] // depth)
    order = order_in_block(BLOCK_BYTES // depth)
    fill = blocks * depth - b.shape[-2]
    a = torch.nn.functional.pad(a, (0, fill))
    b = torch.nn.functional.pad(b, (0, 0, 0, fill))

    def of_warp(numbers: range) -> Tensor:
        k = (
            torch.tensor(numbers, dtype=torch.long, device="cpu")[:, None] * depth + order
        ).flatten()
        return chains.Chain(mma, a[..., k], b[..., k, :]).sums()

    return add_warps(kernel, blocks, of_warp)


def add_warps(kernel: Kernel, blocks: int, of_warp: Callable[[range], Tensor]) -> Tensor:
    """The sums of the warps of each CTA of a cluster, and then of the CTAs. `of_warp` computes
    those of the blocks of k with these numbers."""
    warps, cluster = kernel.row["threads"] // 32, kernel.row["gemv_cluster"]
    of_warps = [of_warp(range(warp, blocks, cluster * warps)) for warp in range(cluster * warps)]
    ctas = (of_warps[first : first + warps] for first in range(0, len(of_warps), warps))
    return functools.reduce(torch.add, [functools.reduce(torch.add, cta) for cta in ctas])


def order_in_block(size: int) -> Tensor:
    """The elements of a block in the order in which instructions take them: of each half, 32 bits
    of every lane, or one element of more bits. `size`: bytes of an element."""
    word = max(1, 4 // size)  # elements of 32 bits
    return (
        torch.arange(BLOCK_BYTES // size, device="cpu")
        .view(2, LANES, -1, word)
        .transpose(1, 2)
        .flatten()
    )
