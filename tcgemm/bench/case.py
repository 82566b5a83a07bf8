"""One case of a benchmark: an operation with its dtype, layout, size and epilogue.

    op            mm  bmm  linear          m x n x k: a is (M, K), b is (K, N)
                  train                    forward and backward of a linear layer; m tokens
                  compress  prune          passes over a weight (M, K); n is 1
    layout        TN  NN  TT  NT           the letters of tcgemm/testing/operands.py
    dtype         bf16 f16 f64 e4m3 e5m2 s8 u8; for float32 operands tf32 (precision "high") and
                  f32 (precision "highest")
    accumulation  f32  f16  f64  s32; for float8 fast and promoted
    epilogue      terms joined by "+": the granularity of the operands' scales; spread (f32: the
                  exponents in a row differ by up to 40); prepared (linear with tcgemm.prepare);
                  sparse (b is 2:4 sparse); layer (linear as a module); to-bf16 (s8 operands, bf16
                  result); bias, an activation, residual; the option of a pass

The baseline of a case is torch. `self_baseline` names a second baseline, another GEMM of tcgemm.
"""

from dataclasses import dataclass, replace

FLOAT8 = ("e4m3", "e5m2")
ACCUMULATION = {"f64": "f64", "s8": "s32", "u8": "s32", "e4m3": "promoted", "e5m2": "promoted"}
# The granularity of b's scales. a has the same, but for 128x128 of b it has 1x128.
SCALES = ("tensor-scales", "row-scales", "128x128-scales", "1x128-scales")
OPERAND_TERMS = (*SCALES, "spread", "prepared", "sparse")  # terms that describe a and b
PASSES = ("compress", "prune")
ALIGNED = 8  # elements; `limited` keeps what a size is beyond a multiple of it


@dataclass(frozen=True)
class Case:
    """One line of a table. `kernel` forces kernels whose name contains this text."""

    op: str
    dtype: str
    layout: str
    m: int
    n: int
    k: int
    batch: int = 1
    accumulation: str = ""  # "": the default of the dtype
    epilogue: str = "none"
    graph: bool = True  # False: measures the host time of a call, without a CUDA graph
    set: str = ""
    kernel: str = ""
    target: float = 0.0  # the target of the ratio to the baseline; 0: the case has none
    baseline: bool = True  # measure torch too?
    self_baseline: str = ""  # "TN" (that layout), "tensor-scales", "unprepared", "dense"

    def __post_init__(self):
        if not self.accumulation:
            object.__setattr__(self, "accumulation", ACCUMULATION.get(self.dtype, "f32"))

    @property
    def terms(self):
        return () if self.epilogue == "none" else tuple(self.epilogue.split("+"))

    @property
    def scales(self):
        return next((term for term in self.terms if term in SCALES), None)

    @property
    def flops(self):
        """Floating-point operations. A sparse GEMM counts as many as the dense one."""
        if self.op in PASSES:
            return 0.0
        gemms = 3 if self.op == "train" else 1  # y, and the gradients of x and of the weight
        return 2.0 * gemms * self.batch * self.m * self.n * self.k

    @property
    def size(self):
        """The shape as text, as the tables show it."""
        if self.op in PASSES:
            return f"{self.m}x{self.k}"
        cube = self.m == self.n == self.k
        size = f"{self.m}^3" if cube else f"{self.m}x{self.n}x{self.k}"
        return size if self.batch == 1 else f"{self.batch} x {size}"

    def limited(self, limit):
        """The case with sizes of about `limit` at most, which are as ragged as before."""
        sizes = {
            name: min(getattr(self, name), limit + getattr(self, name) % ALIGNED) for name in "mnk"
        }
        return replace(self, batch=min(self.batch, 2), **sizes)
