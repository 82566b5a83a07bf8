"""The picture of a results file: torch's time over tcgemm's, by size, dtype and layout.

left    sizes that are multiples of 8         right   all others, where torch slows down
one line a dtype and layout; 1 is torch; the y axis of each side fits its own data

Sizes stand at equal distances, because 4095, 4096 and 4098 are different worlds.
"""

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.ticker import FuncFormatter

COLOURS = {"bf16": "#1f5fa8", "f16": "#d1602b", "f32": "#3d8c50", "f64": "#7b4fa3"}
STYLES = {"TN": ("-", "o"), "NN": ("--", "s"), "TT": (":", "^"), "NT": ("-.", "D")}
SETS = ("squares", "layouts", "ragged", "targets")
DTYPES_FIRST = ("bf16", "f16")


def square_rows(results):
    """Rows of plain square products, one a (dtype, layout, size): the last set that has it."""
    found = {}
    for row in results["rows"]:
        square = row["m"] == row["n"] == row["k"] and row["batch"] == 1 and row["op"] == "mm"
        if square and row["ratio"] and row["graph"] and row["set"] in SETS:
            found[row["dtype"], row["layout"], row["m"], row["accumulation"]] = row
    return list(found.values())


def _curves(rows):
    """{(dtype, layout): [(size, ratio), ...]} in a stable order."""
    curves = {}
    for row in sorted(rows, key=lambda r: (r["dtype"] not in DTYPES_FIRST, r["dtype"], r["m"])):
        curves.setdefault((row["dtype"], row["layout"]), []).append((row["m"], row["ratio"]))
    return curves


def _panel(axes, rows, title):
    sizes = sorted({row["m"] for row in rows})
    for (dtype, layout), points in _curves(rows).items():
        line, marker = STYLES.get(layout, ("-", "o"))
        axes.plot(
            [sizes.index(size) for size, _ in points],
            [ratio for _, ratio in points],
            color=COLOURS.get(dtype, "#555555"),
            linestyle=line,
            linewidth=1.6,
            marker=marker,
            markersize=5,
            label=f"{dtype} {layout}",
        )
    axes.axhline(1.0, color="#222222", linewidth=1.0)
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes], rotation=45, fontsize=8)
    ratios = [row["ratio"] for row in rows]
    axes.set_ylim(0.95 * min(0.9, *ratios), 1.05 * max(1.05, *ratios))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("M = N = K")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def draw(results, path):
    """Writes the PNG and returns its path; None where there is nothing to draw."""
    rows = square_rows(results)
    even = [row for row in rows if row["m"] % 8 == 0]
    odd = [row for row in rows if row["m"] % 8]
    panels = [
        (part, title)
        for part, title in ((even, "multiples of 8"), (odd, "not multiples of 8"))
        if part
    ]
    if not panels:
        return None
    size = {"figsize": (5.6 * len(panels), 4.4), "dpi": 140, "layout": "constrained"}
    figure, axes = pyplot.subplots(1, len(panels), squeeze=False, **size)
    for one, (part, title) in zip(axes[0], panels, strict=True):
        _panel(one, part, title)
    axes[0][0].set_ylabel("time of torch / time of tcgemm")
    labels = {}
    for one in axes[0]:
        lines, names = one.get_legend_handles_labels()
        labels |= dict(zip(names, lines, strict=True))
    place = {"loc": "outside lower center", "ncols": 4 * len(panels)}
    figure.legend(labels.values(), labels.keys(), **place, fontsize=8, frameon=False)
    figure.suptitle(f"Dense products on {results['header'].get('gpu', '?')} (above 1: faster)")
    figure.savefig(path, metadata={"Software": None})
    pyplot.close(figure)
    return path
