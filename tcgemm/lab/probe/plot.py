"""Pictures of the rates over warps and ILP, one for each instruction."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tcgemm import _plots
from tcgemm.lab.probe import tables

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def draw(results: dict[str, Any], groups: Sequence[str], folder: Path) -> list[Path]:
    """Writes PNG files into a folder; their paths. ValueError says what to install."""
    _plots.make_folder(folder)
    gpu, paths = results["header"]["gpu"], []
    for table in tables.of(results, groups):
        for group in dict.fromkeys(curve.group for curve in table.curves):
            curves = [curve for curve in table.curves if curve.group == group]
            # A colour for each line; the label is what differs.
            own = [
                curve._replace(group=curve.label, label=curve.label.removeprefix(f"{group}, "))
                for curve in curves
            ]
            path = folder / _plots.file_name(group, gpu)
            replace(table, title=f"{group}: {gpu}", curves=own).draw(path)
            paths.append(path)
    return paths
