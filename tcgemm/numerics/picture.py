"""Pictures with one pair of axes, by matplotlib, which is not needed for anything else."""

from __future__ import annotations

import contextlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COLOURS = ("#1f5fa8", "#d1602b", "#3d8c50", "#7b4fa3", "#b8860b", "#c2334d", "#e58aa0", "#555555")


def make_folder(folder: Path) -> None:
    """Makes the folder of --plot. ValueError says what to install."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("--plot needs matplotlib: pip install matplotlib.")
    folder.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def axes_of(path: Path, title: str, *, height: float = 4.6, **legend: Any) -> Iterator[Any]:
    """The axes to draw into; at the end they get their legend, and the picture is written."""
    from matplotlib.figure import Figure

    figure = Figure((7.6, height), dpi=110, layout="constrained")
    axes = figure.subplots()
    yield axes
    axes.set_title(title, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(**{"fontsize": 7, "frameon": False, **legend})
    figure.savefig(path, metadata={"Software": None})
