"""What the pictures share: their colours, figures of matplotlib, panels of bars, and SVG files.

matplotlib is imported where a figure is made or saved, so that pages and tables do not need it.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcgemm.numerics.picture import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PURPLE, _, RED = COLOURS[:6]
INK, SOFT, GRID, PALE = "#1f2328", "#59636e", "#d1d9e0", "#f6f8fa"
BAR, GROUP_GAP = 18, 26  # pixels: from one bar to the next, and between groups of bars


def figure(width: float, height: float, title: str, source: str = "") -> "Figure":
    """A figure of a size in pixels, with a title above and the source of its numbers below."""
    from matplotlib.figure import Figure

    result = Figure((width / 96, height / 96), layout="constrained")
    result.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
    result.suptitle(title, x=0.02, ha="left", size="large", weight="bold")
    if source:
        result.supxlabel(source, x=0.02, ha="left", size="small", color=SOFT)
    return result


def canvas(width: float, height: float, title: str) -> tuple["Figure", "Axes"]:
    """A figure and its only axes: x and y are pixels from the upper left corner."""
    from matplotlib.figure import Figure

    result = Figure((width / 96, height / 96))
    axes = result.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    axes.text(20, 32, title, size="large", weight="bold")
    return result, axes


def box(axes: "Axes", place: tuple[float, float, float, float], colour: str, text: str) -> None:
    """A box at (x, y, width, height) of a canvas with a text. The text is grey in a pale box."""
    x, y, width, height = place
    edge = {"edgecolor": GRID, "linewidth": 0.5, "clip_on": False}
    axes.bar(x, height, width, y, align="edge", color=colour, **edge)
    middle = (x + width / 2, y + height / 2)
    style = {"ha": "center", "va": "center_baseline", "family": "monospace", "size": "medium"}
    axes.text(*middle, text, color=SOFT if colour == PALE else "white", **style)


def arrow(axes: "Axes", x: float, top: float, bottom: float) -> None:
    """An arrow that points down."""
    axes.annotate("", (x, bottom), (x, top), arrowprops={"arrowstyle": "-|>", "color": SOFT})


def panel_width(groups: int, bars_a_group: int) -> int:
    return groups * (BAR * bars_a_group + GROUP_GAP)


def bars(
    axes: "Axes",
    title: str,
    groups: Mapping[Any, str],
    colours: Mapping[str, str],
    ratios: Mapping[tuple[Any, str], float | None],
    ncols: int = 2,
) -> None:
    """Draws groups of bars that are x torch's speed, with their numbers and a legend.

    Arguments:
        groups: {group: the label below its bars}, from left to right.
        colours: {name of a bar: its colour}, in the order of the bars.
        ratios: {(group, name): x torch's speed}; a bar without a ratio is missing.
        ncols: the columns of the legend.
    """
    step = BAR / panel_width(1, len(colours))
    for place, (name, colour) in enumerate(colours.items()):
        middle = (place - (len(colours) - 1) / 2) * step
        heights = [ratios.get((group, name)) or math.nan for group in groups]
        columns = [index + middle for index in range(len(groups))]
        container = axes.bar(columns, heights, 0.9 * step, color=colour, label=name)
        ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.2}
        axes.bar_label(container, fmt="%.1f", size="x-small", padding=2, bbox=ground)
    axes.axhline(1, color=INK, linewidth=1)
    axes.set_xticks(range(len(groups)), list(groups.values()))
    axes.set_title(title, loc="left", size="medium", weight="bold")
    axes.set_ylabel("x torch's speed (above 1: faster)", size="small", color=SOFT)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=ncols, frameon=False)
    plain(axes)


def plain(axes: "Axes", direction: str = "y") -> None:
    """Axes with a pale grid of one direction in place of a frame."""
    axes.grid(axis=direction, color=GRID)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)


def legend(figure: "Figure", ncols: int, size: float) -> None:
    """One legend of all panels, below them."""
    pairs = [axes.get_legend_handles_labels() for axes in figure.axes]
    lines = {name: line for part in pairs for line, name in zip(*part, strict=True)}
    place = {"loc": "outside lower center", "ncols": ncols, "fontsize": size, "frameon": False}
    figure.legend(list(lines.values()), list(lines), **place)


def save(figure: "Figure", path: Path) -> None:
    """Writes an SVG file, the same for the same figure. A viewer chooses the font."""
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "tcgemm"}):
        figure.savefig(path, metadata={"Date": None, "Creator": None})
