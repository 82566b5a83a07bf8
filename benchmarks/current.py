"""Which rows are current: what a page states on the whole rests on these rows alone.

A row is stale if the planner would take another kernel for its product on its GPU today, or another
cluster or number of slices where the row names them; or if its fact "outdated" says what else has
changed since, such as loads that are off by default now. A row of a GPU that the planner does not
know, or of a model, is current without this fact.
"""

import functools

from tcgemm import info
from tcgemm.measure import case, work, works
from tcgemm.measure.results import Results, Row

MARK = "†"
OUTDATED = "outdated"  # the fact
FOOTNOTE = (
    f"{MARK} The kernel of this row is not the one that the planner takes today. No mean, picture "
    "or sentence rests on the row."
)


@functools.cache
def device_of(gpu: str) -> str | None:
    """The planner's name of a GPU that the driver names so, or None."""
    names = (row["name"] for row in info.devices())
    return next((name for name in names if f" {name} " in f" {gpu} "), None)


@functools.cache
def planned(product: case.Case, device: str) -> tuple[str, str]:
    """The planner's kernel for a case on a GPU: its name, and the name with cluster and slices."""
    plan = works.work_of(product, "meta").plan_on(device)
    return plan.kernel, plan.launch or plan.kernel


def is_stale(row: Row, gpu: str) -> bool:
    """Would the product run in another way today than when the row was measured?"""
    device = device_of(gpu)
    if OUTDATED in row["facts"] or device is None or not row["kernel"] or "m" not in row:
        return OUTDATED in row["facts"]
    return row["kernel"] not in planned(work.case_from(row), device)


def mark(row: Row, gpu: str) -> str:
    """What stands behind the numbers of a row: " †" if it is stale, else ""."""
    return f" {MARK}" if is_stale(row, gpu) else ""


def stale(results: Results) -> list[Row]:
    """The stale rows of a file."""
    return [row for row in results.rows if is_stale(row, results.header.get("gpu", ""))]


def without_stale(results: Results) -> Results:
    """The results without their stale rows."""
    rows = (row for row in results.rows if not is_stale(row, results.header.get("gpu", "")))
    return Results.of(rows, results.header)
