"""The picture of benchmarks/results/models/<gpu>.json: speed of training steps and of decode.

One panel for each task and number of sequences: a group of bars for each model, x torch's speed.
Decode is that in a CUDA graph, where it was measured.
"""

import itertools

from benchmarks.models.record import Results, Row
from benchmarks.models.variants import BASELINE, DECODE, TRAIN, VARIANTS
from benchmarks.report.bar_panel import bars, panel_width
from benchmarks.report.svg import BLUE, GREEN, ORANGE, PURPLE, RED, SOFT, Drawing

HEIGHT, PANEL_GAP, LEFT = 404, 46, 44
TITLE, WORD = 7.4, 7.1  # the width of a letter of a title and of the legend
COLOURS = {
    "torch.compile": SOFT,
    "use": ORANGE,
    "Linear": BLUE,
    "Linear compiled": RED,
    "Float8Linear": PURPLE,
    "Float8Linear delayed": "#b493d1",
    "QuantLinear e4m3": PURPLE,
    "SparseLinear24": GREEN,
    "SparseLinear24 learning": GREEN,
}
OTHERS = ("#0f8b8d", "#8d6e0f", "#b0577f")  # of variants without a colour of their own
CALLS = {"graph": "in a CUDA graph", "eager": "called from Python"}


def shown(results: Results) -> list[Row]:
    """The rows of the picture: those in a CUDA graph, and of a task without these the others."""
    rows = [row for row in results["rows"] if row["ratio"]]
    captured = {row["task"] for row in rows if row["mode"] == "graph"}
    return [row for row in rows if (row["mode"] == "graph") == (row["task"] in captured)]


def colours_of(rows: list[Row]) -> dict[str, str]:
    """{variant: its colour}, in the order of VARIANTS. Unknown variants come last."""
    variants = dict.fromkeys(row["variant"] for row in rows if row["variant"] != BASELINE)
    ordered = [variant.name for variant in VARIANTS if variant.name in variants]
    cycle = itertools.cycle(OTHERS)
    names = [*ordered, *(name for name in variants if name not in ordered)]
    return {name: COLOURS.get(name) or next(cycle) for name in names}


def title_of(row: Row) -> str:
    """The title of the panel of a row."""
    if row["task"] == TRAIN:
        return f"Training step, {row['batch']} x {row['tokens']} tokens"
    plural = "s" if row["batch"] > 1 else ""
    return f"Decode, {row['batch']} sequence{plural}, {CALLS[row['mode']]}"


def draw(results: Results) -> str:
    header, rows = results["header"], shown(results)
    panels = sorted(
        {(row["task"] == DECODE, row["batch"], title_of(row)) for row in rows},
    )
    parts = []
    for _, _, title in panels:
        panel = [row for row in rows if title_of(row) == title]
        groups = {
            (row["model"], row["blocks"]): row["model"]
            for row in sorted(panel, key=lambda row: list(results["models"]).index(row["model"]))
        }
        parts.append((title, groups, colours_of(panel), panel))
    wide = [max(panel_width(len(p[1]), len(p[2])), round(TITLE * len(p[0]))) for p in parts]
    legend = [30 + WORD * len(name) for name in colours_of(rows)]
    width = max(LEFT + sum(wide) + PANEL_GAP * len(wide), round(sum(legend)) + 40)
    blocks = " or ".join(str(count) for count in sorted({row["blocks"] for row in rows}))
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    title = f"Llama-like models, {header.get('gpu')}"
    text = f"{blocks} decoder blocks, bf16; torch {header.get('torch')}, commit {commits}"
    drawing = Drawing(max(width, 560), HEIGHT, title, text)
    drawing.text(20, 28, title, size=16, bold=True)
    drawing.text(20, 46, text, size=11, fill=SOFT)
    left = float(LEFT)
    for (name, groups, colours, panel), space in zip(parts, wide, strict=True):
        ratios = {((r["model"], r["blocks"]), r["variant"]): r["ratio"] for r in panel}
        bars(drawing, left, name, groups, colours, ratios)
        left += space + PANEL_GAP
    x, y = 20.0, HEIGHT - 36
    for (name, colour), space in zip(colours_of(rows).items(), legend, strict=True):
        drawing.rect(x, y - 10, 12, 12, colour)
        drawing.text(x + 17, y, name, size=12)
        x += space
    return drawing.svg()
