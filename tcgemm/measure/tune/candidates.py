"""The kernels that compute a product, with every cluster and number of slices that may pay."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any, NamedTuple

from tcgemm import info
from tcgemm.measure import name_of
from tcgemm.measure.case import FLOAT8
from tcgemm.measure.workloads import Workload
from tcgemm.ops.explanation import Explanation, explain

CLUSTERS = (1, 2, 4)  # CTAs
CLUSTER_SLICES = 8  # at most, which the CTAs of a cluster add
SLICES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)  # of k
FACTOR = 1.5  # times the best estimate: the planner's errors are smaller
MOST = 32  # candidates of a product
# Fields of a catalog row that decide what is computed. Float8 products also differ in their bits
# between wgmma and mma.sync (docs/numerics/same-bits.md).
SAME = (
    "input",
    "input_b",
    "accumulator",
    "promoted",
    "block_scaled",
    "terms",
    "sparse",
    "weight_bits",
)


class Candidate(NamedTuple):
    """A kernel as explain and the operators are asked for it."""

    kernel: str  # "row@cluster/slices"; with "c" behind it, a cluster adds the slices
    estimate: float  # microseconds


def ask(work: Workload, kernel: str | None = None, device: str | None = None) -> Explanation:
    """The plan of the product: the planner's, or the plan of a kernel by name."""
    return explain(work.operands.a[0], work.b[0], **work.options, device=device, kernel=kernel)


def candidates(work: Workload, planned: Explanation, device: str | None = None) -> list[Candidate]:
    """The kernels whose estimates are near the best one, without the planned one.

    At most MOST: first each row with its best cluster and slices, then with its second best, ...

    device: the name of a GPU; None is the operands' GPU.
    """
    assert planned.config_index is not None
    catalog = info.catalog()
    like = catalog[planned.config_index]
    same = (*SAME, "arch") if like["input"] in FLOAT8 else SAME
    estimates: dict[str, float] = {}
    for row in catalog:
        if any(row[field] != like[field] for field in same):
            continue
        for plan in _plans(work, row, device):
            estimates[name_of(plan)] = float(plan.microseconds or 0.0)
    estimates.pop(name_of(planned), None)
    limit = FACTOR * min([*estimates.values(), float(planned.microseconds or 0.0)])
    near = sorted((us, kernel) for kernel, us in estimates.items() if us <= limit)
    places: Counter[str] = Counter()
    ranks = []
    for us, kernel in near:
        row = kernel.partition("@")[0]
        ranks.append((places[row], us, kernel))
        places[row] += 1
    return [Candidate(kernel, us) for _, us, kernel in sorted(ranks)[:MOST]]


def _plans(work: Workload, row: dict[str, Any], device: str | None) -> list[Explanation]:
    """The plans of one row of the catalog; none if it does not compute the product."""
    plans = []
    for slices in SLICES:
        count = len(plans)
        suffixes = [f"@{cluster}/{slices}" for cluster in CLUSTERS]
        suffixes += [f"@1/{slices}c"] if 1 < slices <= CLUSTER_SLICES else []
        for suffix in suffixes:
            with contextlib.suppress(RuntimeError):  # no kernel fits
                plan = ask(work, row["name"] + suffix, device)
                if name_of(plan) == row["name"] + suffix:
                    plans.append(plan)
        if len(plans) == count:
            break
    return plans
