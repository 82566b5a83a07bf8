"""The pictures of measured rows. Each function takes the content of one file of results.

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

from benchmarks import RESULTS
from benchmarks.models.record import Results, Row
from benchmarks.models.variants import BASELINE, DECODE, VARIANTS
from tcgemm import _plots
from tcgemm._plots import BLUE, INK, SOFT
from tcgemm.measure.cases import FORWARD, RAGGED_SQUARES, SQUARES
from tcgemm.typing import Layout, words

EMULATED = RESULTS / "numerics" / "emulated.json"
CALLS = {"graph": "in a CUDA graph", "eager": "called from Python"}
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
            axes.axvline(bars[BASELINE], color=INK, linewidth=1)
            axes.set_title(panel, loc="left", size="small", color=SOFT)
    return figure


def bar_name(variant: str) -> str:
    """ "tcgemm QuantLinear int8", "torch.compile"."""
    return variant if variant.startswith(BASELINE) else f"tcgemm {variant}"


def speed_rows(
    rows: Iterable[Row], title_of: Callable[[Row], str], panel_of: Callable[[Row], str]
) -> dict[str, dict[str, Bars]]:
    """{title of a row of panels: {title of a panel: {name of a bar: x torch's speed}}}."""
    result: dict[str, dict[str, Bars]] = {}
    for row in rows:
        panel = result.setdefault(title_of(row), {}).setdefault(panel_of(row), {})
        panel[bar_name(row["variant"])] = row["ratio"]
    return result


def swap(results: dict[str, Any]) -> "_plots.Figure":
    """Speed and memory of a model after swap_linear, of swap/<gpu>.json."""
    header, model = results["header"], results["header"]["model"]
    rows = speed_rows(
        sorted(results["rows"], key=lambda row: (row["mode"] == "eager", row["tokens"])),
        lambda row: f"x torch's speed, {CALLS[row['mode']]}",
        lambda row: f"{row['tokens']} token{'s' * (row['tokens'] > 1)}",
    )
    memory = {bar_name(each["variant"]): each["weight_bytes"] / 1e9 for each in results["variants"]}
    rows["Memory"] = {"GB that the model holds": memory}
    source = (
        f"{model['blocks']} decoder blocks of Llama 3 8B's shape, {model['weights'] / 1e9:.2f} "
        f"billion weights, {header['dtype']}, one forward; torch {header['torch']}, "
        f"commit {header['commit']}"
    )
    return bar_rows(f"A model after swap_linear, {header['gpu']}", source, rows)


def shown(results: Results) -> list[Row]:
    """The rows of the picture: those in a CUDA graph, and of a task without these the others."""
    rows = [row for row in results["rows"] if row["ratio"]]
    captured = {row["task"] for row in rows if row["mode"] == "graph"}
    return [row for row in rows if (row["mode"] == "graph") == (row["task"] in captured)]


def names_of(rows: list[Row]) -> list[str]:
    """The variants in the order of VARIANTS. Unknown variants come last."""
    names = {row["variant"]: None for row in rows}
    ordered = [variant.name for variant in VARIANTS if variant.name in names]
    return list(dict.fromkeys([*ordered, *names]))


def title_of(row: Row) -> str:
    """The title of the panels of a row."""
    task = f"Training step, {row['batch']} x {row['tokens']} tokens"
    if row["task"] == DECODE:
        task = f"Decode, {row['batch']} sequence{'s' * (row['batch'] > 1)}, {CALLS[row['mode']]}"
    return f"{task}: x torch's speed"


def models(results: Results) -> "_plots.Figure":
    """Speed of training steps and of decode, of models/<gpu>.json."""
    header, rows = results["header"], shown(results)
    models, variants = list(results["models"]), names_of(rows)
    rows.sort(key=lambda row: variants.index(row["variant"]))
    rows.sort(key=lambda row: (row["task"] == DECODE, row["batch"], models.index(row["model"])))
    panels = speed_rows(rows, title_of, lambda row: f"{row['model']}, {row['blocks']} blocks")
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    source = f"decoder blocks in bf16; torch {header.get('torch')}, commit {commits}"
    return bar_rows(f"Llama-like models, {header.get('gpu')}", source, panels)


# Lines


def curves(table: dict[str, Any], end: str) -> Lines:
    """The curves whose labels end so, without what overflowed and float64, which is far below."""
    return {
        label.removesuffix(end): {int(x): y for x, y in points.items() if y is not None}
        for label, points in table["curves"].items()
        if label.endswith(end) and not label.startswith("float64")
    }


def sums(results: dict[str, Any]) -> "_plots.Figure":
    """The error over K of every way to add."""
    table, names = results["outside"][1], ("K", "rms error, 2^-24 |A||B|")
    panels = {
        "normal data": curves(table, ", normal"),
        "uniform data in [0, 1)": curves(table, ", uniform"),
    }
    return _plots.line_panels("Errors of long sums on an H200", panels, names, 2, yscale="log")


def chain(results: dict[str, Any]) -> "_plots.Figure":
    """The error of a chain of products on an emulated A100."""
    table, names = results["chain"][0], ("N", "error / result")
    panels = {
        "rounded before both chains": curves(table, ", low init, A100"),
        "rounded on the GPU alone": curves(table, ", FP32 init, A100"),
    }
    title = "A chain of N products by mma.m16n8k8 on an A100"
    return _plots.line_panels(title, panels, names, 2, yscale="log", widest=5)


SETS = ("squares", "int8", "fp8", "tf32", "f64")
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


def square_rows(results: Results) -> list[Row]:
    """The rows of square products. Dtypes other than 16 bits are in TN and NN."""
    return [
        row
        for row in results["rows"]
        if row["set"] in SETS and row["op"] == "mm" and row["m"] == row["n"] == row["k"]
        if row["dtype"] in ("bf16", "f16") or row["layout"] in FORWARD
        if row["m"] in SQUARES + RAGGED_SQUARES
        if row["ratio"] and row["graph"]
        if row["epilogue"] == ("tensor-scales" if row["set"] == "fp8" else "none")
    ]


def squares(results: Results) -> "_plots.Figure | None":
    """x torch's speed by size, of <gpu>.json: a panel for each dtype, a line for each layout."""
    panels: dict[str, Lines] = {}
    layouts = words(Layout)
    rows = sorted(square_rows(results), key=lambda row: (layouts.index(row["layout"]), row["m"]))
    for title, (dtype, is_aligned) in PANELS.items():
        for row in rows:
            if (row["dtype"], row["m"] % 8 == 0) == (dtype, is_aligned):
                name = row["layout"] + ', precision="fast"' * (row["accumulation"] == "fast")
                line = panels.setdefault(title, {}).setdefault(name, {})
                line[row["m"]] = row["ratio"]
    if not panels:
        return None
    title = f"Square products on {results['header'].get('gpu', '?')}: x torch's speed"
    figure = _plots.line_panels(title, panels, ("M = N = K", "x torch's speed"), 4, sharey=False)
    for axes in figure.axes[: len(panels)]:
        axes.axhline(1, color=INK, linewidth=1)
        axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
    return figure
