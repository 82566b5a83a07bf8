"""One case of a benchmark: an operation with its dtype, layout, size and epilogue.

    op            mm  bmm  linear          m x n x k: a is (M, K), b is (K, N)
                  train                    forward and backward of a linear layer; m tokens
                  compress  prune          passes over a weight (M, K); n is 1
    layout        TN  NN  TT  NT           tcgemm/measure/operands.py explains the letters
    dtype         bf16 f16 f64 e4m3 e5m2 s8 u8; for float32 operands tf32 (precision "high") and
                  f32 (precision "highest")
    accumulation  f32  f16  f64  s32; for float8 fast and promoted
    epilogue      terms joined by "+":
                      the granularity of the operands' scales
                      spread     f32 operands whose exponents in a row differ by up to 40
                      prepared   linear with tcgemm.prepare
                      sparse     b is 2:4 sparse
                      packed-int4-128  b is a packed weight of this format, with a scale for so many
                                       elements, or for a "row"
                      and, xor, pm1  the operation of a product of bits
                      layer      linear as a module
                      to-bf16    s8 operands with a bf16 result
                      bias, an activation, residual, or the option of a pass

The baseline of a case is torch. `self_baseline` names a second baseline, another GEMM of tcgemm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tcgemm import dtypes
from tcgemm.typing import Activation, Layout, words

Operation = Literal["mm", "bmm", "linear", "train", "compress", "prune"]

FLOATS = ("bf16", "f16")
FLOAT8 = ("e4m3", "e5m2")
SUBBYTE = tuple(row.name for row in dtypes.SUBBYTE)  # int4 and bits
FORWARD = ("TN", "NN")  # the layouts of a forward pass
ACCUMULATION = {
    "f64": "f64",
    "e4m3": "promoted",
    "e5m2": "promoted",
    **dict.fromkeys(("s8", "u8", *SUBBYTE), "s32"),
}
# The granularity of b's scales. a's scales have the same, or 1x128 if b's have 128x128.
SCALES = ("tensor-scales", "row-scales", "128x128-scales", "1x128-scales")
OPERAND_TERMS = (*SCALES, "spread", "prepared", "sparse")  # terms that describe a and b
PASSES = ("compress", "prune")
ALIGNED = 8  # elements; `limited` keeps the remainder of a size by it


@dataclass(frozen=True)
class Case:
    """One line of a table. `kernel` forces kernels whose name contains this text."""

    op: Operation
    dtype: str  # a word of tcgemm.typing.MeasuredDType, or the name of a dtype without products
    layout: Layout
    m: int
    n: int
    k: int
    batch: int = 1
    accumulation: str = ""  # "": the default of the dtype
    epilogue: str = "none"
    graph: bool = True  # False: the host time of a call is measured, without a CUDA graph
    set: str = ""
    kernel: str = ""
    baseline: bool = True  # measure torch too?
    self_baseline: str = ""  # "TN" (that layout), "tensor-scales", "unprepared", "dense"

    def __post_init__(self) -> None:
        if not self.accumulation:
            object.__setattr__(self, "accumulation", ACCUMULATION.get(self.dtype, "f32"))

    @property
    def terms(self) -> tuple[str, ...]:
        """The terms of the epilogue."""
        return () if self.epilogue == "none" else tuple(self.epilogue.split("+"))

    @property
    def activation(self) -> Activation | None:
        """The activation among the terms."""
        return next((word for word in words(Activation) if word in self.terms), None)

    @property
    def packed(self) -> tuple[str, int | None] | None:
        """(format, elements along K that share a scale) of a packed weight; None: a whole row."""
        for term in self.terms:
            if term.startswith("packed-"):
                _, name, size = term.split("-")
                return name, None if size == "row" else int(size)
        return None

    @property
    def scales(self) -> str | None:
        """The term for the granularity of the scales; None without scales."""
        return next((term for term in self.terms if term in SCALES), None)

    @property
    def flops(self) -> float:
        """Floating-point operations. A sparse GEMM counts as many as the dense one."""
        if self.op in PASSES:
            return 0.0
        gemms = 3 if self.op == "train" else 1  # y, and the gradients of x and of the weight
        return 2.0 * gemms * self.batch * self.m * self.n * self.k

    @property
    def size(self) -> str:
        """The shape as the tables show it, such as "4096^3"."""
        if self.op in PASSES:
            return f"{self.m}x{self.k}"
        cube = self.m == self.n == self.k
        size = f"{self.m}^3" if cube else f"{self.m}x{self.n}x{self.k}"
        return size if self.batch == 1 else f"{self.batch} x {size}"

    def limited(self, limit: int) -> Case:
        """The case with smaller sizes: `limit` at most, plus the remainder by ALIGNED."""
        m, n, k = (min(size, limit + size % ALIGNED) for size in (self.m, self.n, self.k))
        return replace(self, batch=min(self.batch, 2), m=m, n=n, k=k)
