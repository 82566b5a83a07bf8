"""The picture of benchmarks/results/swap/<gpu>.json: speed and memory of a model after a swap.

one panel per mode   a bar for each layer class and number of tokens: x torch's speed
the last panel       bars of the memory that the model holds
"""

import json
from pathlib import Path
from typing import Any

from benchmarks.report import style
from benchmarks.report.style import SOFT, panel_width
from tcgemm.numerics.picture import COLOURS

BASELINE = "torch"
TITLES = {"graph": "Speed in a CUDA graph", "eager": "Speed, called from Python"}


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def draw(results: dict[str, Any]) -> "style.Figure":
    header, variants = results["header"], results["variants"]
    names = {variant["variant"]: f"tcgemm {variant['variant']}" for variant in variants}
    names[BASELINE] = "torch Linear"
    colours = dict(zip(names.values(), (SOFT, *COLOURS), strict=False))
    modes = [mode for mode in TITLES if any(row["mode"] == mode for row in results["rows"])]
    counts = sorted({row["tokens"] for row in results["rows"]})
    groups = {count: f"{count} token{'s' * (count > 1)}" for count in counts}
    weights = header["model"]["weights"] / 1e9
    width = panel_width(len(counts), len(names) - 1)
    title = f"A model after swap_linear, {header['gpu']}"
    source = (
        f"{header['model']['blocks']} decoder blocks of Llama 3 8B's shape, {weights:.2f} billion "
        f"weights, {header['dtype']}, one forward; torch {header['torch']}, "
        f"commit {header['commit']}"
    )
    figure = style.figure((width + 70) * len(modes) + 380, 440, title, source)
    *panels, memory = figure.subplots(1, len(modes) + 1, width_ratios=[*[width] * len(modes), 150])
    for axes, mode in zip(panels, modes, strict=True):
        ratios = {
            (row["tokens"], names[row["variant"]]): row["ratio"]
            for row in results["rows"]
            if row["mode"] == mode
        }
        swapped = {name: colours[name] for name in names.values() if name != names[BASELINE]}
        style.bars(axes, TITLES[mode], groups, swapped, ratios, ncols=1)
    sizes = [variant["weight_bytes"] / 1e9 for variant in variants]
    container = memory.barh(list(names.values()), sizes, 0.5, color=list(colours.values()))
    memory.bar_label(container, fmt="%.2f", padding=3)
    memory.set_title("Memory of the model", loc="left", size="medium", weight="bold")
    memory.set_xlabel("GB that it holds", size="small", color=SOFT)
    memory.margins(x=0.25)
    memory.invert_yaxis()
    style.plain(memory, "x")
    return figure
