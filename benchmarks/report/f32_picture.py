"""The picture of f32 GEMMs with precision="highest": errors by K, and rates by size.

one panel per pattern   max (circles) and rms (squares) of |C - C64| / (|A||B|) over K, of tcgemm
                        and of torch. Both axes are logarithmic, so zeros are missing, and so is
                        the panel of a pattern that has only zeros.
the last two panels     TFLOPS over M = N = K, TN and NN: tcgemm on normal data (f16 terms) and on
                        spread data (bf16 terms), and torch
"""

from benchmarks import current
from benchmarks.report import f32_table as table
from benchmarks.targets import is_cube
from tcgemm import _plots

COLUMNS = 5
COLOURS = {"errors": _plots.BLUE, "baseline_errors": _plots.ORANGE, "spread": _plots.GREEN}
NAMES = {"errors": "tcgemm", "baseline_errors": "torch", "spread": "tcgemm, spread data"}
STYLES = {"max": ("-", "o"), "rms": ("--", "s")}
LINE = {"linewidth": 1.5, "markersize": 4}


def _errors(axes, rows, pattern):
    for library in ("baseline_errors", "errors"):
        for name, (line, marker) in STYLES.items():
            found = [(row["k"], row["facts"][library][name]) for row in rows]
            points = [(k, error) for k, error in found if error]
            label = f"{NAMES[library]}, {name} error"
            style = {"color": COLOURS[library], "linestyle": line, "marker": marker, **LINE}
            axes.plot(*zip(*points, strict=True) if points else ([], []), label=label, **style)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0.1), max(high, 10.0))
    axes.set_xlabel("K", size="small")
    _plots.head(axes, table.TITLES[pattern])


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
        label = f"{NAMES[library]}, TFLOPS"
        axes.plot(places, rates, label=label, color=COLOURS[library], marker="D", **LINE)
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes], rotation=45)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("M = N = K", size="small")
    _plots.head(axes, f"TFLOPS, {layout}")


def errors_and_rates(results):
    """The figure of the current errors and rates in `results`; None without errors."""
    results = current.without_stale(results)
    rows = table.rows_of(results.rows)
    if not rows:
        return None
    smallest = min(row["m"] for row in rows)
    rows = [row for row in rows if (row["layout"], row["m"]) == ("TN", smallest)]
    rows.sort(key=lambda row: row["k"])
    curves = {name: [row for row in rows if row["data"] == name] for name in table.TITLES}
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
