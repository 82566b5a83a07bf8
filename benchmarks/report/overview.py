"""The results by kind of product, in a few lines: for README.md and docs/performance.md.

    Group      products that belong together, and the torch function that they are compared with
    table      one line a group: geometric mean, lowest and highest ratio
    lines      when to use tcgemm and when not, with the measured numbers
    picture    a figure: one dot for each measured product, one row for each group

A ratio is torch's time over tcgemm's: "x times torch's speed". Host times and the passes that prune
and compress have tables of their own. Stale rows count nowhere here.
"""

import re
import textwrap
from collections.abc import Callable, Iterable
from functools import partial
from statistics import geometric_mean as mean
from typing import NamedTuple

from benchmarks import current
from benchmarks.targets import set_of
from tcgemm import _plots, _tables
from tcgemm._plots import GREEN, INK, RED, SOFT
from tcgemm.measure import cases
from tcgemm.measure.case import PASSES
from tcgemm.measure.results import Results, Row
from tcgemm.measure.work import TORCH

ALIGNED = 8  # 16-bit operands whose sizes are multiples of this are what cuBLAS is fast at
SIXTEEN = ("f16", "bf16")
PACKED = "packed"  # the set of products with packed weights
PUBLISHED = "doc000"  # the set of published sizes, which has a command and a page of its own
SHORT_SIDE = 128  # a product with no more rows than this is bound by reading the weight


def ratio(row: Row) -> float | None:
    """x times torch's speed; None if torch was not measured."""
    return row["ratios"].get(TORCH)


def of_products(measured: Results) -> Results:
    """The rows of the sets of products, without those of published sizes."""
    names = {*cases.NAMES, PACKED} - {PUBLISHED}
    rows = (row for row in measured.rows if set_of(row).partition(":")[0] in names)
    return Results.of(rows, measured.header)


def is_product(row: Row) -> bool:
    """A product on a GPU that torch runs too, by the kernel that the planner chose."""
    return bool(
        ratio(row) and row["graph"] and row["function"] not in PASSES and ":" not in row["set"]
    )


def products(results: Results) -> list[Row]:
    """The products that a summary may rest on."""
    rows = current.without_stale(of_products(results)).rows
    return [row for row in rows if is_product(row)]


def _is_dense(row: Row, *dtypes: str) -> bool:
    return row["set"] not in ("sparse-mm", PACKED) and row["dtype"] in dtypes


def is_aligned(row: Row) -> bool:
    """Are the sizes multiples of ALIGNED?"""
    return all(row[size] % ALIGNED == 0 for size in "mnk")


def is_short(row: Row) -> bool:
    """Few rows or columns, so that the product reads more than it computes."""
    return min(row["m"], row["n"]) <= SHORT_SIDE


def _is_16_bits(row: Row, *, aligned: bool) -> bool:
    return _is_dense(row, *SIXTEEN) and is_aligned(row) == aligned


def _is_sparse(row: Row, *, tf32: bool) -> bool:
    return row["set"] == "sparse-mm" and (row["dtype"] == "tf32") == tf32


class Group(NamedTuple):
    """Measured products of one kind. `condition` says whether a row belongs to it."""

    name: str
    baseline: str
    condition: Callable[[Row], bool]


SIXTEEN_BITS = "torch.mm, bmm, linear"
GROUPS = (
    Group("float32, all bits", "torch.mm without TF32", lambda row: _is_dense(row, "f32")),
    Group("tf32", "torch.mm with TF32", lambda row: _is_dense(row, "tf32")),
    Group("float64", "torch.mm", lambda row: _is_dense(row, "f64")),
    Group("f16, bf16: sizes in multiples of 8", SIXTEEN_BITS, partial(_is_16_bits, aligned=True)),
    Group("f16, bf16: other sizes", SIXTEEN_BITS, partial(_is_16_bits, aligned=False)),
    Group("fp8 (e4m3)", "torch._scaled_mm", lambda row: _is_dense(row, "e4m3")),
    Group("int8", "torch._int_mm", lambda row: _is_dense(row, "s8")),
    Group("packed weights", "torch.mm of 16 bits", lambda row: row["set"] == PACKED),
    Group("2:4 sparse, beside cuSPARSELt", "cuSPARSELt", partial(_is_sparse, tf32=False)),
    Group("tf32 1:2 sparse, beside dense", "torch.mm, dense", partial(_is_sparse, tf32=True)),
)


def ratios_of(rows: Iterable[Row]) -> list[float]:
    """The ratios of rows, the lowest first."""
    return sorted(row["ratios"][TORCH] for row in rows)


def measured_groups(results: Results) -> list[tuple[Group, list[float]]]:
    """[(group, its ratios)] of the groups that were measured."""
    rows = products(results)
    pairs = [(group, ratios_of(filter(group.condition, rows))) for group in GROUPS]
    return [(group, ratios) for group, ratios in pairs if ratios]


def table(results: Results) -> str:
    """The Markdown table of all groups."""
    heads = ("operands", "compared with", "products", "x torch's speed, mean", "lowest", "highest")
    rows = []
    for group, ratios in measured_groups(results):
        numbers = (f"**{mean(ratios):.2f}**", f"{ratios[0]:.2f}", f"{ratios[-1]:.2f}")
        rows.append((group.name, group.baseline, str(len(ratios)), *numbers))
    return _tables.markdown(heads, rows)


# When to use it, and when not.


def _span(ratios: list[float]) -> str:
    """ "1.40 to 1.73", or one number."""
    low, high = f"{ratios[0]:.2f}", f"{ratios[-1]:.2f}"
    return low if low == high else f"{low} to {high}"


def _is_large_cube(row: Row, dtype: str) -> bool:
    """Is it a dense product with M = N = K from 2048 on?"""
    cube = row["m"] == row["n"] == row["k"] >= 2048
    return cube and row["function"] == "mm" and _is_dense(row, dtype)


def _is_int4(row: Row) -> bool:
    """Has the product a packed weight of int4?"""
    return row["set"] == PACKED and row["epilogue"].startswith("packed-int4")


# The ratios that the lines name, by a word, and the products that they are of.
SPANS: dict[str, Callable[[Row], bool]] = {
    "f32": lambda row: _is_large_cube(row, "f32"),
    "int8_tn": lambda row: _is_large_cube(row, "s8") and row["layout"] == "TN",
    "int8_other": lambda row: _is_large_cube(row, "s8") and row["layout"] != "TN",
    "odd": lambda row: _is_dense(row, *SIXTEEN) and row["m"] % 2 == 1 and row["m"] >= 2047,
    "sparse": lambda row: _is_sparse(row, tf32=False),
    "packed_few": lambda row: _is_int4(row) and row["m"] <= 16,
    "packed_many": lambda row: _is_int4(row) and row["m"] >= 512,
    "aligned": lambda row: (
        _is_16_bits(row, aligned=True) and not is_short(row) and row["set"] != "long-k"
    ),
    "fp8": lambda row: _is_dense(row, "e4m3"),
    "few_rows": lambda row: _is_16_bits(row, aligned=True) and row["set"] == "small-m",
    "long_k": lambda row: _is_16_bits(row, aligned=True) and row["set"] == "long-k",
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


def lines(results: Results) -> str:
    """Markdown items with the measured numbers: where tcgemm is faster, and where torch is."""
    rows = products(results)
    spans = {name: ratios_of(filter(condition, rows)) for name, condition in SPANS.items()}
    ratios_by_name = {name: ratios for name, ratios in spans.items() if ratios}
    values = {name: _span(ratios) for name, ratios in ratios_by_name.items()}
    values |= {f"mean_{name}": f"{mean(ratios):.2f}" for name, ratios in ratios_by_name.items()}
    names = {line: re.findall(r"{(\w+)}", line) for line in LINES}
    selection = [line for line in LINES if values.keys() >= set(names[line])]
    indent = {"width": 100, "subsequent_indent": "  ", "break_long_words": False}
    return "\n".join(textwrap.fill(line.format(**values), **indent) for line in selection)


# The picture.

LOWEST, HIGHEST = 1 / 16, 16


def picture(results: Results) -> "_plots.Figure | None":
    """The figure; None where nothing was measured."""
    groups = measured_groups(results)
    if not groups:
        return None
    title = f"tcgemm beside torch on {results.header.get('gpu', '?')}"
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
