"""The tables of whole models, for the pages of results: the rows of the set models."""

from collections.abc import Iterable

from benchmarks import current
from benchmarks.experiments.models import DECODE, TRAIN, VARIANTS
from benchmarks.experiments.side_by_side import COMPILED
from benchmarks.report.tables import grid
from tcgemm.measure.results import Results, Row
from tcgemm.measure.work import TORCH

TITLES = {TRAIN: "Training steps", DECODE: "Decode"}
CELL = "A cell has tokens a second, x torch's speed in bold, the memory of "
NOTES = {
    TRAIN: f"{CELL}model, gradients, optimizer and step, and the loss after the measured steps, "
    "with the same weights and data.",
    DECODE: f"{CELL}model, cache and step, and the error of the logits: the norm of their "
    "difference from torch's in float32, over the norm of these. Weights and tokens are random; a "
    "trained model has other errors.",
}
ABOUT = (
    "A stack of Llama's decoder blocks with the sizes of the model that names the line, but fewer "
    "blocks, and a vocabulary of 32768. Weights are bf16. The layers that lose bits leave the head "
    "to torch."
)
CALLS = {True: "in a CUDA graph", False: "called from Python"}


def in_order(rows: Iterable[Row]) -> list[Row]:
    """The rows in the order of VARIANTS, each compiled one after its own. Others come last."""
    places = {name: place for place, name in enumerate(VARIANTS)}

    def place(row: Row) -> tuple[int, str]:
        name = row["function"]
        return places.get(name.removesuffix(COMPILED), len(places)), name

    return sorted(rows, key=place)


def cell(row: Row) -> str:
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
    return ", ".join(parts)


def line_of(row: Row) -> str:
    """The label of a table's line."""
    text = f"{row['model']}, {row['blocks']} blocks, {row['batch']} x {row['tokens']}"
    return text if row["task"] == TRAIN else f"{text}, {CALLS[row['graph']]}"


def parts(measured: Results, picture: list[str]) -> list[str]:
    """Titles, notes and tables of a file, with the lines of its picture; nothing without rows.

    A table has one line a model, number of sequences and mode; one column a variant. Variants that
    could not be measured are listed below it with the reason.
    """
    gpu = measured.header.get("gpu", "")
    rows = [row for row in measured.rows if row["set"] == "models"]
    if not rows:
        return []
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    result = ["### Models", f"{ABOUT} torch {measured.header.get('torch')}, commit {commits}."]
    result += picture
    for task, title in TITLES.items():
        if part := [row for row in rows if row["task"] == task]:
            names = dict.fromkeys(row["function"] for row in in_order(part))
            cells = {
                (line_of(row), row["function"]): cell(row) + current.mark(row, gpu) for row in part
            }
            result += [f"#### {title}", NOTES[task], grid(cells, names)]
            failures = [
                f"- {row['function']}, {task}, {line_of(row)}: {row['why']}"
                for row in part
                if row["us"] is None
            ]
            result += ["\n".join(failures)] if failures else []
    return result
