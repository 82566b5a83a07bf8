"""A picture for each ladder: the speed of its steps beside cuBLAS, and the curve of the plateau."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tcgemm import published
from tcgemm.lab.ladder import tables
from tcgemm.numerics import picture
from tcgemm.numerics.picture import COLOURS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def draw(results: dict[str, Any], documents: Sequence[str], folder: Path) -> list[Path]:
    """Writes PNG files into a folder; their paths. ValueError says what to install."""
    picture.make_folder(folder)
    paths = []
    for document in documents:
        records = [
            record
            for record in results["records"]
            if record["document"] == document and record.get("x_cublas")
        ]
        if records:
            path = folder / f"ladder-{document}.png"
            bars(
                records, f"{published.DOCUMENTS[document].short}, {results['header']['gpu']}", path
            )
            paths.append(path)
        for table in tables.of(results, [document]):
            if tables.PEAK in table.title:
                path = folder / f"{tables.PEAK}.png"
                table.draw(path)
                paths.append(path)
    return paths


def bars(records: list[dict[str, Any]], title: str, path: Path) -> None:
    """A bar of TFLOP/s for each record, and a mark where cuBLAS is."""
    names = [f"{record['step']} {record['variant']}".strip() for record in records]
    rates = [record["tflops"] for record in records]
    of_cublas = [record["tflops"] / record["x_cublas"] for record in records]
    places = range(len(records))
    with picture.axes_of(path, title, height=1.2 + 0.24 * len(records)) as axes:
        axes.barh(places, rates, color=COLOURS[0], height=0.7)
        axes.scatter(of_cublas, places, marker="|", s=120, color=COLOURS[1], label="cuBLAS")
        axes.set_yticks(places, names, fontsize=8)
        axes.invert_yaxis()
        axes.set(xlabel="TFLOP/s")
