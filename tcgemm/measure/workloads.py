"""A case made runnable: its operands, the calls that are timed, and two checks of the result.

The baseline is the code that a user of torch writes for the same result. Where tcgemm fuses an
epilogue, it is torch's one call for it, or else one torch call after another. For gelu_tanh torch
has both, and the one call is timed as "torch fused". The baseline of a sparse GEMM is
cuSPARSELt, and torch's dense GEMM is timed beside it as "torch dense". torch has no tf32 GEMM of
cuSPARSELt, so the baseline is the dense GEMM there. Dense GEMMs multiply the pruned weight with its
zeros.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import tcgemm
from tcgemm import dtypes
from tcgemm.emulate.rounding import round_to_tf32
from tcgemm.measure import Plan, baseline, errors, operands, plan
from tcgemm.measure.case import FLOATS, Case
from tcgemm.measure.operands import Operands
from tcgemm.measure.timing import Call, Timing
from tcgemm.measure.work import (
    ALSO_FUSED,
    DENSE,
    F32_SUMS,
    FUSED,
    TORCH,
    Checks,
    baseline_name,
    dense_baseline_name,
    in_one_call,
    sparse_baseline,
)
from tcgemm.operands.sparse.tensor import SparseTensor24
from tcgemm.ops.prepared import Prepared
from tcgemm.typing import Activation, Precision, words

# The largest number of floating-point operations of a float64 check: it takes less than a second.
BUDGET = {"cuda": 3e13, "cpu": 2e10}
PRECISIONS = {"tf32": "high", "f32": "highest"}
SELF_BASELINES = {
    "TN": "tcgemm TN",
    "tensor-scales": "tcgemm, a scale a tensor",
    "unprepared": "tcgemm, the weight not prepared",
    "dense": "tcgemm dense",
}


class Workload:
    """The operand sets and the calls of a GEMM.

    Example:
        >>> from tcgemm.measure.case import Case
        >>> from tcgemm.measure.workloads import Workload
        >>> work = Workload(Case("mm", "bf16", "TN", 64, 48, 32), "cpu")
        >>> sorted(work.candidates()), work.check()[1]
        (['tcgemm', 'torch'], True)
    """

    scale_a: Tensor | None
    scale_b: Tensor | None
    weights: Sequence[Tensor | Prepared]  # b.mT of each set, prepared or compressed if need be
    b: Sequence[Any]  # the second operand of each set, as tcgemm takes it
    linears: list[Callable[[Tensor], Tensor]] | None  # the layers or functions of a sparse linear
    sparse_call: Any  # cuSPARSELt, once it was called

    def __init__(self, case: Case, device: torch.device | str) -> None:
        self.case: Case = case
        self.device: torch.device = torch.device(device)
        self.dtype: torch.dtype = operands.DTYPES.get(case.dtype, torch.int8)
        self.generator: torch.Generator | None = None  # "meta" is for plans and has no data
        if self.device.type != "meta":
            self.generator = torch.Generator(self.device).manual_seed(0)
        self.asked: dict[str, Any] = {}
        if "to-bf16" in case.terms:
            self.asked["out_dtype"] = torch.bfloat16
        result = self.asked.get("out_dtype", dtypes.result(self.dtype))
        bits_a, bits_b = self._stored_bits()
        touched = case.k * (case.m * bits_a + case.n * bits_b) // 8
        touched += case.m * case.n * result.itemsize
        self.sets: int = operands.sets_past_cache(case.batch * touched, self.device)
        sizes = (case.m, case.n, case.k)
        options: dict[str, Any] = {"dtype": self.dtype, "device": self.device, "batch": case.batch}
        options |= {"sets": self.sets, "result": result}
        self.operands: Operands = Operands.build(case.layout, *sizes, **options)
        self.activation: Activation | None = case.activation
        self.bias: Tensor | None = self._extra(case.n) if "bias" in case.terms else None
        has_residual = "residual" in case.terms
        self.residual: Tensor | None = self._extra(case.m, case.n) if has_residual else None
        self.one: Tensor = torch.ones((), device=self.device)
        self.scale_a, self.scale_b = self._scales()
        precision = PRECISIONS.get(case.dtype, case.accumulation)
        options = self.epilogue | {"scale_a": self.scale_a, "scale_b": self.scale_b}
        options["precision"] = precision if precision in words(Precision) else None
        options["acc_dtype"] = torch.float16 if case.accumulation == "f16" else None
        # An option that is passed costs host time.
        self.options: dict[str, Any] = {n: x for n, x in options.items() if x is not None}
        self.options |= self.asked
        self.linears, self.sparse_call = None, None
        self.refill()

    def _stored_bits(self) -> tuple[int, int]:
        """(a, b): the bits of an element in memory. A GEMM reads half of a sparse weight."""
        bits = 8 * self.dtype.itemsize
        return bits, bits // 2 if "sparse" in self.case.terms else bits

    def _extra(self, *shape: int) -> Tensor:
        extra = torch.empty(shape, dtype=self.operands.out[0].dtype, device=self.device)
        return extra.normal_(generator=self.generator)

    def _scales(self) -> tuple[Tensor | None, Tensor | None]:
        """(scale_a, scale_b) with the strides that torch requires. tcgemm reads these fastest."""
        case = self.case
        blocks_n, blocks_k = (math.ceil(size / errors.BLOCK) for size in (case.n, case.k))

        def positive(*shape: int) -> Tensor:
            return torch.rand(shape, generator=self.generator, device=self.device).add_(0.5)

        if case.scales is None:
            return None, None
        if case.scales == "tensor-scales":
            return self.one, self.one
        if case.scales == "row-scales":
            return positive(case.m, 1), positive(1, case.n)
        scale_a = positive(blocks_k, case.m).t()  # contiguous along M
        if case.scales == "1x128-scales":
            return scale_a, positive(blocks_k, case.n)
        return scale_a, positive(blocks_n, blocks_k).t()

    def refill(self, largest: int | None = None) -> Operands:
        """Fills all operands with new data, or with integers of at most `largest`, and makes the
        prepared or compressed weights again."""
        case, pools, spread = self.case, self.operands, "spread" in self.case.terms
        if largest is not None:
            pools.integers(largest, self.generator, spread=spread)
        else:
            (pools.spread if spread else pools.normal)(self.generator)
        self.b, self.weights = pools.b, [b.mT for b in pools.b]
        if "prepared" in case.terms and self.device.type != "meta":
            self.weights = [tcgemm.prepare(weight) for weight in self.weights]
        if "sparse" in case.terms:
            self.weights = weights = pools.prune()
            self.b = [weight.t() for weight in weights]
            self.sparse_call = None  # the first call makes it, so that `refusal` sees its errors
            if case.op == "linear":
                self.linears = [self._sparse_linear(weight) for weight in weights]
        return pools

    def _sparse_linear(self, weight: SparseTensor24) -> Callable[[Tensor], Tensor]:
        """A function of x: the layer, or torch's function with the sparse weight."""
        if "layer" not in self.case.terms:
            return functools.partial(F.linear, weight=weight)
        linear = torch.nn.Linear(self.case.k, self.case.n, bias=False, device="meta")
        linear.weight = torch.nn.Parameter(weight.to_dense(), requires_grad=False)
        return tcgemm.nn.SparseLinear24.from_linear(linear).eval()

    @property
    def bytes(self) -> int | None:
        """The least memory traffic: all operands and the result once. None: it is not known."""
        tensors = [self.operands.a[0], *self.stored_weight(), self.operands.out[0]]
        tensors += [self.bias, self.residual, self.scale_a, self.scale_b]
        return sum(tensor.nbytes for tensor in tensors if tensor is not None)

    def stored_weight(self) -> tuple[Tensor, ...]:
        """The tensors of set 0 that a kernel reads for b."""
        weight = self.weights[0]
        if isinstance(weight, SparseTensor24):
            values, metadata, tiles = weight.stored()
            return values, metadata if tiles is None else tiles
        return (self.operands.b[0],)

    @property
    def epilogue(self) -> dict[str, Any]:
        """The terms after the product, by the names of tcgemm's options."""
        return {"bias": self.bias, "activation": self.activation, "residual": self.residual}

    @property
    def operand_error(self) -> float:
        """The largest relative error of an element of b as it is multiplied."""
        return 0.0

    def out(self, index: int) -> dict[str, Any]:
        """The option for the memory of the result of set `index`. Where host time is measured there
        is none: the call allocates its result, as a user's call does."""
        return {"out": self.operands.out[index]} if self.case.graph else {}

    def call_tcgemm(self, index: int) -> Any:
        """Runs tcgemm on operand set `index`."""
        a = self.operands.a[index]
        if self.linears is not None:
            return self.linears[index](a)
        if self.case.kernel:
            return self.call_kernel(self.case.kernel, index)
        if self.case.op == "linear":
            return tcgemm.linear(a, self.weights[index], **self.options, **self.out(index))
        multiply = getattr(tcgemm, self.case.op)
        return multiply(a, self.b[index], **self.options, **self.out(index))

    def call_kernel(self, name: str, index: int) -> Tensor:
        """Runs a kernel by name on set `index`."""
        options = {"bias": None, "residual": None, **self.options, "kernel_name": name}
        tensors = self.operands.a[index], self.b[index]
        return self.call_operator(torch.ops.tcgemm.scaled_mm, tensors, options, index)

    def call_operator(
        self, operator: Any, tensors: tuple[Any, ...], options: dict[str, Any], index: int
    ) -> Tensor:
        """Calls an operator of tcgemm for the result of set `index`."""
        out = self.out(index)
        result = (operator.out if out else operator)(*tensors, **options, **out)
        return out.get("out", result)

    def self_baseline(self) -> Call:
        """The call of the second baseline, another GEMM of tcgemm, on the same data."""
        case, pools = self.case, self.operands
        options, a, b = dict(self.options), pools.a, pools.b
        if not case.graph:
            weights = [matrix.t() for matrix in b]
            return lambda index: tcgemm.linear(a[index], weights[index])
        if case.self_baseline == "TN":
            pairs = [operands.in_layout("TN", *pair) for pair in zip(a, b, strict=True)]
            a, b = ([pair[place] for pair in pairs] for place in (0, 1))
        elif case.self_baseline == "tensor-scales":
            options |= {"scale_a": self.one, "scale_b": self.one}
        return lambda index: tcgemm.mm(a[index], b[index], **options, out=pools.out[index])

    @property
    def plan(self) -> Plan:
        """The plan of the call "tcgemm"."""
        return self.plan_on() if self.device.type == "cuda" else Plan("cpu", "")

    def plan_on(self, device: str | None = None) -> Plan:
        """The plan on a GPU: the operands' GPU, or the one that `device` names ("H200")."""
        a, b = self.operands.a[0], self.b[0]
        kernel = {"kernel": self.case.kernel} if self.case.kernel else {}
        return plan(a, b, **self.options, **kernel, device=device)

    def given(self, index: int) -> tuple[Any, Any]:
        """(a, b) of set `index` for a function of the caller."""
        return self.operands.a[index], self.operands.b[index]

    def call_baseline(self, index: int) -> Any:
        """Runs torch on operand set `index`."""
        pools, library = self.operands, sparse_baseline(self.case)
        if library is not None:
            if self.sparse_call is None:
                weights = [b.t() for b in pools.b]
                self.sparse_call = library(weights, pools.a[0], **self.asked)
            return self.sparse_call(pools.a[index], index)
        call = self.call_in_one if in_one_call(self.case) else self.call_dense_baseline
        return call(index)

    def call_in_one(self, index: int) -> Tensor:
        """Runs torch's one call for the epilogue on set `index`."""
        a, b = self.given(index)
        return baseline.in_one_call(a, b, **self.out(index), **self.epilogue)

    def call_dense_baseline(self, index: int) -> Tensor:
        """Runs torch's dense calls on set `index`."""
        out = self.out(index) if self.case.op != "linear" else {}
        return self.call_product(baseline.product, index, **out)

    def call_with_f32_sums(self, index: int) -> Tensor:
        """Runs torch.mm, which adds in float32, on set `index`."""
        return baseline.product(*self.given(index), **self.out(index))

    def call_product(self, function: Callable[..., Tensor], index: int, **out: Tensor) -> Tensor:
        """Runs baseline.product, or the same compiled, on set `index`."""
        case, a, b = self.case, self.operands.a[index], self.operands.b[index]
        scales = (self.scale_a, self.scale_b) if case.scales else (self.one, self.one)
        options = self.epilogue | {"scales": scales, "fast": case.accumulation == "fast"}
        fp16_sums = case.accumulation == "f16"
        with baseline.settings(a, tf32=case.dtype == "tf32", fp16_sums=fp16_sums):
            return function(a, b, op=case.op, **options, **out)

    def candidates(self) -> dict[str, Call]:
        """The calls to time, by name: "tcgemm", "torch" and others. call(i) works on set i."""
        case = self.case
        calls: dict[str, Call] = {"tcgemm": self.call_tcgemm}
        if case.self_baseline:
            calls[SELF_BASELINES[case.self_baseline]] = self.self_baseline()
        if not case.baseline:
            return calls
        calls[TORCH] = self.call_baseline
        # torch's GEMM of integers has no bf16 result
        if case.graph and sparse_baseline(case) is not None and not self.asked:
            calls[DENSE] = self.call_dense_baseline
        if case.accumulation == "f16":
            calls[F32_SUMS] = self.call_with_f32_sums
        if case.op == "linear" and case.epilogue == ALSO_FUSED and case.dtype in (*FLOATS, "f32"):
            calls[FUSED] = self.call_in_one
        return calls

    def names(self) -> dict[str, str]:
        """{candidate: the function that it calls}."""
        return {
            TORCH: baseline_name(self.case),
            DENSE: dense_baseline_name(self.case),
            FUSED: "torch._addmm_activation",
            F32_SUMS: baseline.name("f16", self.case.op),
        }

    def facts(self, timings: Mapping[str, Timing]) -> dict[str, Any]:
        """What only this kind of case has, after the measurement."""
        return {}

    def multiplied(self) -> tuple[Tensor, Tensor]:
        """(a, b) of set 0 in float64 as they are multiplied: rounded to tf32, or scaled."""
        a, b = self.operands.a[0], self.operands.b[0]
        if self.case.dtype == "tf32":
            a, b = round_to_tf32(a), round_to_tf32(b)
        return errors.apply_scale(a, self.scale_a), errors.apply_scale(b, self.scale_b)

    def check(self) -> Checks:
        """(max_error_ratio, exact) on new data; None where a check does not apply."""
        self.refill().poison()
        ratio = self.error_ratio(self.call_tcgemm(0))
        exact = self._exact() if self.activation in (None, "relu") else None
        self.refill()
        return ratio, exact

    def error_ratio(self, result: Tensor, budget: float | None = None) -> float:
        """The error of the result of set 0, in units of its bound."""
        return errors.error_ratio(
            result,
            *self.multiplied(),
            accumulation=self.case.accumulation,
            dtype=self.case.dtype,
            budget=budget or BUDGET[self.device.type],
            **self.epilogue,
            operand_error=self.operand_error,
        )

    def _exact(self) -> bool | None:
        """Is the result exact on integers? With powers of two as scales, every sum is exact."""
        largest = errors.largest_exact_integer(self.case.accumulation)
        self.refill(largest).poison()
        tensors = (self.bias, self.residual, self.scale_a, self.scale_b)
        changed = [tensor for tensor in tensors if tensor is not None and tensor is not self.one]
        originals = [tensor.clone() for tensor in changed]
        for tensor in changed:
            if tensor is self.scale_a or tensor is self.scale_b:
                tensor.random_(-1, 2, generator=self.generator).exp2_()
            else:
                tensor.random_(-largest, largest + 1, generator=self.generator)
        result, budget = self.call_tcgemm(0), BUDGET[self.device.type]
        exact = errors.is_exact(result, *self.multiplied(), budget=budget, **self.epilogue)
        for tensor, values in zip(changed, originals, strict=True):
            tensor.copy_(values)
        return exact
