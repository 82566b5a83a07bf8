"""The picture of f32 GEMMs with precision="highest": errors by K, and rates by size.

one panel per pattern   max (circles) and rms (squares) of |C - C64| / (|A||B|) over K, of tcgemm
                        and of torch. Both axes are logarithmic, so zeros are missing, and so is
                        the panel of a pattern that has only zeros.
the last two panels     TFLOPS over M = N = K, TN and NN: tcgemm on normal data (f16 terms) and on
                        spread data (bf16 terms), and torch
"""

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks.fp32_errors import table
from benchmarks.report import style

COLUMNS = 4
COLOURS = {"errors": "#1f5fa8", "baseline_errors": "#d1602b", "spread": "#3d8c50"}
NAMES = {"errors": "tcgemm", "baseline_errors": "torch fp32", "spread": "tcgemm, spread data"}
STYLES = {"max": ("-", "o"), "rms": ("--", "s")}
LINE = {"linewidth": 1.5, "markersize": 4}


def _errors(axes, rows, pattern):
    for library in ("baseline_errors", "errors"):
        for name, (line, marker) in STYLES.items():
            points = [(row["k"], row[library][name]) for row in rows if row[library][name]]
            label = f"{NAMES[library]}, {name}"
            style = {"color": COLOURS[library], "linestyle": line, "marker": marker, **LINE}
            axes.plot(*zip(*points, strict=True) if points else ([], []), label=label, **style)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0.1), max(high, 10.0))
    axes.set_title(table.TITLES[pattern], fontsize=10)
    axes.set_xlabel("K")
    axes.grid(alpha=0.25)


def cubes(results, layout):
    """{"errors" | "baseline_errors" | "spread": [(size, TFLOPS), ...]} of the set `highest`."""
    series = {}
    for row in sorted(results["rows"], key=lambda row: row["m"]):
        cube = row["m"] == row["n"] == row["k"] and row["op"] == "mm"
        if (row["set"], row["layout"]) != ("highest", layout) or not cube or not row["us"]:
            continue
        flops = 2.0 * row["m"] ** 3 / 1e6
        plain = row["epilogue"] == "none"
        series.setdefault("errors" if plain else "spread", []).append((row["m"], flops / row["us"]))
        if plain and row["baseline_us"]:
            series.setdefault("baseline_errors", []).append((row["m"], flops / row["baseline_us"]))
    return series


def _rates(axes, series, layout):
    sizes = sorted({size for points in series.values() for size, _ in points})
    for library, points in series.items():
        places = [sizes.index(size) for size, _ in points]
        rates = [rate for _, rate in points]
        axes.plot(places, rates, label=NAMES[library], color=COLOURS[library], marker="D", **LINE)
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes], rotation=45, fontsize=8)
    axes.set_ylim(bottom=0)
    axes.set_title(f"TFLOPS, {layout}", fontsize=10)
    axes.set_xlabel("M = N = K")
    axes.grid(alpha=0.25)


def draw(results_of_errors, results, path):
    """Writes the PNG of an error table and of the rates in `results`; None without a table."""
    if results_of_errors is None:
        return None
    rows = results_of_errors["rows"]
    smallest = min(row["m"] for row in rows)
    curves = {
        pattern: group
        for (pattern, layout, m), group in table.curves(rows).items()
        if (layout, m) == ("TN", smallest) and any(row["baseline_errors"]["max"] for row in group)
    }
    rates = {layout: cubes(results, layout) for layout in ("TN", "NN")}
    rates = {layout: points for layout, points in rates.items() if points}
    lines = -(-(len(curves) + len(rates)) // COLUMNS)
    figure = Figure((3.9 * COLUMNS, 3.1 * lines), dpi=100, layout="constrained")
    axes = figure.subplots(lines, COLUMNS, squeeze=False)
    panels = iter(axes.flat)
    for pattern, group in curves.items():
        _errors(next(panels), group, pattern)
    for layout, points in rates.items():
        _rates(next(panels), points, layout)
    for panel in panels:
        panel.set_axis_off()
    for panel in axes.flat:
        panel.spines[["top", "right"]].set_visible(False)
    style.legend(figure, 9, 9)
    gpu = results_of_errors["header"]["gpu"]
    figure.suptitle(
        f'f32 with precision="highest" on {gpu}: error in units of 2^-24 |A||B| '
        f"(M = N = {smallest}), and rate"
    )
    figure.savefig(path, metadata={"Software": None})
    return path
