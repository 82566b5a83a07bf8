"""The results by kind of product, in a few lines: for README.md and docs/performance.md.

    Group      products that belong together, and the torch function that they are compared with
    table      one line a group: geometric mean, lowest and highest ratio
    lines      when to use tcgemm and when not, with the measured numbers
    picture    a figure: one dot for each measured product, one row for each group

A ratio is torch's time over tcgemm's: "x times torch's speed". Host times and the passes that prune
and compress have tables of their own.
"""

import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from statistics import geometric_mean as mean

from tcgemm import _plots, _tables
from tcgemm._plots import GREEN, INK, RED, SOFT
from tcgemm.measure.case import PASSES

ALIGNED = 8  # 16-bit operands whose sizes are multiples of this are what cuBLAS is fast at
SIXTEEN = ("f16", "bf16")
SHORT_SIDE = 128  # a product with no more rows than this is bound by reading the weight


@dataclass(frozen=True)
class Group:
    """Measured products of one kind. `condition` says whether a row belongs to it."""

    name: str
    baseline: str
    condition: Callable

    def ratios(self, rows):
        return sorted(row["ratio"] for row in rows if is_product(row) and self.condition(row))


def is_product(row):
    """A product on a GPU that torch runs too, by the kernel that the planner chose."""
    return row["ratio"] and row["graph"] and row["op"] not in PASSES and ":" not in row["set"]


def _is_dense(row, *dtypes):
    return row["set"] != "sparse-mm" and row["dtype"] in dtypes


def is_aligned(row):
    return all(row[size] % ALIGNED == 0 for size in "mnk")


def is_short(row):
    """Few rows or columns, so that the product reads more than it computes."""
    return min(row["m"], row["n"]) <= SHORT_SIDE


def _is_16_bits(row, *, aligned):
    return _is_dense(row, *SIXTEEN) and is_aligned(row) == aligned


def _is_sparse(row, *, tf32):
    return row["set"] == "sparse-mm" and (row["dtype"] == "tf32") == tf32


GROUPS = (
    Group("float32, all bits", "torch.mm without TF32", lambda row: _is_dense(row, "f32")),
    Group("tf32", "torch.mm with TF32", lambda row: _is_dense(row, "tf32")),
    Group("float64", "torch.mm", lambda row: _is_dense(row, "f64")),
    Group(
        "f16, bf16: sizes in multiples of 8",
        "torch.mm, bmm, linear",
        lambda row: _is_16_bits(row, aligned=True),
    ),
    Group(
        "f16, bf16: other sizes",
        "torch.mm, bmm, linear",
        lambda row: _is_16_bits(row, aligned=False),
    ),
    Group("fp8 (e4m3)", "torch._scaled_mm", lambda row: _is_dense(row, "e4m3")),
    Group("int8", "torch._int_mm", lambda row: _is_dense(row, "s8")),
    Group("2:4 sparse, beside cuSPARSELt", "cuSPARSELt", lambda row: _is_sparse(row, tf32=False)),
    Group(
        "tf32 1:2 sparse, beside dense", "torch.mm, dense", lambda row: _is_sparse(row, tf32=True)
    ),
)


def measured_groups(results):
    """[(group, its ratios)] of the groups that were measured."""
    pairs = [(group, group.ratios(results["rows"])) for group in GROUPS]
    return [(group, ratios) for group, ratios in pairs if ratios]


def table(results):
    """The Markdown table of all groups."""
    heads = ("operands", "compared with", "products", "x torch's speed, mean", "lowest", "highest")
    rows = []
    for group, ratios in measured_groups(results):
        numbers = (f"**{mean(ratios):.2f}**", f"{ratios[0]:.2f}", f"{ratios[-1]:.2f}")
        rows.append((group.name, group.baseline, str(len(ratios)), *numbers))
    return _tables.markdown(heads, rows)


# When to use it, and when not.


def _span(ratios):
    """ "1.40 to 1.73", or one number."""
    low, high = f"{ratios[0]:.2f}", f"{ratios[-1]:.2f}"
    return low if low == high else f"{low} to {high}"


def _large_cubes(rows, dtype):
    """Dense products with M = N = K from 2048 on."""
    return [
        row
        for row in rows
        if row["dtype"] == dtype and row["m"] == row["n"] == row["k"] >= 2048
        if row["op"] == "mm" and is_product(row)
        if row["set"] != "sparse-mm"
    ]


def spans(results):
    """The ratios that the lines name, by a word; an empty list where nothing was measured."""
    rows = [row for row in results["rows"] if is_product(row)]
    s8 = _large_cubes(rows, "s8")
    sixteen = [row for row in rows if _is_dense(row, *SIXTEEN)]
    aligned = [row for row in sixteen if is_aligned(row)]
    kinds = {
        "f32": _large_cubes(rows, "f32"),
        "int8_tn": [row for row in s8 if row["layout"] == "TN"],
        "int8_other": [row for row in s8 if row["layout"] != "TN"],
        "odd": [row for row in sixteen if row["m"] % 2 and row["m"] >= 2047],
        "sparse": [row for row in rows if _is_sparse(row, tf32=False)],
        "aligned": [row for row in aligned if not is_short(row) and row["set"] != "long-k"],
        "fp8": [row for row in rows if _is_dense(row, "e4m3")],
        "few_rows": [row for row in aligned if row["set"] == "small-m"],
        "long_k": [row for row in aligned if row["set"] == "long-k"],
    }
    return {name: sorted(row["ratio"] for row in part) for name, part in kinds.items()}


LINES = (
    "- **Use it for float32 with all its bits** on Hopper: {f32} times torch's speed for squares "
    "from 2048 on.",
    "- **Use it for int8 and for odd sizes.** int8 has {int8_tn} times torch's speed with the "
    "weight of a linear layer, and {int8_other} times in other layouts. f16 and bf16 of odd sizes "
    "from 2047 on have {odd} times torch's speed.",
    "- **Use it for 2:4 sparse weights**: {sparse} times the speed of cuSPARSELt, for any shape, "
    "with gradients and a fused epilogue.",
    "- **Expect torch's speed, with gains and losses,** from f16 and bf16 in multiples of 8 "
    "({aligned} times torch's speed, in the mean {mean_aligned}), from few rows ({few_rows} times, "
    "in the mean {mean_few_rows}) and from fp8 ({fp8} times, in the mean {mean_fp8}).",
    "- **Keep torch** for small results with a long K ({long_k} times torch's speed), and on GPUs "
    "newer than Hopper, which run the kernels of Ampere here.",
)


def lines(results):
    """Markdown items with the measured numbers: where tcgemm is faster, and where torch is."""
    ratios_of = {name: ratios for name, ratios in spans(results).items() if ratios}
    values = {name: _span(ratios) for name, ratios in ratios_of.items()}
    values |= {f"mean_{name}": f"{mean(ratios):.2f}" for name, ratios in ratios_of.items()}
    names = {line: re.findall(r"{(\w+)}", line) for line in LINES}
    selection = [line for line in LINES if values.keys() >= set(names[line])]
    indent = {"width": 100, "subsequent_indent": "  ", "break_long_words": False}
    return "\n".join(textwrap.fill(line.format(**values), **indent) for line in selection)


# The picture.

LOWEST, HIGHEST = 1 / 16, 16


def picture(results):
    """The figure; None where nothing was measured."""
    groups = measured_groups(results)
    if not groups:
        return None
    title = f"tcgemm beside torch on {results['header'].get('gpu', '?')}"
    figure = _plots.figure(860, 126 + 30 * len(groups), f"{title}: each dot is a measured product")
    axes = figure.subplots()
    beside = axes.get_yaxis_transform()  # x is a share of the width
    for row, (_, ratios) in enumerate(groups):
        dots = [min(max(ratio, LOWEST), HIGHEST) for ratio in ratios]
        colours = [GREEN if ratio >= 1 else RED for ratio in ratios]
        axes.scatter(dots, [row] * len(dots), 42, colours, alpha=0.45, linewidths=0, clip_on=False)
        axes.plot([mean(ratios)] * 2, [row - 0.36, row + 0.36], color=INK, linewidth=2.5)
        axes.text(1.08, row, f"{mean(ratios):.2f}", transform=beside, ha="right", va="center")
    for x, words, place in ((0.49, "torch is faster", "right"), (0.51, "tcgemm is faster", "left")):
        axes.text(x, 1.02, words, transform=axes.transAxes, size="small", color=SOFT, ha=place)
    axes.text(1.08, 1.02, "mean", transform=axes.transAxes, size="small", color=SOFT, ha="right")
    axes.set_xscale("log", base=2)
    axes.set(xlim=(LOWEST, HIGHEST), ylim=(len(groups) - 0.5, -0.5))
    powers = [2**power for power in range(5)]
    names = [f"1/{power}" for power in powers[:0:-1]] + [str(power) for power in powers]
    axes.set_xticks([1 / power for power in powers[:0:-1]] + powers, names)
    axes.set_yticks(range(len(groups)), [group.name for group, _ in groups])
    axes.set_xlabel("x torch's speed, on a logarithmic axis", size="small", color=SOFT)
    _plots.plain(axes, "x")
    axes.axvline(1, color=SOFT, linewidth=1)
    return figure
