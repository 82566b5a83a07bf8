"""Whole models, of the sets models and swap: tables, and bars of x torch's speed.

A picture without any current row is None.
"""

import math
from collections.abc import Callable, Iterable

from benchmarks import current
from benchmarks.experiments.models import DECODE, TRAIN, VARIANTS
from benchmarks.experiments.side_by_side import COMPILED
from benchmarks.report.tables import grid, ratio, time
from tcgemm import _plots
from tcgemm._plots import BLUE, INK, SOFT
from tcgemm.measure import results
from tcgemm.measure.results import Results, Row
from tcgemm.measure.work import TORCH

CELL = "A cell has tokens a second, x torch's speed in bold, the memory of "
NOTES = {
    TRAIN: f"{CELL}model, gradients, optimizer and step, and the loss after the measured steps, "
    "with the same weights and data.",
    DECODE: f"{CELL}model, cache and step, and the error of the logits: the norm of their "
    "difference from torch's in float32, over the norm of these. Weights and tokens are random; a "
    "trained model has other errors.",
}
ABOUT = (
    "A stack of Llama's decoder blocks with the sizes of the model that names the column, but "
    "fewer blocks, and a vocabulary of 32768. Weights are bf16, and constant_weights is off. In "
    "decode, 1023 tokens of each sequence are in a cache. The layers that lose bits leave the head "
    "to torch."
)
SOURCE = "decoder blocks in bf16; "
CALLS = {True: "in a CUDA graph", False: "called from Python"}
# Title of a row of panels -> title of a panel -> name of a bar -> its length.
Panels = dict[str, dict[str, dict[str, float]]]


def in_order(rows: Iterable[Row]) -> list[Row]:
    """The rows in the order of VARIANTS, each compiled one after its own. Others come last."""
    names = [own + compiled for own in VARIANTS for compiled in ("", COMPILED)]
    return sorted(rows, key=lambda row: [*names, row["function"]].index(row["function"]))


def of_set(measured: Results, name: str) -> list[Row]:
    """The current rows of a set of models that have a time."""
    rows = current.without_stale(measured).rows
    return in_order(row for row in rows if row["set"] == name and row["us"])


def count_of(count: int, noun: str) -> str:
    """ "1 token", "64 tokens"."""
    return f"{count} {noun}{'s' * (count > 1)}"


def versions(measured: Results, rows: Iterable[Row]) -> str:
    """The torch and the commits that measured the rows."""
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    return f"torch {measured.header.get('torch')}, commit {commits}"


def cell(row: Row, gpu: str) -> str:
    """'61200, **1.08**, 21.4 GB, loss 8.31' of a row; 'failed' without a time."""
    if row["us"] is None:
        return "failed"
    facts, tokens = row["facts"], row["batch"] * (row["tokens"] if row["task"] == TRAIN else 1)
    rate = tokens / row["us"] * 1e6
    parts = [f"{rate:.4g}" if rate < 1e4 else f"{round(rate, -2):.0f}"]
    parts.append(f"**{row['ratios'].get(TORCH, 1.0):.2f}**")
    parts += [f"{facts['peak_bytes'] / 1e9:.2f} GB"] if "peak_bytes" in facts else []
    parts += [f"loss {facts['loss']:.3f}"] if "loss" in facts else []
    parts += [f"{100 * facts['error']:.2g} %"] if "error" in facts else []
    return ", ".join(parts) + current.mark(row, gpu)


def title_of(row: Row) -> str:
    """What a row measures: the title of its table."""
    if row["task"] == TRAIN:
        return f"Training step, {row['batch']} x {row['tokens']} tokens"
    return f"Decode, {count_of(row['batch'], 'sequence')}, {CALLS[row['graph']]}"


def parts(measured: Results, picture: list[str]) -> list[str]:
    """Titles, notes and tables of a file, with the lines of its picture; nothing without rows.

    A table has one line a variant, and one column a model.
    """
    gpu = measured.header.get("gpu", "")
    rows = in_order(row for row in measured.rows if row["set"] == "models")
    if not rows:
        return []
    result = ["### Models", f"{ABOUT} {versions(measured, rows)}.", *picture]
    for task, note in NOTES.items():
        part = [row for row in rows if row["task"] == task]
        tables: dict[str, dict[tuple[str, str], str]] = {}
        for row in sorted(part, key=lambda row: (not row["graph"], row["batch"])):
            column = f"{row['model']}, {row['blocks']} blocks"
            table = tables.setdefault(title_of(row), {})
            table[row["function"], column] = cell(row, gpu)
        for title, cells in tables.items():
            result += [f"#### {title}", *([note] if title == next(iter(tables)) else [])]
            result.append(grid(cells, sorted({column for _, column in cells})))
    return result


def by_call(rows: Iterable[Row]) -> list[Row]:
    """Rows of the set swap by the way of the call and the tokens."""
    return sorted(rows, key=lambda row: (not row["graph"], row["tokens"]))


def swap_table(measured: Results) -> str:
    """The picture of a model after a swap, its times and its memory; "" without current rows."""
    rows = of_set(measured, "swap")
    if not rows:
        return ""
    gpu, cells = measured.header["gpu"], {}
    for row in by_call(rows):
        call = f"{count_of(row['tokens'], 'token')}, {CALLS[row['graph']]}"
        cells[row["function"], call] = time(row["us"])
    for row in rows:  # after the calls: it is the last column
        cells[row["function"], "memory"] = f"{row['facts']['held_bytes'] / 1e9:.2f} GB"
    table = grid(cells, corner=f"one forward on an {gpu}")
    picture = f"../pictures/swap_{results.file_name(gpu).removesuffix('.json')}.svg"
    return f"![Speed and memory of a model after swap_linear, {gpu}]({picture})\n\n{table}"


def bar_rows(title: str, source: str, rows: Panels) -> "_plots.Figure":
    """Rows of panels of bars, each with its name and its number; a line shows where torch's ends.

    The panels of a row have the same bars; one that was not measured is missing.
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


def speeds(
    rows: Iterable[Row], title_of: Callable[[Row], str], panel_of: Callable[[Row], str]
) -> Panels:
    """The speeds beside torch's, by the titles of their rows of panels and of their panels."""
    result: Panels = {}
    for row in rows:
        panel = result.setdefault(title_of(row), {}).setdefault(panel_of(row), {})
        panel[bar_name(row["function"])] = ratio(row) or 1.0
    return result


def swap(measured: Results) -> "_plots.Figure | None":
    """Speed and memory of a model after swap_linear."""
    rows = of_set(measured, "swap")
    if not rows:
        return None
    panels = speeds(
        by_call(rows),
        lambda row: f"x torch's speed, {CALLS[row['graph']]}",
        lambda row: count_of(row["tokens"], "token"),
    )
    memory = {bar_name(row["function"]): row["facts"]["held_bytes"] / 1e9 for row in rows}
    panels["Memory"] = {"GB that the model holds": memory}
    source = f"{rows[0]['blocks']} {SOURCE}{versions(measured, rows)}; one forward"
    return bar_rows(f"A model after swap_linear, {measured.header['gpu']}", source, panels)


def shown(measured: Results) -> list[Row]:
    """The rows of the picture: those in a CUDA graph, and of a task without these the others."""
    rows = of_set(measured, "models")
    captured = {row["task"] for row in rows if row["graph"]}
    return [row for row in rows if row["graph"] == (row["task"] in captured)]


def models(measured: Results) -> "_plots.Figure | None":
    """Speed of training steps and of decode."""
    rows = sorted(shown(measured), key=lambda row: (row["task"] == DECODE, row["batch"]))
    if not rows:
        return None
    panels = speeds(
        rows,
        lambda row: f"{title_of(row)}: x torch's speed",
        lambda row: f"{row['model']}, {row['blocks']} blocks",
    )
    title = f"Llama-like models, {measured.header.get('gpu')}"
    return bar_rows(title, f"{SOURCE}{versions(measured, rows)}", panels)
