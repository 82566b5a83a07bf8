"""A picture for each ladder: the speed of its steps beside cuBLAS, and the curve of the plateau."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tcgemm import _plots, published
from tcgemm.lab.ladder import tables

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def draw(results: dict[str, Any], documents: Sequence[str], folder: Path) -> list[Path]:
    """Writes PNG files into a folder; their paths. ValueError says what to install."""
    _plots.make_folder(folder)
    gpu, paths = results["header"]["gpu"], []
    for document in documents:
        records = [
            record
            for record in results["records"]
            if record["document"] == document and record.get("x_cublas")
        ]
        if records:
            path = folder / _plots.file_name("ladder", document, gpu)
            bars(records, f"{published.DOCUMENTS[document].short}, {gpu}", path)
            paths.append(path)
        for table in tables.of(results, [document]):
            if tables.PEAK in table.title:
                path = folder / _plots.file_name(tables.PEAK, gpu)
                table.draw(path)
                paths.append(path)
    return paths


def bars(records: list[dict[str, Any]], title: str, path: Path) -> None:
    """A bar of TFLOP/s for each record, and a mark where cuBLAS is."""
    names = [f"{record['step']} {record['variant']}".strip() for record in records]
    rates = [record["tflops"] for record in records]
    of_cublas = [record["tflops"] / record["x_cublas"] for record in records]
    with _plots.axes_of(path, title, height=100 + 23 * len(records)) as axes:
        _plots.bars(axes, names, rates, digits=".3g")
        mark = {"marker": "|", "s": 120, "color": _plots.ORANGE, "label": "cuBLAS"}
        axes.scatter(of_cublas, range(len(records)), **mark)
        axes.set(xlabel="TFLOP/s")
