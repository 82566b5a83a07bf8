"""Pictures of a ladder: speeds beside cuBLAS, the curve of the plateau, and tiles of matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tcgemm import _plots, published
from tcgemm.lab.ladder import tables

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tcgemm._plots import Axes


class Tile(NamedTuple):
    """A part of a matrix that is drawn in a colour.

    Attributes:
        matrix (str): "a", "b" or "c".
        row, column, rows, columns (int): its place in the matrix.
        colour (str): of matplotlib.
        label (str): of the legend; tiles of one label have one entry.
    """

    matrix: str
    row: int
    column: int
    rows: int
    columns: int
    colour: str
    label: str = ""


def tiles(
    axes: Axes, title: str, mnk: tuple[int, int, int], parts: Sequence[Tile], grid: int = 8
) -> None:
    """Draws a at the left of c and b above it, so that a tile of c stands where its operands meet.

    Arguments:
        axes: of a figure.
        title: above the axes.
        mnk: M, N and K of the matrices, or of the part of them that is shown.
        parts: the tiles; a later one lies on an earlier one.
        grid: elements between the pale lines.
    """
    m, n, k = mnk
    gap = max(mnk) / 16
    # matrix -> x and y of its first element, rows, columns
    places = {"a": (-gap - k, 0.0, m, k), "b": (0.0, -gap - k, k, n), "c": (0.0, 0.0, m, n)}
    for name, (x, y, rows, columns) in places.items():
        _plots.rectangle(axes, (x, y), columns, rows, facecolor=_plots.PALE)
        line: dict[str, Any] = {"color": _plots.GRID, "linewidth": 0.6}
        axes.vlines([x + at for at in range(0, columns + 1, grid)], y, y + rows, **line)
        axes.hlines([y + at for at in range(0, rows + 1, grid)], x, x + columns, **line)
        axes.text(x, y - gap / 3, name, ha="left", va="bottom", weight="bold")
    labels: set[str] = set()
    for part in parts:
        x, y, _, _ = places[part.matrix]
        label = part.label if part.label not in labels else ""
        labels.add(part.label)
        style: dict[str, Any] = {"facecolor": part.colour, "edgecolor": "white", "linewidth": 0.6}
        style["label"] = label
        place = x + part.column, y + part.row
        _plots.rectangle(axes, place, part.columns, part.rows, **style)
    axes.set(xlim=(-gap - k - 1, n + 1), ylim=(m + 1, -2 * gap - k - 1), aspect="equal")
    axes.set_axis_off()
    axes.set_title(title, loc="left", size="medium")
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.01), frameon=False, fontsize="small")


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
