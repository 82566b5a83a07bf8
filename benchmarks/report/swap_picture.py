"""The picture of benchmarks/results/swap/<gpu>.json: speed and memory of a model after a swap.

one panel per mode   a bar for each layer class and number of tokens: x torch's speed
the last panel       bars of the memory that the model holds
"""

import json
from pathlib import Path
from typing import Any

from benchmarks.report.bar_panel import PLOT_HEIGHT, PLOT_TOP, bars, panel_width
from benchmarks.report.svg import BLUE, GREEN, GRID, ORANGE, PURPLE, SOFT, Drawing

BASELINE = "torch"
COLOURS = (BLUE, ORANGE, PURPLE, GREEN)
TITLES = {"graph": "Speed in a CUDA graph", "eager": "Speed, called from Python"}
HEIGHT, PANEL_GAP, LEFT = 404, 46, 44


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def _memory(drawing: Drawing, left: float, variants: list[dict[str, Any]]) -> None:
    drawing.text(left, PLOT_TOP - 32, "Memory of the model", bold=True)
    drawing.text(left, PLOT_TOP - 16, "GB that it holds", size=11, fill=SOFT)
    most = max(variant["weight_bytes"] for variant in variants)
    row = PLOT_HEIGHT / len(variants)
    for index, variant in enumerate(variants):
        y = PLOT_TOP + index * row
        colour = SOFT if variant["variant"] == BASELINE else COLOURS[index - 1]
        wide = 120 * variant["weight_bytes"] / most
        drawing.rect(left, y + row / 2 - 8, wide, 18, colour)
        size = f"{variant['weight_bytes'] / 1e9:.2f}"
        drawing.text(left + wide + 5, y + row / 2 + 5, size, size=12)
    drawing.line(left, PLOT_TOP, left, PLOT_TOP + PLOT_HEIGHT, GRID, 1.5)


def draw(results: dict[str, Any]) -> str:
    header, variants = results["header"], results["variants"]
    swapped = [variant["variant"] for variant in variants if variant["variant"] != BASELINE]
    modes = [mode for mode in TITLES if any(row["mode"] == mode for row in results["rows"])]
    tokens = len({row["tokens"] for row in results["rows"]})
    panel = panel_width(tokens, len(swapped))
    width = LEFT + len(modes) * (panel + PANEL_GAP) + 180
    weights = header["model"]["weights"] / 1e9
    title = f"A model after swap_linear, {header['gpu']}"
    text = (
        f"{header['model']['blocks']} decoder blocks of Llama 3 8B's shape, {weights:.2f} billion "
        f"weights, {header['dtype']}, one forward; torch {header['torch']}, "
        f"commit {header['commit']}"
    )
    drawing = Drawing(width, HEIGHT, title, text)
    drawing.text(20, 28, title, size=16, bold=True)
    drawing.text(20, 46, text, size=11, fill=SOFT)
    left = LEFT
    for mode in modes:
        ratios = {
            (row["tokens"], row["variant"]): row["ratio"]
            for row in results["rows"]
            if row["mode"] == mode
        }
        groups = {
            count: f"{count} token{'s' * (count > 1)}" for count in sorted({n for n, _ in ratios})
        }
        colours = dict(zip(swapped, COLOURS, strict=False))
        left = bars(drawing, left, TITLES[mode], groups, colours, ratios) + PANEL_GAP
    _memory(drawing, left - 10, variants)
    x, y = 20.0, HEIGHT - 36
    for name, colour in zip((BASELINE, *swapped), (SOFT, *COLOURS), strict=False):
        label = "torch Linear" if name == BASELINE else f"tcgemm {name}"
        drawing.rect(x, y - 10, 12, 12, colour)
        drawing.text(x + 17, y, label, size=12)
        x += 26 + 7.1 * len(label)
    return drawing.svg()
