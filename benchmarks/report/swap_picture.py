"""The picture of benchmarks/results/swap/<gpu>.json: speed and memory of a model after a swap.

one panel per mode   a bar for each layer class and number of tokens: x torch's speed
the last panel       bars of the memory that the model holds
"""

import json
from pathlib import Path
from typing import Any

from benchmarks.report.svg import BLUE, GREEN, GRID, INK, ORANGE, PURPLE, SOFT, Drawing

BASELINE = "torch"
COLOURS = (BLUE, ORANGE, PURPLE, GREEN)
TITLES = {"graph": "Speed in a CUDA graph", "eager": "Speed, called from Python"}
HEIGHT, PLOT_TOP, PLOT_HEIGHT = 404, 106, 210
BAR, GROUP_GAP, PANEL_GAP, LEFT = 17, 26, 46, 44


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def _scale(highest: float) -> tuple[float, float]:
    """(the top of the axis, the distance of its ticks)."""
    step = 0.25
    while highest > 6 * step:
        step *= 2
    return step * -(-highest * 1.04 // step), step


def _speeds(drawing: Drawing, left: float, title: str, rows: list[dict[str, Any]]) -> float:
    """Draws a panel, and returns its right edge."""
    names = [row["variant"] for row in rows if row["tokens"] == rows[0]["tokens"]]
    tokens = sorted({row["tokens"] for row in rows})
    group = BAR * len(names) + GROUP_GAP
    right, bottom = left + group * len(tokens), PLOT_TOP + PLOT_HEIGHT
    top, step = _scale(max(1.0, *(row["ratio"] for row in rows)))
    drawing.text(left, PLOT_TOP - 32, title, bold=True)
    drawing.text(left, PLOT_TOP - 16, "x torch's speed (above 1: faster)", size=11, fill=SOFT)

    def height(ratio: float) -> float:
        return PLOT_HEIGHT * ratio / top

    tick = 0.0
    while tick <= top:
        y = bottom - height(tick)
        drawing.line(left, y, right, y)
        drawing.text(left - 6, y + 4, f"{tick:g}", size=11, fill=SOFT, anchor="end")
        tick += step
    drawing.line(left, bottom - height(1), right, bottom - height(1), INK, 1.5)
    ratios = {(row["variant"], row["tokens"]): row["ratio"] for row in rows}
    for index, count in enumerate(tokens):
        start = left + index * group + GROUP_GAP / 2
        for place, name in enumerate(names):
            tall, x = height(ratios[name, count]), start + place * BAR
            drawing.rect(x, bottom - tall, BAR - 2, tall, COLOURS[place])
            text = f"{ratios[name, count]:.1f}"
            drawing.text(
                x + BAR / 2 - 1, bottom - tall - 3, text, size=9, anchor="middle", halo=True
            )
        middle = start + BAR * len(names) / 2
        word = "token" if count == 1 else "tokens"
        drawing.text(middle, bottom + 16, f"{count} {word}", size=12, anchor="middle")
    return right


def _memory(drawing: Drawing, left: float, variants: list[dict[str, Any]]) -> None:
    drawing.text(left, PLOT_TOP - 32, "Memory of the model", bold=True)
    drawing.text(left, PLOT_TOP - 16, "GB that it holds", size=11, fill=SOFT)
    most = max(each["weight_bytes"] for each in variants)
    row = PLOT_HEIGHT / len(variants)
    for index, each in enumerate(variants):
        y = PLOT_TOP + index * row
        colour = SOFT if each["variant"] == BASELINE else COLOURS[index - 1]
        wide = 120 * each["weight_bytes"] / most
        drawing.rect(left, y + row / 2 - 8, wide, 18, colour)
        size = f"{each['weight_bytes'] / 1e9:.2f}"
        drawing.text(left + wide + 5, y + row / 2 + 5, size, size=12)
    drawing.line(left, PLOT_TOP, left, PLOT_TOP + PLOT_HEIGHT, GRID, 1.5)


def draw(results: dict[str, Any]) -> str:
    header, variants = results["header"], results["variants"]
    swapped = [each["variant"] for each in variants if each["variant"] != BASELINE]
    modes = [mode for mode in TITLES if any(row["mode"] == mode for row in results["rows"])]
    tokens = len({row["tokens"] for row in results["rows"]})
    panel = tokens * (BAR * len(swapped) + GROUP_GAP)
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
        rows = [
            row for row in results["rows"] if row["mode"] == mode and row["variant"] != BASELINE
        ]
        left = _speeds(drawing, left, TITLES[mode], rows) + PANEL_GAP
    _memory(drawing, left - 10, variants)
    x, y = 20.0, HEIGHT - 36
    for name, colour in zip((BASELINE, *swapped), (SOFT, *COLOURS), strict=False):
        label = "torch Linear" if name == BASELINE else f"tcgemm {name}"
        drawing.rect(x, y - 10, 12, 12, colour)
        drawing.text(x + 17, y, label, size=12)
        x += 26 + 7.1 * len(label)
    return drawing.svg()
