"""The pictures of measured rows. None stands for a picture without any current row.

swap, models    bars of x torch's speed, each with its name and its number beside it
sums, chain     errors of long sums and of chains, of benchmarks/results/numerics/emulated.json,
                which `python -m tcgemm numerics all --json FILE` writes
squares         x torch's speed of square products
"""

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks import RESULTS, current
from benchmarks.experiments.models import DECODE
from benchmarks.report.models_table import CALLS, in_order
from benchmarks.report.overview import products, ratio
from benchmarks.targets import is_cube
from tcgemm import _plots
from tcgemm._plots import BLUE, INK, SOFT
from tcgemm.measure.cases import FORWARD, RAGGED_SQUARES, SQUARES
from tcgemm.measure.operands import LAYOUTS
from tcgemm.measure.results import Results, Row
from tcgemm.measure.work import TORCH

EMULATED = RESULTS / "numerics" / "emulated.json"
Bars = dict[str, float]  # name -> length
Lines = dict[str, dict[int, float]]  # name -> {x: y}


def load(path: Path) -> Any:
    return json.loads(path.read_text())


# Bars


def bar_rows(title: str, source: str, rows: dict[str, dict[str, Bars]]) -> "_plots.Figure":
    """Rows of panels of bars: {title of a row: {title of a panel: its bars}}.

    The panels of a row have the same bars; one that was not measured is missing. A line shows
    where torch's bar ends.
    """
    names = {
        row: list(dict.fromkeys(name for bars in panels.values() for name in bars))
        for row, panels in rows.items()
    }
    heights = [22 * len(names[row]) + 72 for row in rows]
    figure = _plots.figure(1000, sum(heights) + 70, title, source)
    parts = figure.subfigures(len(rows), 1, height_ratios=heights, squeeze=False).flat
    for part, (row, panels) in zip(parts, rows.items(), strict=True):
        part.suptitle(row, x=0.02, ha="left", size="medium", weight="bold")
        places = part.subplots(1, len(panels), squeeze=False, sharex=True, sharey=True).flat
        colours = [SOFT if name.startswith("torch") else BLUE for name in names[row]]
        for axes, (panel, bars) in zip(places, panels.items(), strict=True):
            lengths = [bars.get(name, math.nan) for name in names[row]]
            _plots.bars(axes, names[row], lengths, colours)
            axes.axvline(bars[TORCH], color=INK, linewidth=1)
            axes.set_title(panel, loc="left", size="small", color=SOFT)
    return figure


def bar_name(variant: str) -> str:
    """ "tcgemm QuantLinear int8", "torch compiled"."""
    return variant if variant.startswith(TORCH) else f"tcgemm {variant}"


def of_set(measured: Results, name: str) -> list[Row]:
    """The current rows of a set of models that have a time."""
    rows = current.without_stale(measured).rows
    return in_order(row for row in rows if row["set"] == name and row["us"])


def speed_rows(
    rows: Iterable[Row], title_of: Callable[[Row], str], panel_of: Callable[[Row], str]
) -> dict[str, dict[str, Bars]]:
    """{title of a row of panels: {title of a panel: {name of a bar: x torch's speed}}}."""
    result: dict[str, dict[str, Bars]] = {}
    for row in rows:
        panel = result.setdefault(title_of(row), {}).setdefault(panel_of(row), {})
        panel[bar_name(row["function"])] = ratio(row) or 1.0
    return result


def source_of(measured: Results, rows: Iterable[Row]) -> str:
    """Where the numbers come from."""
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    return f"decoder blocks in bf16; torch {measured.header.get('torch')}, commit {commits}"


def swap(measured: Results) -> "_plots.Figure | None":
    """Speed and memory of a model after swap_linear."""
    rows = of_set(measured, "swap")
    if not rows:
        return None
    parts = speed_rows(
        sorted(rows, key=lambda row: (not row["graph"], row["tokens"])),
        lambda row: f"x torch's speed, {CALLS[row['graph']]}",
        lambda row: f"{row['tokens']} token{'s' * (row['tokens'] > 1)}",
    )
    memory = {bar_name(row["function"]): row["facts"]["held_bytes"] / 1e9 for row in rows}
    parts["Memory"] = {"GB that the model holds": memory}
    source = f"{rows[0]['blocks']} {source_of(measured, rows)}; one forward"
    return bar_rows(f"A model after swap_linear, {measured.header['gpu']}", source, parts)


def shown(measured: Results) -> list[Row]:
    """The rows of the picture: those in a CUDA graph, and of a task without these the others."""
    rows = of_set(measured, "models")
    captured = {row["task"] for row in rows if row["graph"]}
    return [row for row in rows if row["graph"] == (row["task"] in captured)]


def title_of(row: Row) -> str:
    """The title of the panels of a row."""
    if row["task"] != DECODE:
        return f"Training step, {row['batch']} x {row['tokens']} tokens: x torch's speed"
    sequences = f"{row['batch']} sequence{'s' * (row['batch'] > 1)}"
    return f"Decode, {sequences}, {CALLS[row['graph']]}: x torch's speed"


def models(measured: Results) -> "_plots.Figure | None":
    """Speed of training steps and of decode."""
    rows = sorted(shown(measured), key=lambda row: (row["task"] == DECODE, row["batch"]))
    if not rows:
        return None
    panels = speed_rows(rows, title_of, lambda row: f"{row['model']}, {row['blocks']} blocks")
    title = f"Llama-like models, {measured.header.get('gpu')}"
    return bar_rows(title, source_of(measured, rows), panels)


# Lines


def curves(table: dict[str, Any], ends: dict[str, str]) -> dict[str, Lines]:
    """The panels of curves: {title: those whose labels end so}.

    They are without what overflowed, and without float64, which is far below.
    """
    return {
        title: {
            label.removesuffix(end): {int(x): y for x, y in points.items() if y is not None}
            for label, points in table["curves"].items()
            if label.endswith(end) and not label.startswith("float64")
        }
        for title, end in ends.items()
    }


def sums(results: dict[str, Any]) -> "_plots.Figure":
    """The error over K of every way to add."""
    ends = {"normal data": ", normal", "uniform data in [0, 1)": ", uniform"}
    panels, names = curves(results["outside"][1], ends), ("K", "rms error, 2^-24 |A||B|")
    return _plots.line_panels("Errors of long sums on an H200", panels, names, 2, yscale="log")


def chain(results: dict[str, Any]) -> "_plots.Figure":
    """The error of a chain of products on an emulated A100."""
    ends = {
        "rounded before both chains": ", low init, A100",
        "rounded on the GPU alone": ", FP32 init, A100",
    }
    panels, names = curves(results["chain"][0], ends), ("N", "error / result")
    title = "A chain of N products by mma.m16n8k8 on an A100"
    return _plots.line_panels(title, panels, names, 2, yscale="log", widest=5)


# Set -> the epilogue of its rows that are shown.
SQUARE_SETS = {"squares": "", "int8": "", "fp8": "tensor-scales", "tf32": "", "f64": ""}
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


def square_rows(measured: Results) -> list[Row]:
    """The rows of square products. Dtypes other than 16 bits are in TN and NN."""
    return [
        row
        for row in products(measured)
        if row["epilogue"] == SQUARE_SETS.get(row["set"]) and row["function"] == "mm"
        if is_cube(row) and row["m"] in SQUARES + RAGGED_SQUARES
        if row["set"] == "squares" or row["layout"] in FORWARD
    ]


def squares(measured: Results) -> "_plots.Figure | None":
    """x torch's speed by size: a panel for each dtype, a line for each layout."""
    panels: dict[str, Lines] = {}
    rows = sorted(square_rows(measured), key=lambda row: (LAYOUTS.index(row["layout"]), row["m"]))
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
