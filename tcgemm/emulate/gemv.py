"""The sums of a GEMV kernel, whose warps divide k: csrc/kernels/gemv."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

from tcgemm.emulate import chains, rounding, table

if TYPE_CHECKING:
    from torch import Tensor

    from tcgemm.emulate.sums import Kernel

BLOCK_BYTES = 128  # of k, that a warp multiplies at a time
LANES = 4  # that share a row of a block; each has two vectors of 16 bytes


def sums(kernel: Kernel, a: Tensor, b: Tensor) -> Tensor:
    """The accumulators of the kernel, (..., M, N). Those of float32 operands are rounded once, from
    float64."""
    row = kernel.row
    warps, cluster = row["threads"] // 32, row["gemv_cluster"]
    depth = row["tile"][2]
    if row["accumulator"] == "f64":
        arithmetic = table.rows()[kernel.gpu, chains.FMA]
        left, right = a.double(), b.double()
    else:
        numbers = kernel.instruction()
        arithmetic = table.rows()[numbers.arch, numbers.name]
        left, right = rounding.operand(a, numbers.input), rounding.operand(b, numbers.input_b)
    blocks = -(-b.shape[-2] // depth)
    order = torch.tensor(order_in_block(BLOCK_BYTES // depth, row["input"] == "f32"))
    fill = blocks * depth - b.shape[-2]
    left = torch.nn.functional.pad(left, (0, fill))
    right = torch.nn.functional.pad(right, (0, 0, 0, fill))
    of_ctas = []
    for rank in range(cluster):
        of_warps = []
        for warp in range(rank * warps, (rank + 1) * warps):
            block_numbers = range(warp, blocks, cluster * warps)
            k = (torch.tensor(block_numbers, dtype=torch.long)[:, None] * depth + order).reshape(-1)
            of_warps.append(chains.chain(arithmetic, chains.Stored(left[..., k]), right[..., k, :]))
        of_ctas.append(functools.reduce(torch.add, of_warps))
    total = functools.reduce(torch.add, of_ctas)
    return total.to(a.dtype) if row["accumulator"] == "f64" else total


def order_in_block(size: int, widened: bool) -> list[int]:
    """The elements of a block in the order in which instructions take them. `size`: bytes of an
    element; `widened`: float32 that is multiplied as float64."""
    elements = 16 // size  # of a vector
    half = LANES * elements
    lanes, halves = range(LANES), range(2)
    if size == 8 or widened:  # an instruction takes one element of each lane at a time
        return [
            h * half + lane * elements + at
            for h in halves
            for at in range(elements)
            for lane in lanes
        ]
    word = max(1, 4 // size)  # elements of 32 bits
    return [
        h * half + lane * elements + (2 * pair + part) * word + at
        for h in halves
        for pair in range(2)
        for part in range(2)
        for lane in lanes
        for at in range(word)
    ]
