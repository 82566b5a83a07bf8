"""The error table of f32 GEMMs: its rows, when a row is good, and how it is shown.

    {"header": {gpu, driver, torch, ..., commit, clock_mhz, power_w}
     "rows":   [{kind, layout, m, n, k, kernel, measured, errors, baseline, baseline_errors}]

A row, on a line of its own, is one input pattern (`kind`), layout and size. `errors` and
`baseline_errors` are the errors of tcgemm and of the baseline, which `baseline` names,
{max, rms, wrong}: of |C - C64| / (|A||B|) in units of 2^-24, null if
not finite, and the number of elements that no f32 sum can give. `measured` is the share of elements
that max and rms are of. A row is good if no element of tcgemm is wrong and its errors are at most
the baseline's. measure.py fills the table.
"""

import json
import math
from pathlib import Path

from benchmarks import RESULTS
from tcgemm import _tables
from tcgemm.measure import results_file

DEPTHS = tuple(2**i for i in range(14))
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
# Shown, but not compared: their sums have few terms, so that torch hardly rounds.
NOT_COMPARED = ("one-hot", "sparse")


def path_of(gpu, folder=RESULTS):
    """The file of a GPU: benchmarks/results/errors/h200.json."""
    return Path(folder) / "errors" / results_file.file_name(gpu)


def load(path):
    """{header, rows} of a file, or None."""
    return json.loads(Path(path).read_text()) if Path(path).exists() else None


def save(path, header, rows):
    results_file.write(Path(path), {"header": header, "rows": rows})


def complaint(row):
    """Why a row is not good: wrong elements, or larger errors than the baseline. '' if it is.

    float64 itself errs by at most k * 2^-53 of |A||B|, so a difference of that size is ignored.
    """
    errors, baseline = row["errors"], row["baseline_errors"]
    texts = [f"{errors['wrong']} elements that f32 cannot give"] if errors["wrong"] else []
    for name in ("max", "rms"):
        error, limit = (math.inf if x[name] is None else x[name] for x in (errors, baseline))
        if error == math.inf or error > limit + row["k"] * 2.0**-29:
            texts.append(f"{name} {error:.3g} > {limit:.3g}")
    return ", ".join(texts)


def good(rows):
    return [row for row in rows if not complaint(row)]


def compared(rows):
    return [row for row in rows if row["kind"] not in NOT_COMPARED]


def curves(rows):
    """The rows of each (pattern, layout, m): a curve over K, or a line of the output."""
    groups = {}
    for row in rows:
        groups.setdefault((row["kind"], row["layout"], row["m"]), []).append(row)
    return groups


def lines(rows):
    """The output of a run: a line per pattern, layout and size, and each row that is not good."""
    for (kind, layout, m), group in curves(rows).items():
        spans = []
        for name in ("max", "rms"):
            values = [
                [row[library][name] for row in group] for library in ("errors", "baseline_errors")
            ]
            worst = [math.inf if None in errors else max(errors) for errors in values]
            spans.append(f"{name} {worst[0]:8.3g} ({worst[1]:8.3g})")
        count = len(good(group))
        word = "PASS" if count == len(group) else "MISS" if compared(group) else "(not compared)"
        yield f"{kind:17} {layout} {m:5} {'  '.join(spans)}  {count:2} of {len(group):2} {word}"
        for row in group:
            if complaint(row):
                yield f"    K = {row['k']}: {complaint(row)}"


def markdown(rows, depths):
    """Errors by pattern and K, "max / rms (the baseline's)", for TN and the smallest size; and how
    many rows of all layouts, sizes and K are good.
    """
    smallest = min(row["m"] for row in rows)
    by_place = {(r["kind"], r["k"]): r for r in rows if (r["layout"], r["m"]) == ("TN", smallest)}
    heads = ["data", *(f"K = {k}" for k in depths), "at most torch's"]
    lines = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        cells = [_cell(by_place.get((kind, k))) for k in depths]
        group = [row for row in rows if row["kind"] == kind]
        lines.append([TITLES[kind], *cells, f"{len(good(group))} of {len(group)}"])
    return _tables.markdown(heads, lines)


def _short(value):
    """Two significant digits, or no fraction from 100 on."""
    if value is None:
        return "Inf"
    return f"{value:.0f}" if value >= 99.5 else f"{value:.2g}"


def _cell(row):
    """'**0.85 / 0.09** (1.4 / 0.22)', and the number of wrong elements."""
    if row is None:
        return "-"
    spans = []
    for errors in (row["errors"], row["baseline_errors"]):
        values = [errors[name] for name in ("max", "rms")]
        spans.append(" / ".join(_short(value) for value in values))
        spans[-1] += f", {errors['wrong']} wrong" if errors["wrong"] else ""
    return f"**{spans[0]}** ({spans[1]})"


def page_parts(results, image, depths):
    """Title, picture and table for a page; nothing if there is no table."""
    if results is None:
        return []
    head, rows = results["header"], results["rows"]
    selection = compared(rows)
    title = "### Errors of float32 with all its bits"
    unit = (
        'precision="highest": max / rms of |C - C64| / (|A||B|) in units of 2^-24, and in brackets '
        "torch's in the same run. C64 is the float64 result."
    )
    sizes = " and ".join(str(size) for size in sorted({row["m"] for row in rows}))
    layouts = " and ".join(dict.fromkeys(row["layout"] for row in rows))
    summary = (
        f"Of {len(selection)} results (M = N = {sizes}, {layouts}, K = 1, 2, 4 ... {max(depths)}) "
        f"{len(good(selection))} are right and err at most as torch's, max and rms. "
        f"{' and '.join(TITLES[kind] for kind in NOT_COMPARED).capitalize()} are shown, but not "
        "counted: their sums have few terms. "
        f"The cells are of TN and M = N = {min(row['m'] for row in rows)}; commit {head['commit']}."
    )
    picture = [f"![Errors by K, and rates by size, {head['gpu']}]({image})"] if image else []
    return [title, unit, summary, *picture, markdown(rows, depths)]
