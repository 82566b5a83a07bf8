"""The sums of a thin kernel, whose lanes have adjacent elements of k: csrc/kernels/thin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tcgemm.emulate import chains

if TYPE_CHECKING:
    from torch import Tensor

    from tcgemm.emulate.sums import Kernel

LANES = 4  # that share a row
STEP = 16  # of k, that an instruction multiplies


def sums(kernel: Kernel, a: Tensor, b: Tensor) -> Tensor:
    """The accumulators of the kernel, (..., M, N), of operands as its instruction reads them."""
    fill = -b.shape[-2] % STEP
    a = torch.nn.functional.pad(a, (0, fill))
    b = torch.nn.functional.pad(b, (0, 0, 0, fill))
    order = order_of(b.shape[-2], 1 if kernel.row["accumulator"] == "f64" else 2)
    return chains.Chain(kernel.instruction(), a[..., order], b[..., order, :]).sums()


def order_of(k: int, word: int) -> Tensor:
    """The k in the order in which instructions take them: a word of each lane, then the next ones.
    word: its elements."""
    lanes = torch.arange(k, device="cpu").view(-1, LANES, STEP // LANES // word, word)
    return lanes.transpose(1, 2).flatten()
