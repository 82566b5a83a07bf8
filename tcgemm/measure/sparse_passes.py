"""Passes over a weight: pruning with compression, and transposable pruning.

    compress   compress24(prune) -> values, metadata     torch: torch._cslt_compress of a weight
                                                         that is pruned already
    prune      prune24(transposable) -> pruned weight    torch: a greedy choice, which is compressed
                                                         in both directions

The checks are in plain torch: the right elements are kept, and their bits did not change. For
transposable pruning, the share of |w| that is kept is measured too, for tcgemm and for torch.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tcgemm.measure import Plan, baseline, operands
from tcgemm.measure.case import Case
from tcgemm.measure.timing import Timing
from tcgemm.measure.work import TORCH, Work
from tcgemm.operands.sparse.parts import GROUPS, default_pattern
from tcgemm.typing import SparsePattern

_OPS = torch.ops.tcgemm
BLOCK = 4  # transposable pruning works on blocks of 4 x 4
CHUNK = 1 << 18  # blocks that are checked at a time


def bits(tensor: Tensor) -> Tensor:
    """The bytes, for comparisons in which -0 differs from +0 and NaN equals itself."""
    return tensor.contiguous().view(torch.uint8)


def magnitudes(w: Tensor) -> Tensor:
    """|w| in float32."""
    return w.float().abs()


def largest(w: Tensor, pattern: SparsePattern) -> Tensor:
    """The mask of the elements to keep: the largest of each group, the first of equal ones."""
    group = GROUPS[pattern]
    size = magnitudes(w).view(-1, group)
    order = size.sort(dim=1, descending=True, stable=True).indices[:, : group // 2]
    return torch.zeros_like(size, dtype=torch.bool).scatter_(1, order, True).view(w.shape)


def transposable_masks(device: torch.device) -> Tensor:
    """The 90 masks of a block with two elements in each row and column, (90, 16)."""
    rows = [row for row in itertools.product((0.0, 1.0), repeat=BLOCK) if sum(row) == 2]
    every = torch.tensor(list(itertools.product(rows, repeat=BLOCK)), dtype=torch.float64)
    return every[(every.sum(1) == 2).all(1)].flatten(1).to(device)


def blocks(matrix: Tensor) -> Tensor:
    """The 4 x 4 blocks of a matrix: (M, K) -> (blocks, 16)."""
    m, k = matrix.shape
    return matrix.view(m // BLOCK, BLOCK, k // BLOCK, BLOCK).transpose(1, 2).reshape(-1, BLOCK**2)


def is_best(w: Tensor, pruned: Tensor) -> bool:
    """Does each block of `pruned` have one of the 90 masks, and one that keeps the most of |w|?"""
    every, size = transposable_masks(w.device), blocks(magnitudes(w)).double()
    mask_blocks = blocks((pruned != 0).double())
    for block, mask in zip(size.split(CHUNK), mask_blocks.split(CHUNK), strict=True):
        most = (block @ every.t()).amax(1)
        fits = (mask @ every.t()).amax(1) == mask.sum(1)  # a kept zero of w looks pruned
        if not bool((fits & ((block * mask).sum(1) >= most * (1 - 1e-6))).all()):
            return False
    return torch.equal(bits(pruned), bits(torch.where(pruned != 0, w, torch.zeros_like(w))))


class Pass(Work):
    """Weights on `device` and the calls of one case. `index` selects a weight."""

    sets: int
    pool: operands.Pool

    def __init__(self, case: Case, device: torch.device | str, seed: int = 0) -> None:
        super().__init__(case, device)
        self.pattern: SparsePattern = default_pattern(self.dtype)
        shape = case.m, case.k
        bytes_read = case.m * case.k * self.dtype.itemsize
        self.sets = operands.sets_past_cache(bytes_read, device)
        self.pool = operands.Pool(self.sets, shape, self.dtype, device)
        operands.fill_normal(self.pool.memory, self._generator(seed))
        self.pruned: list[Tensor] | None = None  # the weights for torch's compression

    @property
    def bytes(self) -> int:
        result = self.call_tcgemm(0)
        tensors = result if isinstance(result, tuple) else (result,)
        return self.pool[0].nbytes + sum(tensor.nbytes for tensor in tensors)

    def plan_on(self, device: str | None = None) -> Plan:
        """The name of the operator: a pass has one kernel."""
        return Plan(f"{self.case.op}24", "")

    def call_tcgemm(self, index: int) -> Any:
        """The tensors of compress24, or the pruned weight of prune24."""
        if self.case.op == "prune":
            return _OPS.prune24(self.pool[index], self.pattern, True)
        return _OPS.compress24(self.pool[index], self.pattern, True)

    def call_baseline(self, index: int) -> Any:
        """The tensors of torch's pass."""
        if self.case.op == "prune":
            return baseline.prune_transposable(self.pool[index])
        if self.pruned is None:
            self.pruned = [_OPS.prune24(w, self.pattern) for w in self.pool.views]
        return baseline.compress(self.pruned[index])

    def check(self) -> tuple[float, bool]:
        """(0, exact): a pass rounds nothing."""
        w, result = self.pool[0], self.call_tcgemm(0)
        if self.case.op == "prune":
            return 0.0, is_best(w, result)
        values, metadata, excess = result
        dense = _OPS.decompress24(values, metadata, self.case.k, self.pattern)
        expected = torch.where(largest(w, self.pattern), w, torch.zeros_like(w))
        return 0.0, torch.equal(bits(dense), bits(expected)) and excess.tolist() == [0, -1]

    def facts(self, timings: Mapping[str, Timing]) -> dict[str, Any]:
        """The share of |w| that transposable pruning keeps."""
        if self.case.op != "prune":
            return {}
        w = self.pool[0]
        fields = {"kept": self._share(self.call_tcgemm(0), w)}
        if TORCH in timings:
            fields["torch_kept"] = self._share(self.call_baseline(0)[0], w)
        return fields

    @staticmethod
    def _share(pruned: Tensor, w: Tensor) -> float:
        share, size = (magnitudes(tensor).sum(dtype=torch.float64) for tensor in (pruned, w))
        return round(float(share / size), 5)
