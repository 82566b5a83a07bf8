"""The picture of benchmarks/results/models/<gpu>.json: speed of training steps and of decode.

One panel for each task and number of sequences: a group of bars for each model, x torch's speed.
Decode is that in a CUDA graph, where it was measured.
"""

import itertools

from benchmarks.models.record import Results, Row
from benchmarks.models.variants import BASELINE, DECODE, TRAIN, VARIANTS
from benchmarks.report import style
from benchmarks.report.style import BLUE, GREEN, ORANGE, PURPLE, RED, SOFT, panel_width

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


def names_of(rows: list[Row]) -> list[str]:
    """The variants in the order of VARIANTS. Unknown variants come last."""
    names = {row["variant"]: None for row in rows}
    ordered = [variant.name for variant in VARIANTS if variant.name in names]
    return list(dict.fromkeys([*ordered, *names]))


def colours_of(rows: list[Row]) -> dict[str, str]:
    """{variant: its colour}, without the baseline."""
    cycle = itertools.cycle(OTHERS)
    names = [name for name in names_of(rows) if name != BASELINE]
    return {name: COLOURS.get(name) or next(cycle) for name in names}


def title_of(row: Row) -> str:
    """The title of the panel of a row."""
    if row["task"] == TRAIN:
        return f"Training step, {row['batch']} x {row['tokens']} tokens"
    plural = "s" if row["batch"] > 1 else ""
    return f"Decode, {row['batch']} sequence{plural}, {CALLS[row['mode']]}"


def draw(results: Results) -> "style.Figure":
    header, rows = results["header"], shown(results)
    panels = {
        title: [row for row in rows if title_of(row) == title]
        for _, _, title in sorted(
            {(row["task"] == DECODE, row["batch"], title_of(row)) for row in rows}
        )
    }
    widths = [
        panel_width(len({row["model"] for row in panel}), len(colours_of(panel)))
        for panel in panels.values()
    ]
    blocks = " or ".join(str(count) for count in sorted({row["blocks"] for row in rows}))
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    figure = style.figure(
        *(sum(widths) + 80 * len(widths), 440),
        f"Llama-like models, {header.get('gpu')}",
        f"{blocks} decoder blocks, bf16; torch {header.get('torch')}, commit {commits}",
    )
    places = figure.subplots(1, len(panels), squeeze=False, width_ratios=widths)[0]
    for axes, (title, panel) in zip(places, panels.items(), strict=True):
        groups = {
            (row["model"], row["blocks"]): row["model"]
            for row in sorted(panel, key=lambda row: list(results["models"]).index(row["model"]))
        }
        ratios = {((r["model"], r["blocks"]), r["variant"]): r["ratio"] for r in panel}
        style.bars(axes, title, groups, colours_of(panel), ratios)
    return figure
