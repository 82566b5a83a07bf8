"""The result of tcgemm.tune, and the files of earlier ones, as text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tcgemm import _tables
from tcgemm.ops import tuned

Row = dict[str, Any]
TITLES = ("product", "planned us", "tuned us", "gain", "kernel")
STORED = ("product", "kernel", "us", "planned", "planned_us")  # the fields of a row in the file
EMPTY: Row = dict.fromkeys(STORED) | {"candidates": 0, "stored": False, "wrong": {}, "why": ""}


def numbers(row: Row) -> tuple[str, str, str]:
    """The planned kernel's time, the chosen one's, and the gain; empty if nothing was measured."""
    if not (row.get("us") and row.get("planned_us")):
        return "", "", ""
    return f"{row['planned_us']:.2f}", f"{row['us']:.2f}", f"{row['planned_us'] / row['us']:.3f}"


def line(row: Row) -> str:
    """One row as a line of progress."""
    planned, us, gain = numbers(row)
    if not us:
        return f"{row['product']}: {row['why']}"
    if not row["stored"]:
        return f"{row['product']}: {planned} us planned, the fastest of {row['candidates']}"
    return f"{row['product']}: {planned} us planned, {us} us with {row['kernel']} ({gain} times)"


def table(rows: list[Row]) -> list[str]:
    """The rows as lines with a title."""
    cells: list[tuple[str, ...]] = [TITLES]
    for row in rows:
        cells.append((row["product"] or "-", *numbers(row), row.get("why") or row["kernel"]))
    return _tables.aligned(cells, "<>>><")


@dataclass(repr=False)
class Tuning:
    """The measurements of tcgemm.tune. They print as a table.

    Attributes:
        rows (list[dict]): one dict for each product, with these keys:

            - product: its name, as in tcgemm.explain(...).product.
            - planned, planned_us: the planner's kernel and its time in microseconds.
            - kernel, us: the fastest kernel, or else the planned one, and its time.
            - stored: whether the kernel is kept in the file: it is faster by more than the noise.
            - candidates: how many kernels were checked, the planned one among them.
            - wrong: {kernel: why its result cannot be used}. Such a kernel is never chosen.
            - why: the reason if nothing was measured; us and planned_us are then None.
        path (pathlib.Path): the file of the choices.
        facts (dict): gpu, driver, clocks, torch, cuda, tcgemm, python, processor and date.
        skipped (dict): the linear layers of a model that have no row, and why.
    """

    rows: list[Row]
    path: Path
    facts: dict[str, Any]
    skipped: dict[str, str]

    def __str__(self) -> str:
        count, facts = sum(row["stored"] for row in self.rows), self.facts
        lines = [
            f"tcgemm {facts['tcgemm']} on {facts['gpu']}, {facts['date']}",
            *table(self.rows),
            f"{count} of {len(self.rows)} products have a faster kernel than the planned one: "
            f"{self.path}",
        ]
        for row in self.rows:
            lines += [f"left out: {kernel}: {reason}" for kernel, reason in row["wrong"].items()]
        lines += [f"skipped: {name}: {reason}" for name, reason in self.skipped.items()]
        return "\n".join(lines)

    __repr__ = __str__


def stored() -> str:
    """The files of tcgemm.tune as text: their GPUs, drivers and products.

    Example:
        >>> print(tcgemm.measure.tune.stored())  # doctest: +SKIP
    """
    lines = []
    for path in tuned.paths():
        try:
            content = tuned.read(path)
        except tuned.Unusable as error:
            lines.append(f"{path}: {error}")
            continue
        lines.append(f"{path}: {content['gpu']}, driver {content['driver']}")
        try:
            tuned.read_for(path, content["gpu"])
        except tuned.Unusable as error:
            lines.append(f"  not taken here: {error}")
        lines += [f"  {text}" for text in table(content["products"])]
    return "\n".join(lines or [f"there is no file of tcgemm.tune in {tuned.folder()}"])
