"""The products of int4 and of bits.

torch has none of them. Its baseline is torch._int_mm of the same integers in int8, which gives the
same int32 sums and reads two or eight times the bytes. For the operations "xor" and "pm1" of bits
the integers are -1 and 1.
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
from tcgemm.measure.timing import Call
from tcgemm.measure.work import Checks, Work
from tcgemm.typing import BinaryOperation, words

NAMES = tuple(row.name for row in dtypes.SUBBYTE)


@dataclass
class SubbyteOperands:
    """The operand sets: sub-byte tensors, the same integers in int8, and the results."""

    a: list[Any]
    b: list[Any]
    int8_a: list[Tensor]
    int8_b: list[Tensor]
    out: Pool


INT8 = "tcgemm int8"


class SubbyteWork(Work):
    """A product of two sub-byte tensors."""

    case: Case
    device: torch.device
    sets: int
    operands: SubbyteOperands
    traffic: int  # bytes read and written by one call
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
        self.traffic = bytes_read + 4 * case.batch * case.m * case.n
        self.sets = sets_past_cache(self.traffic, self.device)
        generator = self._generator(0)
        tensors = []
        for rows in (case.m, case.n):
            pool = Pool(self.sets, (*lead, rows, bytes_of_row), torch.uint8, self.device)
            pool.memory.random_(0, 256, generator=generator)
            tensors.append([self._tensor(view) for view in pool.views])
        elements = [[self._elements(tensor) for tensor in operand] for operand in tensors]
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
    def bytes(self) -> int:
        return self.traffic

    @property
    def operation(self) -> BinaryOperation:
        """What is counted of bits."""
        return next((word for word in words(BinaryOperation) if word in self.case.terms), "and")

    def _elements(self, tensor: Any) -> Tensor:
        """The integers one by one, in int8."""
        if not isinstance(tensor, tcgemm.BinaryTensor):
            return tensor.to_int8().to(torch.int8)
        bits = tensor.to_bool().to(torch.int8)
        return bits if self.operation == "and" else bits.mul_(2).sub_(1)

    def plan_on(self, device: str | None = None) -> Plan:
        return plan(self.operands.a[0], self.operands.b[0], device=device)

    def call_tcgemm(self, index: int) -> Tensor:
        a, b, out = self.operands.a[index], self.operands.b[index], self.operands.out[index]
        if self.case.dtype == "b1":
            return tcgemm.binary_mm(a, b, self.operation, out=out)
        return tcgemm.matmul(a, b, out=out)

    def call_baseline(self, index: int) -> Tensor:
        pools = self.operands
        return baseline.product(pools.int8_a[index], pools.int8_b[index], pools.out[index])

    def call_int8(self, index: int) -> Tensor:
        """Runs tcgemm on the int8 integers of set `index`."""
        pools = self.operands
        return tcgemm.matmul(pools.int8_a[index], pools.int8_b[index], out=pools.out[index])

    def candidates(self) -> dict[str, Call]:
        """tcgemm, torch, and tcgemm's product of int8."""
        return super().candidates() | {INT8: self.call_int8}

    def call_product(self, function: Callable[..., Tensor], index: int) -> Tensor:
        """Runs baseline.product, or the same compiled, on the int8 integers of set `index`."""
        pools = self.operands
        return function(pools.int8_a[index], pools.int8_b[index], op=self.case.op)

    def check(self) -> Checks:
        """(None, whether the sums are those of tcgemm's int8 product)."""
        expected = tcgemm.matmul(self.operands.int8_a[0], self.operands.int8_b[0])
        if self.operation == "xor":
            expected = (self.case.k - expected) // 2
        self.operands.out[0].fill_(-1)
        return None, torch.equal(self.call_tcgemm(0), expected)
