"""The results by kind of product, in a few lines and pictures: for README.md and the pages.

A ratio is torch's time over tcgemm's: "x times torch's speed". Host times and the passes that prune
and compress have tables of their own. Stale rows count nowhere here.
"""

import re
import textwrap
from collections.abc import Callable, Iterable
from statistics import geometric_mean as mean

from benchmarks import current
from benchmarks.report.tables import PACKED, every, is_pass, ratio, size_of
from benchmarks.targets import is_cube, set_of
from tcgemm import _plots, _tables
from tcgemm._plots import GREEN, INK, RED, SOFT
from tcgemm.measure import cases, results
from tcgemm.measure.case import FORWARD
from tcgemm.measure.cases import RAGGED_SQUARES, SQUARES
from tcgemm.measure.operands import LAYOUTS
from tcgemm.measure.results import Results, Row
from tcgemm.measure.work import TORCH

WORST = 5  # so many losses are named
EVEN, UNEVEN, SPARSE, SPARSE_TF32 = "even", "uneven", "sparse", "sparse tf32"
SIXTEEN_BITS = "torch.mm, bmm, linear"
GROUPS = {  # kind -> its name, and what it is compared with
    "f32": ("float32, all bits", "torch.mm without TF32"),
    "tf32": ("tf32", "torch.mm with TF32"),
    "f64": ("float64", "torch.mm"),
    EVEN: ("f16, bf16: sizes in multiples of 8", SIXTEEN_BITS),
    UNEVEN: ("f16, bf16: other sizes", SIXTEEN_BITS),
    "e4m3": ("fp8 (e4m3)", "torch._scaled_mm"),
    "s8": ("int8", "torch._int_mm"),
    PACKED: ("packed weights", "torch.mm of 16 bits"),
    SPARSE: ("2:4 sparse, beside cuSPARSELt", "cuSPARSELt"),
    SPARSE_TF32: ("tf32 1:2 sparse, beside dense", "torch.mm, dense"),
}


def of_products(measured: Results) -> Results:
    """The rows of the sets of products that the pages show."""
    names = {*cases.GROUPS["all"], *cases.GROUPS["drawn"], PACKED}
    rows = (row for row in measured.rows if set_of(row).partition(":")[0] in names)
    return Results.of(rows, measured.header)


def products(measured: Results) -> list[Row]:
    """The current products on a GPU that torch runs too, by the kernel that the planner chose."""
    return [
        row
        for row in current.without_stale(of_products(measured)).rows
        if ratio(row) and row["graph"] and not is_pass(row) and ":" not in row["set"]
    ]


def kind_of(row: Row) -> str:
    """The kind of a product: its key in GROUPS, or a dtype that has no group."""
    if row["set"] == PACKED:
        return PACKED
    if row["set"] == "sparse-mm":
        return SPARSE_TF32 if row["dtype"] == "tf32" else SPARSE
    if row["dtype"] in ("f16", "bf16"):
        return EVEN if all(row[size] % 8 == 0 for size in "mnk") else UNEVEN
    return str(row["dtype"])


def ratios_of(rows: Iterable[Row], kind: str, condition: Callable[[Row], bool]) -> list[float]:
    """The ratios of the rows of a kind that meet a condition, the lowest first."""
    return sorted(row["ratios"][TORCH] for row in rows if kind_of(row) == kind and condition(row))


def measured_groups(measured: Results) -> list[tuple[str, str, list[float]]]:
    """[(name of a group, what it is compared with, its ratios)] of those that were measured."""
    rows = products(measured)
    groups = [(*group, ratios_of(rows, kind, every)) for kind, group in GROUPS.items()]
    return [group for group in groups if group[-1]]


def table(measured: Results) -> str:
    """The Markdown table of all groups."""
    heads = ("operands", "compared with", "products", "x torch's speed, mean", "lowest", "highest")
    rows = [
        (name, baseline, str(len(x)), f"**{mean(x):.2f}**", f"{x[0]:.2f}", f"{x[-1]:.2f}")
        for name, baseline, x in measured_groups(measured)
    ]
    return _tables.markdown(heads, rows)


def summary(measured: Results) -> str:
    """The conditions of the measurement, and the result on the whole."""
    # A forced kernel is not the one that a user gets.
    rows = [row for row in current.without_stale(measured).rows if ":" not in row["set"]]
    head = measured.header
    words = [results.claim(span, 1.0) for row in rows if (span := results.span(row))]
    commits = sorted({row["commit"] for row in measured.rows})
    text = (
        f"{head.get('gpu')}, driver {head.get('driver')}, torch {head.get('torch')}, "
        f"CUDA {head.get('cuda')}, commit {', '.join(commits)}. "
        f"Of {len(words)} cases tcgemm is at least as fast as torch in {words.count('PASS')} "
        f"and slower in {words.count('MISS')}, in all of their repetitions."
    )
    if count := len(current.stale(measured)):
        text += (
            f" {count} rows with the mark {current.MARK} are not of today's kernels and count in "
            "no sentence, mean or picture."
        )
    clocks = [row["clock_mhz"] for row in rows if row["clock_mhz"]]
    powers = [row["power_w"] for row in rows if row["power_w"]]
    if clocks and powers:
        text += (
            f" SM clock {min(clocks):.0f}-{max(clocks):.0f} MHz, "
            f"power up to {max(powers):.0f} W while measuring."
        )
    if count := sum(row["us"] is None or row["exact"] is False for row in rows):
        text += f" {count} cases failed: see results/{results.file_name(head['gpu'])}."
    losses = [
        f"{row['function']} {row['dtype']} {row['layout']} {size_of(row)} {ratio(row):.2f} "
        f"({row['kernel']})"
        for row in sorted((row for row in rows if (ratio(row) or 1) < 1), key=ratio)[:WORST]
    ]
    return f"{text}\n\nFurthest behind torch: {'; '.join(losses)}." if losses else text


def _is_large_cube(row: Row) -> bool:
    return row["function"] == "mm" and is_cube(row) and row["m"] >= 2048


# The ratios that the lines name, by a word: the kind of their products, and which of these.
SPANS: dict[str, tuple[str, Callable[[Row], bool]]] = {
    "f32": ("f32", _is_large_cube),
    "int8_tn": ("s8", lambda row: _is_large_cube(row) and row["layout"] == "TN"),
    "int8_other": ("s8", lambda row: _is_large_cube(row) and row["layout"] != "TN"),
    "odd": (UNEVEN, lambda row: row["m"] % 2 == 1 and row["m"] >= 2047),
    "sparse": (SPARSE, every),
    "packed_few": (PACKED, lambda row: "packed-int4" in row["epilogue"] and row["m"] <= 16),
    "packed_many": (PACKED, lambda row: "packed-int4" in row["epilogue"] and row["m"] >= 512),
    "aligned": (EVEN, lambda row: min(row["m"], row["n"]) > 128 and row["set"] != "long-k"),
    "fp8": ("e4m3", every),
    "few_rows": (EVEN, lambda row: row["set"] == "small-m"),
    "long_k": (EVEN, lambda row: row["set"] == "long-k"),
}
LINES = (
    "- **Use it for float32 with all its bits** on Hopper: {f32} times torch's speed for squares "
    "from 2048 on.",
    "- **Use it for int8 and for odd sizes.** int8 has {int8_tn} times torch's speed with the "
    "weight of a linear layer, and {int8_other} times in other layouts. f16 and bf16 of odd sizes "
    "from 2047 on have {odd} times torch's speed.",
    "- **Use it for 2:4 sparse weights**: {sparse} times the speed of cuSPARSELt, for any shape, "
    "with gradients and a fused epilogue.",
    "- **Use packed weights for few rows**: a weight of int4 has {packed_few} times the speed of "
    "torch's 16-bit product at 1 to 16 rows, in the mean {mean_packed_few}, and {packed_many} "
    "times from 512 rows on.",
    "- **Expect torch's speed, with gains and losses,** from f16 and bf16 in multiples of 8 "
    "({aligned} times torch's speed, in the mean {mean_aligned}), from few rows ({few_rows} times, "
    "in the mean {mean_few_rows}) and from fp8 ({fp8} times, in the mean {mean_fp8}).",
    "- **Keep torch** for small results with a long K ({long_k} times torch's speed), and on GPUs "
    "newer than Hopper, which run the kernels of Ampere here.",
)


def lines(measured: Results) -> str:
    """Markdown items with the measured numbers: where tcgemm is faster, and where torch is."""
    rows, values = products(measured), {}
    for name, (kind, condition) in SPANS.items():
        if ratios := ratios_of(rows, kind, condition):
            low, high = f"{ratios[0]:.2f}", f"{ratios[-1]:.2f}"
            values[name] = low if low == high else f"{low} to {high}"
            values[f"mean_{name}"] = f"{mean(ratios):.2f}"
    selection = [line for line in LINES if values.keys() >= set(re.findall(r"{(\w+)}", line))]
    indent = {"width": 100, "subsequent_indent": "  ", "break_long_words": False}
    return "\n".join(textwrap.fill(line.format(**values), **indent) for line in selection)


def picture(measured: Results) -> "_plots.Figure | None":
    """A dot for each product, from 1/16 to 16, and a row for each group; None without any."""
    groups = measured_groups(measured)
    if not groups:
        return None
    title = f"tcgemm beside torch on {measured.header.get('gpu', '?')}"
    figure = _plots.figure(860, 126 + 30 * len(groups), f"{title}: each dot is a measured product")
    axes = figure.subplots()
    beside = axes.get_yaxis_transform()  # x is a share of the width
    for row, (*_, ratios) in enumerate(groups):
        dots = [min(max(ratio, 1 / 16), 16) for ratio in ratios]
        colours = [GREEN if ratio >= 1 else RED for ratio in ratios]
        axes.scatter(dots, [row] * len(dots), 42, colours, alpha=0.45, linewidths=0, clip_on=False)
        axes.plot([mean(ratios)] * 2, [row - 0.36, row + 0.36], color=INK, linewidth=2.5)
        axes.text(1.08, row, f"{mean(ratios):.2f}", transform=beside, ha="right", va="center")
    for x, words, place in ((0.49, "torch is faster", "right"), (0.51, "tcgemm is faster", "left")):
        axes.text(x, 1.02, words, transform=axes.transAxes, size="small", color=SOFT, ha=place)
    axes.text(1.08, 1.02, "mean", transform=axes.transAxes, size="small", color=SOFT, ha="right")
    axes.set_xscale("log", base=2)
    axes.set(xlim=(1 / 16, 16), ylim=(len(groups) - 0.5, -0.5))
    ticks = [2.0**power for power in range(-4, 5)]
    axes.set_xticks(ticks, [f"{tick:g}" if tick >= 1 else f"1/{1 / tick:g}" for tick in ticks])
    axes.set_yticks(range(len(groups)), [name for name, *_ in groups])
    axes.set_xlabel("x torch's speed, on a logarithmic axis", size="small", color=SOFT)
    _plots.plain(axes, "x")
    axes.axvline(1, color=SOFT, linewidth=1)
    return figure


SQUARE_SETS = ("squares", "int8", "fp8", "tf32", "f64")
# Title of a panel -> (dtype, are its sizes multiples of 8). Others than 16 bits have aligned sizes.
PANELS = {
    "bf16: multiples of 8": ("bf16", True),
    "bf16: other sizes": ("bf16", False),
    "float32 as tf32": ("tf32", True),
    "fp8 (e4m3)": ("e4m3", True),
    "f16: multiples of 8": ("f16", True),
    "f16: other sizes": ("f16", False),
    "float64": ("f64", True),
    "int8": ("s8", True),
}


def squares(measured: Results) -> "_plots.Figure | None":
    """x torch's speed by size: a panel for each dtype, a line for each layout.

    Dtypes other than 16 bits are in TN and NN.
    """
    panels: dict[str, dict[str, dict[int, float]]] = {}
    rows = [
        row
        for row in products(measured)
        if row["set"] in SQUARE_SETS and is_cube(row) and row["m"] in SQUARES + RAGGED_SQUARES
        if row["epilogue"] == ("tensor-scales" if row["dtype"] == "e4m3" else "")
        if row["set"] == "squares" or row["layout"] in FORWARD
    ]
    rows.sort(key=lambda row: (LAYOUTS.index(row["layout"]), row["m"]))
    for title, panel in PANELS.items():
        for row in rows:
            if (row["dtype"], row["m"] % 8 == 0) == panel:
                name = row["layout"] + ', precision="fast"' * (row["accumulation"] == "fast")
                line = panels.setdefault(title, {}).setdefault(name, {})
                line[row["m"]] = row["ratios"][TORCH]
    if not panels:
        return None
    title = f"Square products on {measured.header.get('gpu', '?')}: x torch's speed"
    figure = _plots.line_panels(title, panels, ("M = N = K", "x torch's speed"), 4, sharey=False)
    for axes in figure.axes[: len(panels)]:
        axes.axhline(1, color=INK, linewidth=1)
        axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
    return figure
