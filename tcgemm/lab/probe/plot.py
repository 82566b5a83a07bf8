"""Pictures of the probe: latency and rate over warps and ILP, and the rates of wgmma over n."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tcgemm import _plots
from tcgemm.lab.probe import checks, tables

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

UNITS = {"FMA/clk/SM": "FMA a clock and SM", "B/clk/SM": "bytes a clock and SM"}
LOOPS = ("mma", "sparse", "wmma", "ldmatrix", "shared")  # groups with records over warps and ILP


def latency_and_rate(part: Sequence[dict[str, Any]], title: str) -> _plots.Figure:
    """Two panels over the warps, with a line for each ILP.

    Arguments:
        part: the records of one row, without conflicts.
        title: of the figure.
    """
    panels = {"latency, clocks": "latency", f"rate, {UNITS[part[0]['unit']]}": "rate"}
    ilps = sorted({record["ilp"] for record in part})
    parts = {
        heading: {
            f"ILP {ilp}": dict(
                sorted((record["warps"], record[key]) for record in part if record["ilp"] == ilp)
            )
            for ilp in ilps
        }
        for heading, key in panels.items()
    }
    return _plots.line_panels(title, parts, ("warps", ""), 2, widest=1.4, sharey=False, bottom=0)


def draw(results: dict[str, Any], groups: Sequence[str], folder: Path) -> list[Path]:
    """Writes PNG files into a folder; their paths. ValueError says what to install."""
    _plots.make_folder(folder)
    gpu, paths = results["header"]["gpu"], []
    for group in groups:
        if group not in LOOPS:
            continue
        for row, part in checks.cells(results["records"], group).items():
            paths.append(folder / _plots.file_name(row, gpu))
            _plots.save(latency_and_rate(checks.free(part), f"{row}: {gpu}"), paths[-1])
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
