"""The table of the set errors: f32 products with all bits, beside torch's.

A cell has the largest and the mean error, max / rms of |C - C64| / (|A||B|) in units of 2^-24.
benchmarks/experiments/errors.py measures the rows, and says when one is right.
"""

from benchmarks import current
from benchmarks.experiments.errors import DEPTHS as DEPTHS
from benchmarks.experiments.errors import NOT_COMPARED, SET, complaint
from benchmarks.report.tables import grid

SHOWN = (1, 8, 64, 512, 4096, 8192)  # on docs/performance.md
TITLES = {
    "normal": "normal",
    "uniform": "uniform in [0, 1)",
    "rows": "2^±100 a row",
    "along-k": "2^±60 along k, opposite",
    "both-k": "2^±60 along k, independent",
    "elements": "2^±20 an element",
    "odd-rows": "a few rows with 2^40, zeros",
    "subnormal": "subnormal",
    "special": "Inf and NaN",
    "special-elements": "Inf and NaN, 2^±20 an element",
    "one-hot": "one-hot rows",
    "sparse": "rows with four elements",
}


def rows_of(rows):
    """The rows of the set that were measured."""
    return [row for row in rows if row["set"] == SET and "errors" in row["facts"]]


def good(rows):
    """How many rows are right."""
    return sum(not complaint(row) for row in rows)


def markdown(rows, depths):
    """Errors by pattern and K, "max / rms (the baseline's)", for TN and the smallest size; and how
    many rows of all layouts, sizes and K are good.
    """
    smallest = min(row["m"] for row in rows)
    cells = {}
    for kind, title in TITLES.items():
        if group := [row for row in rows if row["data"] == kind]:
            by_depth = {r["k"]: r for r in group if (r["layout"], r["m"]) == ("TN", smallest)}
            cells |= {(title, f"K = {k}"): _cell(row) for k, row in by_depth.items()}
            cells[title, "at most torch's"] = f"{good(group)} of {len(group)}"
    return grid(cells, [*(f"K = {k}" for k in depths), "at most torch's"], "data")


def _short(value):
    """Two significant digits, or no fraction from 100 on."""
    if value is None:
        return "Inf"
    return f"{value:.0f}" if value >= 99.5 else f"{value:.2g}"


def _cell(row):
    """'**0.85 / 0.09** (1.4 / 0.22)', and the number of wrong elements."""
    spans = []
    for errors in (row["facts"]["errors"], row["facts"]["baseline_errors"]):
        values = [errors[name] for name in ("max", "rms")]
        spans.append(" / ".join(_short(value) for value in values))
        spans[-1] += f", {errors['wrong']} wrong" if errors["wrong"] else ""
    return f"**{spans[0]}** ({spans[1]})"


def page_parts(results, picture, depths):
    """Title, picture (its lines) and table for a page; nothing if there are no current rows.

    results: tcgemm.measure.results.Results.
    """
    rows = rows_of(current.without_stale(results).rows)
    if not rows:
        return []
    selection = [row for row in rows if row["data"] not in NOT_COMPARED]
    title = "### Errors of float32 with all its bits"
    unit = (
        'precision="highest": max / rms of |C - C64| / (|A||B|) in units of 2^-24, and in brackets '
        "torch's in the same run. C64 is the float64 result."
    )
    sizes = " and ".join(str(size) for size in sorted({row["m"] for row in rows}))
    layouts = " and ".join(sorted({row["layout"] for row in rows}, reverse=True))
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    summary = (
        f"Of {len(selection)} results (M = N = {sizes}, {layouts}, K = 1, 2, 4 ... {max(depths)}) "
        f"{good(selection)} are right and err at most as torch's, max and rms. "
        f"{' and '.join(TITLES[kind] for kind in NOT_COMPARED).capitalize()} are shown, but not "
        "counted: their sums have few terms. "
        f"The cells are of TN and M = N = {min(row['m'] for row in rows)}; commit {commits}."
    )
    return [title, unit, summary, *picture, markdown(rows, depths)]
