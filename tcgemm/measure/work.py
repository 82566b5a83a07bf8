"""The base class of all runnable cases, Work, and the row of their results.

Workload has the GEMMs, Training has forward and backward of a layer, Pass has passes over a weight.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import torch

from tcgemm.measure import Plan, baseline, operands, results_file
from tcgemm.measure.case import FLOAT8, PASSES, Case
from tcgemm.measure.results_file import Row
from tcgemm.measure.telemetry import Sampler
from tcgemm.measure.timing import Call, Timing

# Epilogues of a linear for which torch has one call, and that call.
IN_ONE_CALL = {"bias+relu": "torch._addmm_activation", "residual": "torch.addmm"}
# The epilogue for which torch has one call beside the two that most users write: both are measured.
ALSO_FUSED = "bias+gelu_tanh"
PASS_BASELINES = {"compress": "torch._cslt_compress", "prune": "torch._sparse_semi_structured_tile"}


def as_row(case: Case, gpu: str, values: Mapping[str, Any]) -> Row:
    """A row of the case, in the order of results_file.KEYS; fields that `values` lacks are None."""
    fields = asdict(case)
    values = {**fields, **values, "gpu": gpu, "graph": case.graph and gpu != "cpu"}
    return {name: values.get(name) for name in results_file.KEYS}


def baseline_name(case: Case) -> str:
    """The name of the baseline of this case, such as 'torch.mm' or 'torch linear + gelu'."""
    if case.op in PASSES:
        return PASS_BASELINES[case.op]
    sparse = sparse_baseline(case)
    if sparse is not None:
        return sparse.name
    if case.op == "train":
        layer = " + ".join(filter(None, ("torch linear", case.activation)))
        return f"{layer}, forward and backward"
    if in_one_call(case):
        return IN_ONE_CALL[case.epilogue]
    if case.op != "linear":
        return dense_baseline_name(case)
    first = "torch linear"
    if case.dtype in FLOAT8:
        first = dense_baseline_name(case)
    parts = [first, case.activation, "add" if "residual" in case.terms else None]
    return " + ".join(part for part in parts if part)


def in_one_call(case: Case) -> bool:
    """Is the baseline one call of torch, although the epilogue has several terms?"""
    return case.op == "linear" and case.epilogue in IN_ONE_CALL and case.dtype not in FLOAT8


def sparse_baseline(
    case: Case,
) -> type[baseline.CusparseltGemm] | type[baseline.SemiStructuredLinear] | None:
    """The class of tcgemm.measure.baseline for a sparse case, or None."""
    if "sparse" not in case.terms or case.dtype == "tf32":
        return None
    return baseline.CusparseltGemm if case.graph else baseline.SemiStructuredLinear


def dense_baseline_name(case: Case) -> str:
    """The name of torch's dense GEMM of this case."""
    return baseline.name(case.dtype, case.op, accumulation=case.accumulation)


class Work(ABC):
    """A case made runnable: its operands, the calls to time, and two checks of the result."""

    case: Case
    device: torch.device
    dtype: torch.dtype

    def __init__(self, case: Case, device: torch.device | str) -> None:
        self.case, self.device = case, torch.device(device)
        self.dtype = operands.DTYPES[case.dtype]

    @property
    @abstractmethod
    def sets(self) -> int:
        """The number of operand sets."""

    @property
    @abstractmethod
    def bytes(self) -> int | None:
        """The memory traffic of one call in bytes; None if it is not known."""

    @abstractmethod
    def plan_on(self, device: str | None = None) -> Plan:
        """The plan on a GPU: the operands' GPU, or the one that `device` names ("H200")."""

    @abstractmethod
    def candidates(self) -> dict[str, Call]:
        """The calls to time. call(i) works on operand set i."""

    @abstractmethod
    def check(self) -> tuple[float | None, bool | None]:
        """(max_error_ratio, exact) on new data; None where a check does not apply."""

    def detail(self, timings: Mapping[str, Timing]) -> dict[str, Any]:
        """Fields for the details of the row."""
        return {}

    @property
    def plan(self) -> Plan:
        """The plan of the call that `candidates` names "tcgemm"."""
        return self.plan_on() if self.device.type == "cuda" else Plan("cpu", "")

    def row(
        self,
        timings: Mapping[str, Timing],
        checks: tuple[float | None, bool | None],
        *,
        gpu: str,
        commit: str,
        sampler: Sampler,
    ) -> Row:
        """The row of this case, in the order of results_file.KEYS."""
        case, timing, baseline_timing = self.case, timings["tcgemm"], timings.get("baseline")
        error, exact = checks
        if error is not None and not math.isfinite(error):
            error = None
        values = {
            "kernel": self.plan.kernel,
            "us": round(timing.us, 3),
            "tflops": round(case.flops / timing.us / 1e6, 3) if case.graph and case.flops else None,
            "baseline": baseline_name(case) if case.baseline else None,
            "baseline_us": round(baseline_timing.us, 3) if baseline_timing else None,
            "ratio": round(baseline_timing.us / timing.us, 4) if baseline_timing else None,
            "max_error_ratio": None if error is None else round(error, 4),
            "exact": exact,
            "commit": commit,
            "clock_mhz": sampler.clock_mhz,
            "power_w": sampler.power_w,
        }
        return as_row(case, gpu, values)

    def _generator(self, seed: int) -> torch.Generator | None:
        """The source of random data. Tensors on "meta", which are enough for a plan, have none."""
        if self.device.type == "meta":
            return None
        return torch.Generator(self.device).manual_seed(seed)

    def _keeping(self, calls: Mapping[str, Callable[[int], Any]]) -> dict[str, Call]:
        """The calls, where each result is kept until the next call of its index, so that the
        results of different sets are in different memory."""

        def keeping(call: Callable[[int], Any]) -> Call:
            results: list[Any] = [None] * self.sets
            return lambda index: results.__setitem__(index, call(index))

        return {name: keeping(call) for name, call in calls.items()}
