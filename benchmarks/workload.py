"""A case made runnable: its operands, our call, the rival's call, and the two checks of the result.

    Case --Workload--> ours(i), rival(i)    i: the operand set of this call
              |------> check()              -> (max_error_ratio, exact) on fresh data, into a
                                               poisoned output

The rival is what a user of torch writes for the same thing; where tcgemm fuses an epilogue, that
is one torch call after another.
"""

import math
from dataclasses import asdict

import store
import torch
import torch.nn.functional as F

import tcgemm
from tcgemm.bench import accuracy, kernel_name, operands

# Floating-point operations that a float64 check may spend: below a second on either device.
BUDGET = {"cuda": 3e13, "cpu": 2e10}


def as_row(case, gpu, found):
    """The case and what was found, in the order of store.KEYS; what was not found is None."""
    known = {**asdict(case), **found, "gpu": gpu, "graph": case.graph and gpu != "cpu"}
    return {name: known.get(name) for name in store.KEYS}


class Workload:
    """Operand sets on `device` and the calls of one case."""

    def __init__(self, case, device, seed=0):
        self.case, self.device = case, torch.device(device)
        self.dtype = operands.DTYPES[case.dtype]
        self.generator = torch.Generator(self.device).manual_seed(seed)
        sizes = (case.layout, case.m, case.n, case.k)
        common = {"dtype": self.dtype, "device": self.device, "batch": case.batch}
        self.operands = operands.Operands.build(*sizes, **common)
        self.operands.normal(self.generator)
        parts = () if case.epilogue == "none" else tuple(case.epilogue.split("+"))
        self.activation = next((p for p in parts if p in accuracy.ACTIVATIONS), None)
        self.bias = self._extra((case.n,)) if "bias" in parts else None
        self.residual = self._extra((case.m, case.n)) if "residual" in parts else None
        self.acc_dtype = None
        if case.accumulation == "f16":
            self.acc_dtype = torch.float16

    def _extra(self, shape):
        extra = torch.empty(shape, dtype=self.dtype, device=self.device)
        return extra.normal_(generator=self.generator)

    @property
    def sets(self):
        return self.operands.sets

    @property
    def bytes(self):
        """Moved at least: every operand read once, the result written once."""
        case = self.case
        elements = case.m * case.k + case.k * case.n + case.m * case.n
        extra = sum(t.numel() for t in (self.bias, self.residual) if t is not None)
        return (case.batch * elements + extra) * self.dtype.itemsize

    def _options(self):
        """Only what is not the default: an option that is passed costs host time."""
        options = {
            "bias": self.bias,
            "activation": self.activation,
            "residual": self.residual,
            "acc_dtype": self.acc_dtype,
        }
        return {name: value for name, value in options.items() if value is not None}

    def ours(self, index, keep=True):
        """tcgemm's call on set `index`, into operands.out[index] (`keep`) or a new tensor."""
        a, b = self.operands.a[index], self.operands.b[index]
        options = self._options()
        out = {"out": self.operands.out[index]} if keep else {}
        if self.case.kernel:
            bias, residual = options.pop("bias", None), options.pop("residual", None)
            forced = {**options, **out, "kernel": self.case.kernel}
            gemm = torch.ops.tcgemm._gemm.out if keep else torch.ops.tcgemm._gemm
            gemm(a, b, None, bias, residual, **forced)
        elif self.case.op == "linear":
            tcgemm.linear(a, b.t(), options.pop("bias", None), **options, **out)
        else:
            getattr(tcgemm, self.case.op)(a, b, **options, **out)

    def explain(self):
        a, b = self.operands.a[0], self.operands.b[0]
        forced = {"kernel": self.case.kernel} if self.case.kernel else {}
        return tcgemm.explain(a, b, **self._options(), **forced)

    @property
    def kernel(self):
        return kernel_name(self.explain()) if self.device.type == "cuda" else "cpu"

    @property
    def rival_name(self):
        if self.case.op != "linear":
            return f"torch.{self.case.op}"
        parts = ["torch linear", self.activation, "add" if self.residual is not None else None]
        return " + ".join(part for part in parts if part)

    def rival(self, index, keep=True):
        """The same in torch, on the same set."""
        a, b = self.operands.a[index], self.operands.b[index]
        out = {"out": self.operands.out[index]} if keep else {}
        if self.case.op != "linear":
            getattr(torch, self.case.op)(a, b, **out)
            return
        result = accuracy.ACTIVATIONS[self.activation](F.linear(a, b.t(), self.bias))
        if self.residual is not None:
            result = result + self.residual

    def candidates(self):
        """What to time. Host time is that of the plain call, which makes its own result."""
        keep = self.case.graph
        return {
            "tcgemm": lambda index: self.ours(index, keep),
            "rival": lambda index: self.rival(index, keep),
        }

    def check(self):
        """(max_error_ratio, exact) of our call on fresh data; exact is None where nothing is."""
        budget = BUDGET[self.device.type]
        data = self.operands.normal(self.generator).poison()
        self.ours(0)
        ratio = accuracy.error_ratio(
            *(data.out[0], data.a[0], data.b[0]),
            accumulation=self.case.accumulation,
            budget=budget,
            bias=self.bias,
            activation=self.activation,
            residual=self.residual,
        )
        exact = self._exact(budget) if self.activation in (None, "relu") else None
        self.operands.normal(self.generator)
        return ratio, exact

    def _exact(self, budget):
        largest = accuracy.exact_integers(self.case.accumulation)
        data = self.operands.integers(largest, self.generator).poison()
        kept = {}
        for name in ("bias", "residual"):
            if getattr(self, name) is not None:
                kept[name] = getattr(self, name).clone()
                getattr(self, name).random_(-largest, largest + 1, generator=self.generator)

        def finish(product, rows):
            if self.bias is not None:
                product = product + self.bias.double()
            product = accuracy.ACTIVATIONS[self.activation](product)
            return product if self.residual is None else product + self.residual[rows].double()

        self.ours(0)
        exact = accuracy.is_exact(data.out[0], data.a[0], data.b[0], budget=budget, finish=finish)
        for name, values in kept.items():
            getattr(self, name).copy_(values)
        return exact

    def row(self, timings, checks, *, gpu, commit, sampler):
        """The result's row of this case, in the order of store.KEYS."""
        case, ours, rival = self.case, timings["tcgemm"], timings.get("rival")
        error, exact = checks
        found = {
            "kernel": self.kernel,
            "us": round(ours.us, 3),
            "tflops": round(case.flops / ours.us / 1e6, 3) if case.graph else None,
            "rival": self.rival_name if rival else None,
            "rival_us": round(rival.us, 3) if rival else None,
            "ratio": round(rival.us / ours.us, 4) if rival else None,
            "max_error_ratio": round(error, 4) if math.isfinite(error) else None,
            "exact": exact,
            "commit": commit,
            "clock_mhz": sampler.clock_mhz,
            "power_w": sampler.power_w,
        }
        return as_row(case, gpu, found)
