"""A case made runnable: its operands, the calls that are timed, and the two checks of the result.

    Case --Workload--> candidates()    ours, torch's and our other product, which `own` names (of a
              |                        sparse one torch's dense one too): calls on operand set i
              |------> check()         -> (max_error_ratio, exact) on fresh data, into a poisoned
                                       output

The rival is what a user of torch writes for the same thing; where tcgemm fuses an epilogue, that
is one torch call after another. Of sparse products it is cuSPARSELt's, and torch's dense one where
that has none (tf32); b holds the pruned weight, zeros included, for the dense ones.
"""

import functools
import math
from dataclasses import asdict

import store
import torch
import torch.nn.functional as F

import tcgemm
from tcgemm.bench import accuracy, kernel_name, operands, rival

# Floating-point operations that a float64 check may spend: below a second on either device.
BUDGET = {"cuda": 3e13, "cpu": 2e10}
WORDS = ("fast", "promoted")  # accumulations that are asked for as a precision
PRECISIONS = {"tf32": "high", "f32": "highest"}
OWN = {
    "TN": "tcgemm TN",
    "tensor-scales": "tcgemm, a scale a tensor",
    "unprepared": "tcgemm, the weight not prepared",
    "dense": "tcgemm dense",
}
PASSES = {"compress": "torch._cslt_compress", "prune": "torch._sparse_semi_structured_tile"}


def as_row(case, gpu, found):
    """The case and what was found, in the order of store.KEYS; what was not found is None."""
    fields = asdict(case)
    del fields["rival"]  # here: is there one; in the row: which
    known = {**fields, **found, "gpu": gpu, "graph": case.graph and gpu != "cpu"}
    return {name: known.get(name) for name in store.KEYS}


def rival_name(case):
    """What torch calls for this case: 'torch.mm', 'torch linear + gelu'."""
    if case.op in PASSES:
        return PASSES[case.op]
    sparse = sparse_rival(case)
    if sparse is not None:
        return sparse.name
    if case.op != "linear":
        return rival.name(case.dtype, case.op, fast=case.accumulation == "fast")
    activation = next((part for part in case.parts if part in accuracy.ACTIVATIONS), None)
    parts = ["torch linear", activation, "add" if "residual" in case.parts else None]
    return " + ".join(part for part in parts if part)


def sparse_rival(case):
    """The class of tcgemm.bench.rival for this case, or None."""
    if "sparse" not in case.parts or case.dtype == "tf32":
        return None
    return rival.SparseProduct if case.graph else rival.SparseLinear


def dense_rival_name(case):
    """Of torch's dense product that is timed beside its sparse one."""
    return rival.name(case.dtype, case.op, fast=case.accumulation == "fast")


class Workload:
    """Operand sets on `device` and the calls of one case."""

    def __init__(self, case, device, seed=0):
        self.case, self.device = case, torch.device(device)
        self.dtype = operands.DTYPES[case.dtype]
        self.generator = torch.Generator(self.device).manual_seed(seed)
        sizes = (case.layout, case.m, case.n, case.k)
        common = {"dtype": self.dtype, "device": self.device, "batch": case.batch}
        common["sets"] = self._wanted_sets()
        self.asked = {"out_dtype": torch.bfloat16} if "to-bf16" in case.parts else {}
        common["result"] = self.asked.get("out_dtype")
        self.operands = operands.Operands.build(*sizes, **common)
        self.linears = None  # of a sparse weight
        self.refill()
        self.out_dtype = self.operands.out[0].dtype
        self.activation = next((p for p in case.parts if p in accuracy.ACTIVATIONS), None)
        self.bias = self._extra((case.n,)) if "bias" in case.parts else None
        self.residual = self._extra((case.m, case.n)) if "residual" in case.parts else None
        self.one = torch.ones((), device=self.device)
        self.scale_a, self.scale_b = self._scales()
        self.options = self._options()

    def _wanted_sets(self):
        """Half of a sparse weight is read; None: as many sets as the operands themselves need."""
        if "sparse" not in self.case.parts:
            return None
        read = self.case.k * (self.case.m + self.case.n // 2)
        return operands.rotation(read * self.dtype.itemsize, self.device)

    def refill(self, whole=None):
        """Fresh data in all operands, or whole numbers of at most `whole`, and in what weights are
        multiplied as: their parts, or half of them.
        """
        spread = "spread" in self.case.parts
        if whole is not None:
            self.operands.integers(whole, self.generator, spread=spread)
        else:
            (self.operands.spread if spread else self.operands.normal)(self.generator)
        self.weights = [b.mT for b in self.operands.b.views]
        if "prepared" in self.case.parts:
            self.weights = [tcgemm.prepare(weight) for weight in self.weights]
        self.right = self.operands.b.views
        if "sparse" in self.case.parts:
            self._prune()
        return self.operands

    def _prune(self):
        self.weights = self.operands.prune()
        self.right = [weight.t() for weight in self.weights]
        self.sparse_product = None  # made by its first call, where it may be refused
        if self.case.op == "linear":
            self.linears = [self._linear(weight) for weight in self.weights]

    def _linear(self, weight):
        """What users call with x: a layer, or torch's function."""
        if "layer" not in self.case.parts:
            return functools.partial(F.linear, weight=weight)
        linear = torch.nn.Linear(self.case.k, self.case.n, bias=False, device="meta")
        linear.weight = torch.nn.Parameter(weight.to_dense(), requires_grad=False)
        return tcgemm.nn.SparseLinear24.from_dense(linear).eval()

    def _extra(self, shape):
        extra = torch.empty(shape, dtype=self.dtype, device=self.device)
        return extra.normal_(generator=self.generator)

    def _scales(self):
        """(scale_a, scale_b) as torch wants them, which is also how our kernels read them best."""
        case = self.case
        if case.scales is None:
            return None, None
        if case.scales == "tensor-scales":
            return self.one, self.one
        blocks_n, blocks_k = (math.ceil(size / accuracy.BLOCK) for size in (case.n, case.k))
        if case.scales == "row-scales":
            return self._positive(case.m, 1), self._positive(1, case.n)
        scale_a = self._positive(blocks_k, case.m).t()  # neighbours along M are neighbours
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
        """Moved at least: every operand read once, the result written once."""
        tensors = [self.operands.a[0], self.operands.b[0], self.operands.out[0]]
        if "sparse" in self.case.parts:
            values, metadata, tiles = self.weights[0].stored()
            tensors[1:2] = [values, metadata if tiles is None else tiles]
        extra = (self.bias, self.residual, self.scale_a, self.scale_b)
        tensors += [tensor for tensor in extra if tensor is not None]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def _options(self):
        """Only what is not the default: an option that is passed costs host time."""
        case, precision = self.case, None
        if case.accumulation in WORDS:
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

    def ours(self, index, keep=True):
        """tcgemm's call on set `index`, into operands.out[index] (`keep`) or a new tensor."""
        a, b = self.operands.a[index], self.right[index]
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

    def own(self):
        """The call of the other product of ours, on the same data."""
        case, pools = self.case, self.operands
        options = dict(self.options)
        a, b = pools.a, pools.b
        if not case.graph:
            weights = [matrix.t() for matrix in b.views]
            return lambda index: tcgemm.linear(a[index], weights[index])
        if case.own == "TN":
            a = a if case.layout[1] == "N" else self._relaid(a, transposed=False)
            b = b if case.layout[0] == "T" else self._relaid(b, transposed=True)
        elif case.own == "tensor-scales":
            options |= {"scale_a": self.one, "scale_b": self.one}
        return lambda index: tcgemm.mm(a[index], b[index], **options, out=pools.out[index])

    def _relaid(self, pool, *, transposed):
        """The same matrices in the other layout."""
        relaid = operands.Pool(
            *(self.sets, pool[0].shape, self.dtype, self.device), transposed=transposed
        )
        for index in range(self.sets):
            relaid[index].copy_(pool[index])
        return relaid

    def explain(self):
        a, b = self.operands.a[0], self.right[0]
        forced = {"kernel": self.case.kernel} if self.case.kernel else {}
        return tcgemm.explain(a, b, **self.options, **forced)

    @property
    def kernel(self):
        return kernel_name(self.explain()) if self.device.type == "cuda" else "cpu"

    def rival(self, index, keep=True):
        """The same in torch, on the same set."""
        case, pools = self.case, self.operands
        if sparse_rival(case) is not None:
            if self.sparse_product is None:
                weights = [b.t() for b in pools.b.views]
                self.sparse_product = sparse_rival(case)(weights, pools.a[0], **self.asked)
            self.sparse_product(pools.a[index], index)
        elif case.op != "linear":
            self.dense_rival(index, keep)
        else:
            self._rival_linear(index)

    def dense_rival(self, index, keep=True):
        case, pools = self.case, self.operands
        a, b, out = pools.a[index], pools.b[index], pools.out[index] if keep else None
        scales = (self.scale_a, self.scale_b) if case.scales else (self.one, self.one)
        fast, tf32 = case.accumulation == "fast", case.dtype == "tf32"
        rival.product(a, b, out, op=case.op, tf32=tf32, scales=scales, fast=fast)

    def _rival_linear(self, index):
        a, b = self.operands.a[index], self.operands.b[index]
        with rival.tf32_allowed(False):
            product = F.linear(a, b.t(), self.bias)
        result = accuracy.ACTIVATIONS[self.activation](product)
        if self.residual is not None:
            result = result + self.residual

    def candidates(self):
        """What to time. Host time is that of the plain call, which makes its own result."""
        keep = self.case.graph
        found = {"tcgemm": lambda index: self.ours(index, keep)}
        if self.case.rival:
            found["rival"] = lambda index: self.rival(index, keep)
        if self.case.own:
            found["own"] = self.own()
        sparse = self.case.rival and self.case.graph and sparse_rival(self.case) is not None
        if sparse and not self.asked:  # torch's product of integers gives integers
            found["dense"] = self.dense_rival
        return found

    def detail(self, timings):
        """What is worth keeping beside the row."""
        found = {}
        others = {"own": OWN.get(self.case.own), "dense": dense_rival_name(self.case)}
        for name, what in others.items():
            if name in timings:
                found[name] = what
                found[f"{name}_us"] = round(timings[name].us, 3)
                found[f"{name}_ratio"] = round(timings[name].us / timings["tcgemm"].us, 4)
        if "rival" in timings and sparse_rival(self.case) is not None:
            self.ours(0)
            ours = self.operands.out[0].float()
            theirs = self.sparse_product(self.operands.a[0], 0).float()
            found["rival_apart"] = round(float((theirs - ours).norm() / ours.norm()), 6)
        return found

    def wide(self):
        """(a, b) of set 0 as they are multiplied: rounded to tf32, or times their scales."""
        a, b = self.operands.a[0], self.operands.b[0]
        if self.case.dtype == "tf32":
            a, b = accuracy.tf32(a), accuracy.tf32(b)
        return accuracy.wide(a, self.scale_a), accuracy.wide(b, self.scale_b)

    def check(self):
        """(max_error_ratio, exact) of our call on fresh data; exact is None where nothing is."""
        budget = BUDGET[self.device.type]
        data = self.refill().poison()
        self.ours(0)
        ratio = accuracy.error_ratio(
            *(data.out[0], *self.wide()),
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
        """Whole numbers, and scales that are powers of two: every sum is exact."""
        largest = accuracy.exact_integers(self.case.accumulation)
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

        def finish(product, rows):
            if self.bias is not None:
                product = product + self.bias.double()
            product = accuracy.ACTIVATIONS[self.activation](product)
            return product if self.residual is None else product + self.residual[rows].double()

        self.ours(0)
        exact = accuracy.is_exact(data.out[0], *self.wide(), budget=budget, finish=finish)
        for name, values in kept.items():
            getattr(self, name).copy_(values)
        return exact

    def row(self, timings, checks, *, gpu, commit, sampler):
        """The result's row of this case, in the order of store.KEYS."""
        case, ours, theirs = self.case, timings["tcgemm"], timings.get("rival")
        error, exact = checks
        found = {
            "kernel": self.kernel,
            "us": round(ours.us, 3),
            "tflops": round(case.flops / ours.us / 1e6, 3) if case.graph and case.flops else None,
            "rival": rival_name(case) if case.rival else None,
            "rival_us": round(theirs.us, 3) if theirs else None,
            "ratio": round(theirs.us / ours.us, 4) if theirs else None,
            "max_error_ratio": round(error, 4) if math.isfinite(error) else None,
            "exact": exact,
            "commit": commit,
            "clock_mhz": sampler.clock_mhz,
            "power_w": sampler.power_w,
        }
        return as_row(case, gpu, found)
