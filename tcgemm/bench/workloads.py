"""A case made runnable: its operands, the calls that are timed, and two checks of the result.

    Workload(case, device)
        candidates()   {name: call on operand set i}: tcgemm, baseline, self_baseline, dense
        check()        (max_error_ratio, exact) on fresh data, with outputs that held NaN

The baseline is what a user of torch writes for the same result; an epilogue that tcgemm fuses is
one torch call after another. The baseline of a sparse GEMM is cuSPARSELt, with torch's dense GEMM
as `dense` beside it; for tf32, which cuSPARSELt does not support in torch, it is torch's dense
GEMM. Dense GEMMs multiply the pruned weight with its zeros.
"""

import functools
import math
from dataclasses import asdict

import torch
import torch.nn.functional as F

import tcgemm
from tcgemm.bench import results_file
from tcgemm.bench.case import FLOAT8, PASSES
from tcgemm.testing import Plan, baseline, numerics, operands, plan

# The floating-point operations of a float64 check: below a second on either device.
BUDGET = {"cuda": 3e13, "cpu": 2e10}
FP8_PRECISIONS = ("fast", "promoted")  # accumulations that are values of `precision`
PRECISIONS = {"tf32": "high", "f32": "highest"}
SELF_BASELINES = {
    "TN": "tcgemm TN",
    "tensor-scales": "tcgemm, a scale a tensor",
    "unprepared": "tcgemm, the weight not prepared",
    "dense": "tcgemm dense",
}
PASS_BASELINES = {"compress": "torch._cslt_compress", "prune": "torch._sparse_semi_structured_tile"}


def as_row(case, gpu, found):
    """A row of the case, in the order of results_file.KEYS; fields that `found` lacks are None."""
    fields = asdict(case)
    known = {**fields, **found, "gpu": gpu, "graph": case.graph and gpu != "cpu"}
    return {name: known.get(name) for name in results_file.KEYS}


def baseline_name(case):
    """The name of the baseline of this case: 'torch.mm', 'torch linear + gelu'."""
    if case.op in PASSES:
        return PASS_BASELINES[case.op]
    sparse = sparse_baseline(case)
    if sparse is not None:
        return sparse.name
    if case.op == "train":
        return "torch linear, forward and backward"
    if case.op != "linear":
        return baseline.name(case.dtype, case.op, fast=case.accumulation == "fast")
    activation = next((part for part in case.terms if part in numerics.ACTIVATIONS), None)
    first = "torch linear"
    if case.dtype in FLOAT8:
        first = dense_baseline_name(case)
    parts = [first, activation, "add" if "residual" in case.terms else None]
    return " + ".join(part for part in parts if part)


def sparse_baseline(case):
    """The class of tcgemm.testing.baseline for a sparse case, or None."""
    if "sparse" not in case.terms or case.dtype == "tf32":
        return None
    return baseline.CusparseltGemm if case.graph else baseline.SemiStructuredLinear


def dense_baseline_name(case):
    """The name of torch's dense GEMM that is timed beside its sparse one."""
    return baseline.name(case.dtype, case.op, fast=case.accumulation == "fast")


class Workload:
    """Operand sets on `device` and the calls of one case."""

    def __init__(self, case, device, seed=0):
        self.case, self.device = case, torch.device(device)
        self.dtype = operands.DTYPES[case.dtype]
        self.generator = self._generator(seed)
        sizes = (case.layout, case.m, case.n, case.k)
        common = {"dtype": self.dtype, "device": self.device, "batch": case.batch}
        common["sets"] = self._wanted_sets()
        self.asked = {"out_dtype": torch.bfloat16} if "to-bf16" in case.terms else {}
        common["result"] = self.asked.get("out_dtype")
        self.operands = operands.Operands.build(*sizes, **common)
        self.linears = None  # the layers or functions of a sparse linear
        self.refill()
        self.out_dtype = self.operands.out[0].dtype
        self.activation = next((p for p in case.terms if p in numerics.ACTIVATIONS), None)
        self.bias = self._extra((case.n,)) if "bias" in case.terms else None
        self.residual = self._extra((case.m, case.n)) if "residual" in case.terms else None
        self.one = torch.ones((), device=self.device)
        self.scale_a, self.scale_b = self._scales()
        self.options = self._options()

    def _generator(self, seed):
        """The source of random data; "meta" tensors have none, which are enough for a plan."""
        if self.device.type == "meta":
            return None
        return torch.Generator(self.device).manual_seed(seed)

    def _wanted_sets(self):
        """For a sparse weight, half of which is read. None: Operands.build counts the bytes."""
        if self.device.type == "meta":
            return 1
        if "sparse" not in self.case.terms:
            return None
        read = self.case.k * (self.case.m + self.case.n // 2)
        return operands.sets_past_cache(read * self.dtype.itemsize, self.device)

    def refill(self, largest=None):
        """New data in all operands, or integers of at most `largest`.

        The prepared or compressed weights are made again, of the new data.
        """
        spread = "spread" in self.case.terms
        if largest is not None:
            self.operands.integers(largest, self.generator, spread=spread)
        else:
            (self.operands.spread if spread else self.operands.normal)(self.generator)
        self.weights = [b.mT for b in self.operands.b.views]
        if "prepared" in self.case.terms and self.device.type != "meta":
            self.weights = [tcgemm.prepare(weight) for weight in self.weights]
        self.b = self.operands.b.views  # as tcgemm takes them
        if "sparse" in self.case.terms:
            self._prune()
        return self.operands

    def _prune(self):
        self.weights = self.operands.prune()
        self.b = [weight.t() for weight in self.weights]
        self.sparse_call = None  # the first call makes it, so that `refusal` sees its errors
        if self.case.op == "linear":
            self.linears = [self._linear(weight) for weight in self.weights]

    def _linear(self, weight):
        """A callable of x: the layer, or torch's function with the sparse weight."""
        if "layer" not in self.case.terms:
            return functools.partial(F.linear, weight=weight)
        linear = torch.nn.Linear(self.case.k, self.case.n, bias=False, device="meta")
        linear.weight = torch.nn.Parameter(weight.to_dense(), requires_grad=False)
        return tcgemm.nn.SparseLinear24.from_dense(linear).eval()

    def _extra(self, shape):
        extra = torch.empty(shape, dtype=self.out_dtype, device=self.device)
        return extra.normal_(generator=self.generator)

    def _scales(self):
        """(scale_a, scale_b) in the strides that torch requires. tcgemm reads them fastest too."""
        case = self.case
        if case.scales is None:
            return None, None
        if case.scales == "tensor-scales":
            return self.one, self.one
        blocks_n, blocks_k = (math.ceil(size / numerics.BLOCK) for size in (case.n, case.k))
        if case.scales == "row-scales":
            return self._positive(case.m, 1), self._positive(1, case.n)
        scale_a = self._positive(blocks_k, case.m).t()  # contiguous along M
        if case.scales == "1x128-scales":
            return scale_a, self._positive(blocks_k, case.n)
        return scale_a, self._positive(blocks_n, blocks_k).t()

    def _positive(self, *shape):
        scale = torch.rand(shape, generator=self.generator, device=self.device)
        return scale.add_(0.5)

    @property
    def sets(self):
        return self.operands.sets

    @property
    def bytes(self):
        """The least memory traffic: every operand is read once, the result is written once."""
        tensors = [self.operands.a[0], self.operands.b[0], self.operands.out[0]]
        if "sparse" in self.case.terms:
            values, metadata, tiles = self.weights[0].stored()
            tensors[1:2] = [values, metadata if tiles is None else tiles]
        extra = (self.bias, self.residual, self.scale_a, self.scale_b)
        tensors += [tensor for tensor in extra if tensor is not None]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def _options(self):
        """The options that are not the default. An option that is passed costs host time."""
        case, precision = self.case, None
        if case.accumulation in FP8_PRECISIONS:
            precision = case.accumulation
        elif case.dtype in PRECISIONS:
            precision = PRECISIONS[case.dtype]
        options = {
            "bias": self.bias,
            "activation": self.activation,
            "residual": self.residual,
            "acc_dtype": torch.float16 if case.accumulation == "f16" else None,
            "precision": precision,
            "scale_a": self.scale_a,
            "scale_b": self.scale_b,
        }
        return {name: value for name, value in options.items() if value is not None} | self.asked

    def call_tcgemm(self, index, keep=True):
        """tcgemm on set `index`, into operands.out[index] (`keep`) or into a new tensor."""
        a, b = self.operands.a[index], self.b[index]
        if self.linears is not None:
            result = self.linears[index](a)
            if keep:
                self.operands.out[index].copy_(result)
            return
        options = dict(self.options)
        out = {"out": self.operands.out[index]} if keep else {}
        if self.case.kernel:
            bias, residual = options.pop("bias", None), options.pop("residual", None)
            scaled = torch.ops.tcgemm.scaled_mm
            forced = {**options, **out, "kernel_name": self.case.kernel}
            forced |= {"bias": bias, "residual": residual}
            (scaled.out if keep else scaled)(a, b, **forced)
        elif self.case.op == "linear":
            bias = options.pop("bias", None)
            tcgemm.linear(a, self.weights[index], bias, **options, **out)
        else:
            getattr(tcgemm, self.case.op)(a, b, **options, **out)

    def self_baseline(self):
        """The call of the second baseline, another GEMM of tcgemm, on the same data."""
        case, pools = self.case, self.operands
        options = dict(self.options)
        a, b = pools.a, pools.b
        if not case.graph:
            weights = [matrix.t() for matrix in b.views]
            return lambda index: tcgemm.linear(a[index], weights[index])
        if case.self_baseline == "TN":
            a = a if case.layout[1] == "N" else self._in_other_layout(a, transposed=False)
            b = b if case.layout[0] == "T" else self._in_other_layout(b, transposed=True)
        elif case.self_baseline == "tensor-scales":
            options |= {"scale_a": self.one, "scale_b": self.one}
        return lambda index: tcgemm.mm(a[index], b[index], **options, out=pools.out[index])

    def _in_other_layout(self, pool, *, transposed):
        """Copies of the matrices in the other layout."""
        copies = operands.Pool(
            *(self.sets, pool[0].shape, self.dtype, self.device), transposed=transposed
        )
        for index in range(self.sets):
            copies[index].copy_(pool[index])
        return copies

    def plan_on(self, device=None):
        """The plan on a GPU: the operands' GPU, or the one that `device` names ("H200")."""
        a, b = self.operands.a[0], self.b[0]
        forced = {"kernel": self.case.kernel} if self.case.kernel else {}
        return plan(a, b, **self.options, **forced, device=device)

    @property
    def plan(self):
        if self.device.type == "cuda":
            return self.plan_on()
        return Plan("cpu", "")

    def call_baseline(self, index, keep=True):
        """The baseline on set `index`."""
        case, pools = self.case, self.operands
        if sparse_baseline(case) is not None:
            if self.sparse_call is None:
                weights = [b.t() for b in pools.b.views]
                self.sparse_call = sparse_baseline(case)(weights, pools.a[0], **self.asked)
            self.sparse_call(pools.a[index], index)
        elif case.op != "linear":
            self.call_dense_baseline(index, keep)
        else:
            self.call_product(baseline.product, index)

    def call_dense_baseline(self, index, keep=True):
        case, pools = self.case, self.operands
        a, b, out = pools.a[index], pools.b[index], pools.out[index] if keep else None
        scales = (self.scale_a, self.scale_b) if case.scales else (self.one, self.one)
        fast, tf32 = case.accumulation == "fast", case.dtype == "tf32"
        baseline.gemm(a, b, out, op=case.op, tf32=tf32, scales=scales, fast=fast)

    def call_product(self, function, index):
        """baseline.product, or the same compiled, on set `index`. The result is not kept."""
        a, b = self.operands.a[index], self.operands.b[index]
        with baseline.tf32_as_asked(a, self.case.dtype == "tf32"):
            return function(
                *(a, b),
                op=self.case.op,
                bias=self.bias,
                activation=self.activation,
                residual=self.residual,
                scales=(self.scale_a, self.scale_b) if self.case.scales else (self.one, self.one),
                fast=self.case.accumulation == "fast",
            )

    def candidates(self):
        """The calls to time. For host time, a call allocates its result, as a user's call does."""
        keep = self.case.graph
        found = {"tcgemm": lambda index: self.call_tcgemm(index, keep)}
        if self.case.baseline:
            found["baseline"] = lambda index: self.call_baseline(index, keep)
        if self.case.self_baseline:
            found["self_baseline"] = self.self_baseline()
        sparse = self.case.baseline and self.case.graph and sparse_baseline(self.case) is not None
        if sparse and not self.asked:  # torch's GEMM of integers has no bf16 result
            found["dense"] = self.call_dense_baseline
        return found

    def detail(self, timings):
        """Fields of the details, beside the row."""
        found = {}
        others = {
            "self_baseline": SELF_BASELINES.get(self.case.self_baseline),
            "dense": dense_baseline_name(self.case),
        }
        for name, text in others.items():
            if name in timings:
                field = results_file.field(name)
                found[field] = text
                found[f"{field}_us"] = round(timings[name].us, 3)
                found[f"{field}_ratio"] = round(timings[name].us / timings["tcgemm"].us, 4)
        if "baseline" in timings and sparse_baseline(self.case) is not None:
            self.call_tcgemm(0)
            result = self.operands.out[0].float()
            other = self.sparse_call(self.operands.a[0], 0).float()
            found["rival_apart"] = round(float((other - result).norm() / result.norm()), 6)
        return found

    def multiplied(self):
        """(a, b) of set 0 in float64 as they are multiplied: rounded to tf32, or scaled."""
        a, b = self.operands.a[0], self.operands.b[0]
        if self.case.dtype == "tf32":
            a, b = numerics.round_to_tf32(a), numerics.round_to_tf32(b)
        return numerics.apply_scale(a, self.scale_a), numerics.apply_scale(b, self.scale_b)

    def check(self):
        """(max_error_ratio, exact) on new data. exact is None if the activation is not exact."""
        budget = BUDGET[self.device.type]
        data = self.refill().poison()
        self.call_tcgemm(0)
        ratio = numerics.error_ratio(
            *(data.out[0], *self.multiplied()),
            accumulation=self.case.accumulation,
            dtype=self.case.dtype,
            budget=budget,
            bias=self.bias,
            activation=self.activation,
            residual=self.residual,
        )
        exact = self._exact(budget) if self.activation in (None, "relu") else None
        self.refill()
        return ratio, exact

    def _exact(self, budget):
        """On integers, with powers of two as scales, every sum is exact."""
        largest = numerics.largest_exact_integer(self.case.accumulation)
        data = self.refill(largest).poison()
        kept = {}
        for name in ("bias", "residual", "scale_a", "scale_b"):
            tensor = getattr(self, name)
            if tensor is None or tensor is self.one:
                continue
            kept[name] = tensor.clone()
            if name.startswith("scale"):
                tensor.random_(-1, 2, generator=self.generator).exp2_()
            else:
                tensor.random_(-largest, largest + 1, generator=self.generator)

        def finish(result, rows):
            if self.bias is not None:
                result = result + self.bias.double()
            result = numerics.ACTIVATIONS[self.activation](result)
            return result if self.residual is None else result + self.residual[rows].double()

        self.call_tcgemm(0)
        exact = numerics.is_exact(data.out[0], *self.multiplied(), budget=budget, finish=finish)
        for name, values in kept.items():
            getattr(self, name).copy_(values)
        return exact

    def row(self, timings, checks, *, gpu, commit, sampler):
        """The row of this case, in the order of results_file.KEYS."""
        case, own, other = self.case, timings["tcgemm"], timings.get("baseline")
        error, exact = checks
        found = {
            "kernel": self.plan.kernel,
            "us": round(own.us, 3),
            "tflops": round(case.flops / own.us / 1e6, 3) if case.graph and case.flops else None,
            "rival": baseline_name(case) if case.baseline else None,
            "rival_us": round(other.us, 3) if other else None,
            "ratio": round(other.us / own.us, 4) if other else None,
            "max_error_ratio": round(error, 4) if math.isfinite(error) else None,
            "exact": exact,
            "commit": commit,
            "clock_mhz": sampler.clock_mhz,
            "power_w": sampler.power_w,
        }
        return as_row(case, gpu, found)
