"""Measures the candidates of one product: checks each result, times the right ones, and chooses.

check     every candidate, and the planned kernel, against float64, into memory that held NaN
rough     ROUGH_MS of each candidate whose result is right
fine      `seconds` of the FINALISTS fastest and of the planned kernel, in alternating slices
choose    the fastest, if it gains more than NOISE on the planned kernel in the same measurement
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from tcgemm.measure import baseline, timing
from tcgemm.measure.tune.candidates import ask, candidates, name_of
from tcgemm.measure.workloads import Workload

ROUGH_MS = 30.0  # of one candidate
FINALISTS = 3
NOISE = 0.02  # share of the time
BUDGET = 3e12  # floating-point operations of the float64 reference of one check

Row = dict[str, Any]


EMPTY: Row = {
    "product": "",
    "kernel": None,
    "us": None,
    "planned": None,
    "planned_us": None,
    "candidates": 0,
    "stored": False,
    "wrong": {},
    "why": "",
}


class GpuBench:
    """Checks and times kernels of one product on the GPU of its operands."""

    def __init__(self, work: Workload) -> None:
        self.work = work

    def why_wrong(self, kernel: str) -> str:
        """The reason why the result of a kernel cannot be used; "" if it can."""
        work = self.work
        work.operands.poison()
        try:
            work.call_kernel(kernel, 0)
            ratio = work.error_ratio(work.operands.out[0], BUDGET)
        except RuntimeError as error:
            return baseline.reason(error)
        return "" if ratio <= 1 else f"its error is {ratio:.3g} times the bound"

    def times(self, kernels: Sequence[str], ms: float) -> dict[str, float]:
        """{kernel: microseconds}; those that cannot be timed are left out."""
        refusals: dict[str, str] = {}
        calls = {kernel: functools.partial(self.work.call_kernel, kernel) for kernel in kernels}
        options = {"device": self.work.device, "min_ms": ms, "refusals": refusals}
        timings = timing.measure(calls, self.work.sets, **options)
        return {kernel: sample.us for kernel, sample in timings.items()}


def measure(work: Workload, bench: GpuBench, *, seconds: float, device: str | None = None) -> Row:
    """The fields of a row. device: the name of a GPU to plan for, if not the operands' GPU."""
    plan = ask(work, device=device)
    planned = name_of(plan)
    row = EMPTY | {"product": plan.product, "kernel": planned, "planned": planned, "candidates": 1}
    if not plan.product:
        return row | {"why": "products of this kind are not tuned"}
    kernels = [candidate.kernel for candidate in candidates(work, plan, device)]
    reasons = {kernel: bench.why_wrong(kernel) for kernel in (planned, *kernels)}
    row["candidates"] = len(reasons)
    row["wrong"] = {kernel: reason for kernel, reason in reasons.items() if reason}
    if reason := row["wrong"].get(planned):
        return row | {"why": f"the planned kernel cannot be used: {reason}"}
    usable = [kernel for kernel, reason in reasons.items() if not reason]
    rough = bench.times(usable, ROUGH_MS)
    fastest = sorted(rough, key=rough.__getitem__)[:FINALISTS]
    times = bench.times(list(dict.fromkeys([planned, *fastest])), 1e3 * seconds)
    best = min(times, key=times.__getitem__)
    if times[best] > (1 - NOISE) * times[planned]:
        best = planned
    return row | {
        "kernel": best,
        "us": round(times[best], 3),
        "planned_us": round(times[planned], 3),
        "stored": best != planned,
    }
