"""float32 with precision="highest" beside torch: the table of errors, and the picture.

A cell has the largest and the mean error, max / rms of |C - C64| / (|A||B|) in units of 2^-24.
benchmarks/experiments/errors.py measures the rows, and says when one is good. The picture has

one panel per pattern   max (circles) and rms (squares) over K, of tcgemm and of torch. Both axes
                        are logarithmic, so zeros are missing, and so is the panel of a pattern
                        that has only zeros.
the last two panels     TFLOPS over M = N = K, TN and NN: tcgemm on normal data (f16 terms) and on
                        spread data (bf16 terms), and torch
"""

from benchmarks import current
from benchmarks.experiments.errors import DEPTHS as DEPTHS
from benchmarks.experiments.errors import NAMES, NOT_COMPARED, SET, is_good
from benchmarks.experiments.patterns import PATTERNS
from benchmarks.report.tables import grid
from benchmarks.targets import is_cube
from tcgemm import _plots

SHOWN = (1, 8, 64, 512, 4096, 8192)  # on docs/performance.md
TITLES = {name: pattern.title for name, pattern in PATTERNS.items()}
COLUMNS = 5
COLOURS = {"errors": _plots.BLUE, "baseline_errors": _plots.ORANGE, "spread": _plots.GREEN}
LIBRARIES = {"errors": "tcgemm", "baseline_errors": "torch", "spread": "tcgemm, spread data"}
STYLES = {"max": ("-", "o"), "rms": ("--", "s")}
LINE = {"linewidth": 1.5, "markersize": 4}


def rows_of(rows):
    """The rows of the set that were measured."""
    return [row for row in rows if row["set"] == SET and "errors" in row["facts"]]


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
            cells[title, "at most torch's"] = f"{sum(map(is_good, group))} of {len(group)}"
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
        values = [errors[name] for name in NAMES]
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
        f"{sum(map(is_good, selection))} are right and err at most as torch's, max and rms. "
        f"{' and '.join(TITLES[kind] for kind in NOT_COMPARED).capitalize()} are shown, but not "
        "counted: their sums have few terms. "
        f"The cells are of TN and M = N = {min(row['m'] for row in rows)}; commit {commits}."
    )
    return [title, unit, summary, *picture, markdown(rows, depths)]


def _errors(axes, rows, pattern):
    for library in ("baseline_errors", "errors"):
        for name, (line, marker) in STYLES.items():
            found = [(row["k"], row["facts"][library][name]) for row in rows]
            points = [(k, error) for k, error in found if error]
            label = f"{LIBRARIES[library]}, {name} error"
            style = {"color": COLOURS[library], "linestyle": line, "marker": marker, **LINE}
            axes.plot(*zip(*points, strict=True) if points else ([], []), label=label, **style)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0.1), max(high, 10.0))
    axes.set_xlabel("K", size="small")
    _plots.head(axes, TITLES[pattern])


def cubes(rows, layout):
    """{"errors" | "baseline_errors" | "spread": [(size, TFLOPS), ...]} of the set `highest`."""
    series = {}
    rows = [row for row in rows if (row["set"], row["function"]) == ("highest", "mm")]
    rows = [row for row in rows if row["layout"] == layout and is_cube(row) and row["tflops"]]
    for row in sorted(rows, key=lambda row: row["m"]):
        plain = not row["epilogue"]
        series.setdefault("errors" if plain else "spread", []).append((row["m"], row["tflops"]))
        if plain and "torch" in row["ratios"]:
            rate = row["tflops"] / row["ratios"]["torch"]
            series.setdefault("baseline_errors", []).append((row["m"], rate))
    return series


def _rates(axes, series, layout):
    sizes = sorted({size for points in series.values() for size, _ in points})
    for library, points in series.items():
        places = [sizes.index(size) for size, _ in points]
        rates = [rate for _, rate in points]
        label = f"{LIBRARIES[library]}, TFLOPS"
        axes.plot(places, rates, label=label, color=COLOURS[library], marker="D", **LINE)
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes], rotation=45)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("M = N = K", size="small")
    _plots.head(axes, f"TFLOPS, {layout}")


def errors_and_rates(results):
    """The figure of the current errors and rates in `results`; None without errors."""
    results = current.without_stale(results)
    rows = rows_of(results.rows)
    if not rows:
        return None
    smallest = min(row["m"] for row in rows)
    rows = [row for row in rows if (row["layout"], row["m"]) == ("TN", smallest)]
    rows.sort(key=lambda row: row["k"])
    curves = {name: [row for row in rows if row["data"] == name] for name in TITLES}
    curves = {
        name: group
        for name, group in curves.items()
        if any(row["facts"]["baseline_errors"]["max"] for row in group)
    }
    rates = {layout: cubes(results.rows, layout) for layout in ("TN", "NN")}
    rates = {layout: points for layout, points in rates.items() if points}
    title = (
        f'float32 with precision="highest" on {results.header["gpu"]}: '
        f"error in units of 2^-24 |A||B| (M = N = {smallest}), and TFLOPS"
    )
    figure, panels = _plots.panels(len(curves) + len(rates), COLUMNS, (310, 260), title)
    for axes, (pattern, group) in zip(panels, curves.items(), strict=False):
        _errors(axes, group, pattern)
    for axes, (layout, points) in zip(panels[len(curves) :], rates.items(), strict=True):
        _rates(axes, points, layout)
    for axes in panels:
        axes.tick_params(labelsize="small")
        _plots.plain(axes)
    _plots.legend(figure, 4)
    return figure
