"""The picture of a results file: speed relative to torch, by size, dtype and layout.

left    f16 and bf16, sizes that are multiples of 8
middle  f16 and bf16, other sizes, where torch is slower
right   the other dtypes

One line per dtype and layout; 1 is torch's speed; the panels share a logarithmic y axis. The sizes
are at equal distances on the x axis, because 4095, 4096 and 4098 differ much in speed.
"""

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from benchmarks.report import style
from tcgemm.measure.cases import FORWARD, RAGGED_SQUARES, SQUARES

COLOURS = {
    "bf16": "#1f5fa8",
    "f16": "#d1602b",
    "tf32": "#3d8c50",
    "f64": "#7b4fa3",
    "s8": "#b8860b",
    "e4m3": "#c2334d",
    "e4m3 fast": "#e58aa0",
}
STYLES = {"TN": ("-", "o"), "NN": ("--", "s"), "TT": (":", "^"), "NT": ("-.", "D")}
SIXTEEN = ("bf16", "f16")
SETS = ("squares", "int8", "fp8", "tf32", "f64")
KEY = "layout: b's letter, then a's; T is the transpose of a row-major matrix, N is row-major"


def square_rows(results):
    """The rows of square GEMMs. Dtypes other than 16 bits have aligned sizes, in TN and NN."""
    return [
        row
        for row in results["rows"]
        if row["set"] in SETS and row["op"] == "mm" and row["m"] == row["n"] == row["k"]
        if row["dtype"] in SIXTEEN or (row["m"] in SQUARES and row["layout"] in FORWARD)
        if row["m"] in SQUARES + RAGGED_SQUARES
        if row["ratio"] and row["graph"]
        if row["epilogue"] == ("tensor-scales" if row["set"] == "fp8" else "none")
    ]


def _label(row):
    return row["dtype"] + (" fast" if row["accumulation"] == "fast" else "")


def _curves(rows):
    """{(label, layout): [(size, ratio), ...]} in a stable order."""
    curves = {}
    for row in sorted(rows, key=lambda r: (_label(r), r["m"])):
        curves.setdefault((_label(row), row["layout"]), []).append((row["m"], row["ratio"]))
    return curves


def _panel(axes, rows, title):
    sizes = sorted({row["m"] for row in rows})
    for (label, layout), points in _curves(rows).items():
        line, marker = STYLES.get(layout, ("-", "o"))
        axes.plot(
            [sizes.index(size) for size, _ in points],
            [ratio for _, ratio in points],
            color=COLOURS.get(label, "#555555"),
            linestyle=line,
            linewidth=1.6,
            marker=marker,
            markersize=5,
            label=f"{label} {layout}",
        )
    axes.axhline(1.0, color="#222222", linewidth=1.0)
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes], rotation=45, fontsize=8)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("M = N = K")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _panels(rows):
    """[(rows, title)] of the panels that have rows."""
    sixteen = [row for row in rows if row["dtype"] in SIXTEEN]
    rest = [row for row in rows if row["dtype"] not in SIXTEEN]
    parts = {
        "f16, bf16: multiples of 8": [row for row in sixteen if row["m"] % 8 == 0],
        "f16, bf16: not multiples of 8": [row for row in sixteen if row["m"] % 8],
        "other dtypes": rest,
    }
    return [(part, title) for title, part in parts.items() if part]


def draw(results, path):
    """Writes the PNG and returns its path; None where there is nothing to draw."""
    panels = _panels(square_rows(results))
    if not panels:
        return None
    figure = Figure((5.6 * len(panels), 4.4), dpi=140, layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)
    for axis, (part, title) in zip(axes[0], panels, strict=True):
        _panel(axis, part, title)
    axes[0][0].set_ylabel("x torch's speed")
    style.legend(figure, 4 * len(panels), 8)
    gpu = results["header"].get("gpu", "?")
    figure.suptitle(f"Dense GEMMs on {gpu}, x torch's speed (above 1: faster)\n{KEY}", fontsize=11)
    figure.savefig(path, metadata={"Software": None})
    return path
