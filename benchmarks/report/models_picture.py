"""The picture of benchmarks/results/models/<gpu>.json: speed of training steps and of decode.

One panel for each task and number of sequences: a group of bars for each model, x torch's speed.
Decode is that in a CUDA graph, where it was measured.
"""

import itertools

from benchmarks.models.record import Results, Row
from benchmarks.models.variants import BASELINE, DECODE, TRAIN, VARIANTS
from benchmarks.report import style
from benchmarks.report.style import SOFT, panel_width
from tcgemm.numerics.picture import COLOURS

CALLS = {"graph": "in a CUDA graph", "eager": "called from Python"}


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
    """The title of the panel of a row."""
    if row["task"] == TRAIN:
        return f"Training step, {row['batch']} x {row['tokens']} tokens"
    plural = "s" if row["batch"] > 1 else ""
    return f"Decode, {row['batch']} sequence{plural}, {CALLS[row['mode']]}"


def draw(results: Results) -> "style.Figure":
    header, rows, models = results["header"], shown(results), list(results["models"])
    names = [name for name in names_of(rows) if name != BASELINE]
    colours = dict(zip(names, itertools.cycle((SOFT, *COLOURS)), strict=False))
    rows.sort(key=lambda row: (row["task"] == DECODE, row["batch"], models.index(row["model"])))
    panels: dict[str, list[Row]] = {}
    for row in rows:
        panels.setdefault(title_of(row), []).append(row)
    bars = {
        title: {name: colours[name] for name in names_of(panel) if name != BASELINE}
        for title, panel in panels.items()
    }
    groups = {
        title: {(row["model"], row["blocks"]): row["model"] for row in panel}
        for title, panel in panels.items()
    }
    widths = [panel_width(len(groups[title]), len(bars[title])) for title in panels]
    blocks = " or ".join(str(count) for count in sorted({row["blocks"] for row in rows}))
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    title = f"Llama-like models, {header.get('gpu')}"
    source = f"{blocks} decoder blocks, bf16; torch {header.get('torch')}, commit {commits}"
    figure = style.figure(sum(widths) + 80 * len(widths), 440, title, source)
    places = figure.subplots(1, len(panels), squeeze=False, width_ratios=widths)[0]
    for axes, (title, panel) in zip(places, panels.items(), strict=True):
        ratios = {((r["model"], r["blocks"]), r["variant"]): r["ratio"] for r in panel}
        style.bars(axes, title, groups[title], bars[title], ratios)
    return figure
