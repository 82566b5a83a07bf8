"""The results of models, models/<gpu>.json: the latest row of each model, task, mode and variant.

    {"header": {gpu, driver, clocks, torch, ...}   of the run that wrote last
     "models": {name: {blocks, hidden, ...}}       the sizes of the measured models, one a line
     "rows":   [{gpu, model, ..., date}]           one row a line; its keys are KEYS

A row has the median and the quartiles of a step in microseconds, and x torch's speed in the same
run (`ratio`). `peak_bytes` is the memory of the variant alone: weights, gradients, optimizer, cache
and what a step takes besides. Training has the loss after `steps` steps, decode the relative error
of the logits. A variant that could not be measured has the reason in `failure`.
"""

import json
from pathlib import Path
from typing import Any

from benchmarks import RESULTS
from tcgemm.measure import results_file

CASE = ("gpu", "model", "blocks", "task", "batch", "tokens", "mode", "variant")
MEASURED = ("us", "low_us", "high_us", "samples", "tokens_per_second", "ratio", "peak_bytes")
MEASURED += ("steps", "loss", "error", "failure", "clock_mhz", "power_w", "commit", "date")
KEYS = CASE + MEASURED
Row = dict[str, Any]
Results = dict[str, Any]
FOLDER = "models"


def path_of(gpu: str, folder: Path = RESULTS) -> Path:
    """The file of a GPU in a folder of results."""
    return folder / FOLDER / results_file.file_name(gpu)


def is_of_models(results: Results) -> bool:
    """Is this the content of a file of models?"""
    return "models" in results


def key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in CASE)


def empty() -> Results:
    return {"header": {}, "models": {}, "rows": []}


def load(path: Path) -> Results:
    """The results of a file, or empty results if there is no such file."""
    if not path.exists():
        return empty()
    results = json.loads(path.read_text())
    faults = [row for row in results.get("rows", ()) if tuple(row) != KEYS]
    if not is_of_models(results) or faults:
        raise ValueError(
            f"{path}: expected rows with the keys {', '.join(KEYS)}, as --set models writes them, "
            f"but found {faults[0] if faults else 'other results'}; name another file."
        )
    return results


def put(results: Results, row: Row) -> None:
    """Adds a row, or replaces the row of the same case.

    A failure does not replace a time of the same commit.
    """
    assert tuple(row) == KEYS, f"keys of a row: {tuple(row)}"
    for index, old in enumerate(results["rows"]):
        if key(old) == key(row):
            keeps = row["us"] is None and old["us"] is not None and old["commit"] == row["commit"]
            results["rows"][index] = old if keeps else row
            return
    results["rows"].append(row)


def merge(target: Results, new: Results) -> Results:
    """Puts every row of `new`, and its header, into `target`; returns `target`."""
    for row in new["rows"]:
        put(target, row)
    target["models"] = target["models"] | new["models"]
    target["header"] = new["header"] or target["header"]
    return target


def save(results: Results, path: Path) -> None:
    results_file.write(path, results)
