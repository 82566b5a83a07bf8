"""Products of 16-bit activations with a packed weight, beside torch's with the weight that was
packed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import tcgemm
from tcgemm.measure import baseline, errors, operands
from tcgemm.measure.operands import Operands
from tcgemm.measure.timing import Call
from tcgemm.measure.workloads import Workload
from tcgemm.operands.packed import PackedWeight
from tcgemm.operands.packed.formats import FORMATS

# Kernels round an element of the weight, its scale and a table to 16 bits at most three times.
ROUNDINGS = 3
TORCH_INT4 = "torch int4"


class PackedWeightWorkload(Workload):
    """The operand sets and the calls of a product with a packed weight.

    Example:
        >>> from tcgemm.measure.case import Case
        >>> from tcgemm.measure.packed_weight import PackedWeightWorkload
        >>> case = Case("mm", "bf16", "TN", 8, 48, 128, epilogue="packed-int4-128")
        >>> PackedWeightWorkload(case, "cpu").check()[0] < 1
        True
    """

    packed: list[PackedWeight]  # of each set
    weights: Any
    b: Any

    def _wanted_sets(self) -> int | None:
        case = self.case
        bits = FORMATS[case.packed_format].bits
        bytes_read = case.k * (case.m * self.dtype.itemsize + case.n * bits // 8)
        return operands.sets_past_cache(bytes_read, self.device)

    def refill(self, largest: int | None = None) -> Operands:
        """Fills all operands with new data, and packs the weights again."""
        pools = super().refill(largest)
        case: Any = self.case
        self.packed = [
            tcgemm.pack_weight(b.mT, case.packed_format, case.packed_group) for b in pools.b.views
        ]
        for weight in self.packed:
            weight.arranged()
        self.weights, self.b = self.packed, [weight.t() for weight in self.packed]
        return pools

    def candidates(self) -> dict[str, Call]:
        """tcgemm and torch with weights of 16 bits, and torch's int4 product where it fits."""
        case, calls = self.case, super().candidates()
        fits = (case.packed_format, case.packed_group) == ("int4", baseline.Int4Gemm.group)
        if fits and case.m <= baseline.Int4Gemm.most_rows and self.device.type == "cuda":
            calls[TORCH_INT4] = baseline.Int4Gemm(self.operands.a.views, *self.operands.b[0].shape)
        return calls

    def names(self) -> dict[str, str]:
        return super().names() | {TORCH_INT4: baseline.Int4Gemm.name}

    def stored_weight(self) -> tuple[Tensor, ...]:
        """The tensor of set 0 that a kernel reads for b."""
        return (self.packed[0].arranged(),)

    @property
    def operand_error(self) -> float:
        """The largest relative error of an element of the weight as it is multiplied."""
        return ROUNDINGS * errors.UNIT_ROUNDOFF[self.dtype]

    def call_kernel(self, name: str, index: int) -> Tensor:
        """Runs a kernel by name on set `index`."""
        packed = self.packed[index]
        options = self.options | packed.order._asdict() | {"kernel_name": name}
        tensors = self.operands.a[index], packed.arranged()
        return self.call_operator(torch.ops.tcgemm.packed_mm, tensors, options, index)

    def multiplied(self) -> tuple[Tensor, Tensor]:
        """(a, b) of set 0 in float64, before kernels round the weight."""
        return self.operands.a[0].double(), self.packed[0].t().dequantize(torch.float32).double()

    def _exact(self) -> None:
        """No data has exact products in every format."""
