"""The result of an experiment: rows that print as a table, and curves."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tcgemm import _plots, _tables

if TYPE_CHECKING:
    from pathlib import Path


class Curve(NamedTuple):
    """A line of a plot."""

    label: str
    group: str  # lines of a group have one colour
    is_dashed: bool
    points: dict[int, float]


def text(value: Any) -> str:
    """A cell: three digits of a number, "-" for nothing."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}" if math.isfinite(value) else "overflow"
    return str(value)


def _plain(value: Any) -> Any:
    """The value for JSON, which has no Inf and no NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass
class Table:
    """Rows of an experiment.

    Attributes:
        title (str): what was computed.
        rows (list[dict]): one dict for each line, with the same keys: the columns.
        notes (list[str]): sentences that are printed below.
        curves (list[Curve]): the same for more points, if there is something to draw.
        axes (tuple[str, str]): the names of the axes of the curves.
    """

    title: str
    rows: list[dict[str, Any]]
    notes: list[str]
    curves: list[Curve] = field(default_factory=list)
    axes: tuple[str, str] = ("", "")

    def __str__(self) -> str:
        heads = list(self.rows[0])
        cells = [heads, *([text(row[head]) for head in heads] for row in self.rows)]
        words = [all(isinstance(row[head], str) for row in self.rows) for head in heads]
        lines = _tables.aligned(cells, "".join("<" if is_word else ">" for is_word in words))
        return "\n".join([self.title, "", *lines, "", *self.notes]).rstrip()

    def facts(self) -> dict[str, Any]:
        """The table for a JSON file. Numbers that are not finite become null."""
        return {
            "title": self.title,
            "rows": [{key: _plain(value) for key, value in row.items()} for row in self.rows],
            "notes": self.notes,
            "curves": {
                curve.label: {str(x): _plain(y) for x, y in curve.points.items()}
                for curve in self.curves
            },
        }

    def draw(self, path: Path) -> None:
        """Draws the curves into a picture, by matplotlib. A later line is thinner than an earlier
        one, so that both are seen where they are equal.
        """
        colours = _plots.colours(curve.group for curve in self.curves)
        step = 2.6 / len(self.curves)
        with _plots.axes_of(path, self.title) as axes:
            for index, curve in enumerate(self.curves):
                axes.plot(
                    list(curve.points),
                    list(curve.points.values()),
                    color=colours[curve.group],
                    linestyle="--" if curve.is_dashed else "-",
                    linewidth=4 - step * index,
                    label=curve.label,
                )
            axes.set_yscale("log")
            axes.xaxis.get_major_locator().set_params(integer=True)
            if max(max(curve.points) for curve in self.curves) > 100:
                axes.set_xscale("log", base=2)
            axes.set(xlabel=self.axes[0], ylabel=self.axes[1])
