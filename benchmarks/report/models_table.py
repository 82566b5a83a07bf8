"""The tables of benchmarks/results/models/<gpu>.json for the pages of results."""

from typing import Any

from benchmarks.models.record import Results, Row
from benchmarks.models.variants import DECODE, TRAIN
from benchmarks.report.measured import CALLS, names_of
from tcgemm import _tables

TITLES = {TRAIN: "Training steps", DECODE: "Decode"}
NOTES = {
    TRAIN: "A cell has tokens a second, x torch's speed in bold, the memory of model, gradients, "
    "optimizer and step, and the loss after the measured steps, with the same weights and data.",
    DECODE: "A cell has tokens a second, x torch's speed in bold, the memory of model, cache and "
    "step, and the error of the logits: the norm of their difference from torch's in float32, over "
    "the norm of these. Weights and tokens are random; a trained model has other errors.",
}
ABOUT = (
    "A stack of Llama's decoder blocks with the sizes of the model that names the line, but fewer "
    "blocks, and a vocabulary of {vocabulary}. Weights are bf16. The layers that lose bits leave "
    "the head to torch."
)


def cell(row: Row | None) -> str:
    """'61200, **1.08**, 21.4 GB, loss 8.31' of a row; 'failed' or a dash without a time."""
    if row is None:
        return "-"
    if row["us"] is None:
        return "failed"
    parts = [f"{row['tokens_per_second']:.4g}" if row["tokens_per_second"] < 1e4 else ""]
    parts[0] = parts[0] or f"{round(row['tokens_per_second'], -2):.0f}"
    parts += [f"**{row['ratio']:.2f}**"] if row["ratio"] else []
    parts += [f"{row['peak_bytes'] / 1e9:.2f} GB"] if row["peak_bytes"] else []
    parts += [] if row["loss"] is None else [f"loss {row['loss']:.3f}"]
    parts += [] if row["error"] is None else [f"{100 * row['error']:.2g} %"]
    return ", ".join(parts)


def line_of(row: Row) -> str:
    """The label of a table's line."""
    text = f"{row['model']}, {row['blocks']} blocks, {row['batch']} x {row['tokens']}"
    return text if row["task"] == TRAIN else f"{text}, {CALLS[row['mode']]}"


def table(rows: list[Row]) -> str:
    """One line a model, number of sequences and mode; one column a variant."""
    names = names_of(rows)
    cells = {(line_of(row), row["variant"]): row for row in rows}
    lines = dict.fromkeys(line_of(row) for row in rows)
    texts = ([line, *(cell(cells.get((line, name))) for name in names)] for line in lines)
    return _tables.markdown(["", *names], texts)


def failures(rows: list[Row]) -> list[str]:
    """One line for each variant that could not be measured, with the reason."""
    return [
        f"- {row['variant']}, {row['task']}, {line_of(row)}: {row['failure']}"
        for row in rows
        if row["us"] is None
    ]


def parts(results: Results, picture: str | None) -> list[str]:
    """Titles, notes and tables of a file; nothing of a file without rows.

    picture: the path of the picture from the page, or None.
    """
    rows = results["rows"]
    if not rows:
        return []
    header: dict[str, Any] = results["header"]
    sizes = sorted({sizes["vocabulary"] for sizes in results["models"].values()})
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    about = ABOUT.format(vocabulary=" or ".join(map(str, sizes)))
    result = ["### Models", f"{about} torch {header.get('torch')}, commit {commits}."]
    result += [f"![Training and decode, {header.get('gpu')}]({picture})"] if picture else []
    for task, title in TITLES.items():
        if part := [row for row in rows if row["task"] == task]:
            result += [f"#### {title}", NOTES[task], table(part)]
            if sentences := failures(part):
                result.append("\n".join(sentences))
    return result
