"""The candidates of a product: all are checked and timed, and the fastest ones once more.

Each is checked against float64, in memory that held NaN. Those with right results are timed for
ROUGH_MS, and the FINALISTS fastest and the planned one for `seconds`, in alternating slices. The
fastest is chosen if it gains more than NOISE on the planned kernel.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tcgemm import info
from tcgemm.measure import baseline, name_of, timing
from tcgemm.measure.case import FLOAT8
from tcgemm.measure.workloads import Workload
from tcgemm.ops.explanation import Explanation, explain

SLICES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)  # of k
CLUSTERS = ("1", "2", "4")  # with any slices
STREAMING = ("1", "2", "4", "1x2", "2x2")  # with stream-K
SHARING_A = ("8", "1x2", "2x2", "4x2", "1x4", "2x4", "1x8")  # with one slice of k
FACTOR = 1.5  # times the best estimate: the planner's errors are smaller
MOST = 32  # candidates of a product
ROUGH_MS = 30.0  # of one candidate
FINALISTS = 3
NOISE = 0.02  # share of the time
BUDGET = 3e12  # floating-point operations of the float64 reference of one check
# Fields of a catalog row that decide what is computed. Float8 products also differ in their bits
# between wgmma and mma.sync (docs/numerics/same-bits.md).
SAME = "input input_b accumulator promoted block_scaled terms sparse weight_bits".split()

Row = dict[str, Any]
Times = dict[str, float]  # {kernel: microseconds}


def ask(work: Workload, kernel: str | None = None, device: str | None = None) -> Explanation:
    """The plan of the product: the planner's, or the plan of a kernel by name.

    device: the name of a GPU; None is the operands' GPU.
    """
    return explain(work.operands.a[0], work.b[0], **work.options, device=device, kernel=kernel)


def candidates(work: Workload, planned: Explanation, device: str | None = None) -> Times:
    """{kernel: estimate in us} of those near the best estimate, without the planned one.

    At most MOST: first each row, in each orientation, with its best cluster and slices, then with
    its second best, ...
    """
    every = estimates(work, planned, device)
    limit = FACTOR * min([*every.values(), float(planned.microseconds or 0.0)])
    places: Counter[str] = Counter()
    ranks = []
    for kernel, us in every.items():
        if us <= limit:
            kind = re.sub("@[^^]*", "", kernel)
            ranks.append((places[kind], us, kernel))
            places[kind] += 1
    return {kernel: us for _, us, kernel in sorted(ranks)[:MOST]}


def estimates(work: Workload, planned: Explanation, device: str | None = None) -> Times:
    """{kernel: estimate in us} of all that give the same product, without the planned one, the
    shortest first.

    A kernel is "row@cluster/slices", with "c" behind it if a cluster adds the slices, and "^T" if a
    and b are swapped and the result is stored by columns.
    """
    assert planned.config_index is not None
    catalog = info.catalog()
    like = catalog[planned.config_index]
    same = (*SAME, "arch") if like["input"] in FLOAT8 else SAME
    found: Times = {}
    for row in catalog:
        if any(row[field] != like[field] for field in same):
            continue
        for slices in SLICES:
            for name in _names(row, slices):
                with contextlib.suppress(RuntimeError):  # no kernel fits
                    plan = ask(work, name, device)
                    if name_of(plan) == name:
                        found[name] = float(plan.microseconds or 0.0)
            if f"{row['name']}@1/{slices}" not in found:
                break
    found.pop(name_of(planned), None)
    return dict(sorted(found.items(), key=lambda item: (item[1], item[0])))


def _names(row: Row, slices: int) -> list[str]:
    """The kernels of a row of the catalog with so many slices of k, of which few fit a product."""
    clusters = CLUSTERS if slices > 1 or not row["shares_a"] else CLUSTERS + SHARING_A
    names = [f"{row['name']}@{cluster}/{slices}" for cluster in clusters]
    swapped = slices == 1 and "columns" in row["epilogue_paths"]
    if swapped and row["streams_k"]:
        names += [f"{row['name']}@{cluster}/streamk" for cluster in STREAMING]
    return names + [f"{name}^T" for name in names if swapped] + [f"{row['name']}@1/{slices}c"]


def why_wrong(work: Workload, kernel: str) -> str:
    """The reason why the result of a kernel cannot be used; "" if it can."""
    work.operands.poison()
    try:
        work.call_kernel(kernel, 0)
        ratio = work.error_ratio(work.operands.out[0], BUDGET)
    except RuntimeError as error:
        return baseline.reason(error)
    return "" if ratio <= 1 else f"its error is {ratio:.3g} times the bound"


def times(
    work: Workload,
    kernels: Iterable[str],
    ms: float,
    beside: Mapping[str, timing.Call] | None = None,
    **options: Any,
) -> Times:
    """{kernel: microseconds}; those that cannot be timed are left out.

    beside: other calls that are measured with them. options: those of timing.measure.
    """
    calls = {kernel: functools.partial(work.call_kernel, kernel) for kernel in kernels}
    options = {"device": work.device, "min_ms": ms, "refusals": {}} | options
    found = timing.measure(calls | dict(beside or {}), work.sets, **options)
    return {kernel: round(sample.us, 3) for kernel, sample in found.items()}


def check_and_time(
    work: Workload, planned: str, kernels: Iterable[str], ms: tuple[float, float], known: Times
) -> tuple[Times, Times, dict[str, str]]:
    """(the rough times, the fine ones of the fastest kernels and of the planned one, {wrong kernel:
    why its result cannot be used}).

    ms: for how long each rough and each fine time is measured. known: the rough times of kernels
    that were measured before.
    """
    faults = {kernel: why_wrong(work, kernel) for kernel in kernels}
    right = [kernel for kernel, fault in faults.items() if not fault]
    rough = known | times(work, right, ms[0], needed=planned)
    fastest = sorted(rough, key=rough.__getitem__)[:FINALISTS]
    finalists = [kernel for kernel in dict.fromkeys([planned, *fastest]) if kernel in rough]
    wrong = {kernel: fault for kernel, fault in faults.items() if fault}
    return rough, times(work, finalists, ms[1], needed=planned), wrong


def measure(work: Workload, seconds: float) -> Row:
    """The fields of a row: the best kernel, and the planned one."""
    plan = ask(work)
    planned = name_of(plan)
    row: Row = {"product": plan.product, "kernel": planned, "planned": planned}
    if not plan.product:
        return row | {"why": "products of this kind are not tuned"}
    kernels = [planned, *candidates(work, plan)]
    _, us, wrong = check_and_time(work, planned, kernels, (ROUGH_MS, 1e3 * seconds), {})
    row |= {"candidates": len(kernels), "wrong": wrong}
    if planned in wrong:
        return row | {"why": f"the planned kernel cannot be used: {wrong[planned]}"}
    best = min(us, key=us.__getitem__)
    if us[best] > (1 - NOISE) * us[planned]:
        best = planned
    gained = {"kernel": best, "us": us[best], "planned_us": us[planned]}
    return row | gained | {"stored": best != planned}
