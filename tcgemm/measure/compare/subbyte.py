"""The products of int4 and of bits that tcgemm.compare measures.

torch has none of them. Its baseline is torch._int_mm of the same integers in int8, which gives the
same int32 sums and reads two or eight times the bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import tcgemm
from tcgemm import dtypes
from tcgemm.measure import Plan, baseline, plan
from tcgemm.measure.case import Case
from tcgemm.measure.operands import Pool, sets_past_cache

NAMES = tuple(row.name for row in dtypes.SUBBYTE)


@dataclass
class SubbyteOperands:
    """The operand sets: sub-byte tensors, the same integers in int8, and the results."""

    a: list[Any]
    b: list[Any]
    int8_a: list[Tensor]
    int8_b: list[Tensor]
    out: Pool


def _elements(tensor: Any) -> Tensor:
    """The integers one by one, in int8."""
    if isinstance(tensor, tcgemm.BinaryTensor):
        return tensor.to_bool().to(torch.int8)
    return tensor.to_int8().to(torch.int8)


class SubbyteWork:
    """A product of two sub-byte tensors, with the methods of bench.Workload."""

    case: Case
    device: torch.device
    sets: int
    bytes: int  # read and written by one call
    operands: SubbyteOperands
    # A product here has no terms.
    bias: None = None
    residual: None = None
    scale_a: None = None
    scale_b: None = None
    activation: None = None

    def __init__(self, case: Case, device: torch.device | str) -> None:
        self.case, self.device = case, torch.device(device)
        bits = 1 if case.dtype == "b1" else 4
        if case.k * bits % 8:
            raise RuntimeError(
                f"tcgemm.compare: K is {case.k}, but {case.dtype} fills whole bytes along K; pass "
                f"a multiple of {8 // bits}."
            )
        lead = (case.batch,) if case.batch > 1 else ()
        bytes_of_row = case.k * bits // 8
        bytes_read = case.batch * (case.m + case.n) * bytes_of_row
        self.bytes = bytes_read + 4 * case.batch * case.m * case.n
        self.sets = sets_past_cache(self.bytes, self.device)
        generator = torch.Generator(self.device).manual_seed(0)
        tensors = []
        for rows in (case.m, case.n):
            pool = Pool(self.sets, (*lead, rows, bytes_of_row), torch.uint8, self.device)
            pool.memory.random_(0, 256, generator=generator)
            tensors.append([self._tensor(view) for view in pool.views])
        elements = [[_elements(tensor) for tensor in operand] for operand in tensors]
        self.operands = SubbyteOperands(
            tensors[0],
            [tensor.mT for tensor in tensors[1]],
            elements[0],
            [tensor.mT for tensor in elements[1]],
            Pool(self.sets, (*lead, case.m, case.n), torch.int32, self.device),
        )

    def _tensor(self, view: Tensor) -> Any:
        if self.case.dtype == "b1":
            return tcgemm.BinaryTensor(view)
        return tcgemm.Int4Tensor(view, signed=self.case.dtype == "s4")

    @property
    def plan(self) -> Plan:
        """The plan of the product."""
        if self.device.type != "cuda":
            return Plan("cpu", "")
        return plan(self.operands.a[0], self.operands.b[0])

    def _product(self, index: int) -> Tensor:
        a, b, out = self.operands.a[index], self.operands.b[index], self.operands.out[index]
        if self.case.dtype == "b1":
            return tcgemm.binary_mm(a, b, out=out)
        return tcgemm.matmul(a, b, out=out)

    def candidates(self) -> dict[str, Callable[[int], Any]]:
        """The calls to time. call(i) works on operand set i."""
        return {"tcgemm": self._product, "baseline": self._baseline}

    def _baseline(self, index: int) -> None:
        pools = self.operands
        baseline.gemm(pools.int8_a[index], pools.int8_b[index], pools.out[index], op=self.case.op)

    def call_product(self, function: Callable[..., Tensor], index: int) -> Tensor:
        """Runs baseline.product, or the same compiled, on the int8 integers of set `index`."""
        pools = self.operands
        return function(pools.int8_a[index], pools.int8_b[index], op=self.case.op)

    def check(self) -> tuple[float | None, bool | None]:
        """(None, whether the sums are equal to tcgemm's int8 product)."""
        self.operands.out[0].fill_(-1)
        expected = tcgemm.matmul(self.operands.int8_a[0], self.operands.int8_b[0])
        return None, torch.equal(self._product(0), expected)
