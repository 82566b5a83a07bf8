"""Figures of matplotlib, which is optional. No other module imports it.

Sizes are in pixels of 1/96 inch. A figure has the same bytes whenever it is saved.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import re
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#1f5fa8", "#d1602b", "#3d8c50", "#7b4fa3", "#b8860b", "#c2334d", "#e58aa0", "#555555")
BLUE, ORANGE, GREEN, PURPLE, _, RED, *_ = COLOURS
INK, SOFT, GRID, PALE = "#1f2328", "#59636e", "#d1d9e0", "#f6f8fa"
PNG_DPI = 144
WIDE = 20  # bars whose lengths differ by more have a logarithmic axis
FEW_TICKS = 16  # so many x are all named
METADATA = {".png": {"Software": None}, ".svg": {"Date": None, "Creator": None}}


def make_folder(folder: Path) -> None:
    """Makes the folder of --plot. ValueError says what to install."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("--plot needs matplotlib: pip install matplotlib.")
    folder.mkdir(parents=True, exist_ok=True)


def file_name(*words: str) -> str:
    """ "ladder-004-NVIDIA-H200.png": the words with a dash for all that is no letter or digit."""
    return re.sub(r"[^\w.]+", "-", "-".join(words)) + ".png"


def colours(names: Iterable[str]) -> dict[str, Any]:
    """{name: its colour}. No colour repeats."""
    distinct = list(dict.fromkeys(names))
    if len(distinct) <= len(COLOURS):
        return dict(zip(distinct, COLOURS, strict=False))
    from matplotlib import colormaps

    steps = len(distinct) - 1
    return {name: colormaps["turbo"](index / steps) for index, name in enumerate(distinct)}


def figure(width: float, height: float, title: str = "", source: str = "") -> Figure:
    """A figure with a title above and the source of its numbers below."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
    result = Figure((width / 96, height / 96), layout=layout)
    if title:
        result.suptitle(title, x=0.02, ha="left", size="large", weight="bold")
    if source:
        result.supxlabel(source, x=0.02, ha="left", size="small", color=SOFT)
    return result


def panels(
    count: int, ncols: int, size: tuple[float, float], title: str, *, sharey: bool = False
) -> tuple[Figure, list[Axes]]:
    """A figure of `count` axes of a size, `ncols` in a row. The rest of the last row is empty."""
    nrows = math.ceil(count / ncols)
    result = figure(ncols * size[0], nrows * size[1] + 70, title)
    axes = list(result.subplots(nrows, ncols, squeeze=False, sharey=sharey).flat)
    for empty in axes[count:]:
        empty.set_axis_off()
    return result, axes[:count]


def plain(axes: Axes, direction: Literal["both", "x", "y"] = "both") -> None:
    """Axes with a pale grid, of one direction or of both, in place of a frame."""
    axes.grid(visible=False)
    axes.grid(axis=direction, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)


def head(axes: Axes, title: str) -> None:
    """Writes the title of one of several axes."""
    axes.set_title(title, loc="left", size="medium", weight="bold")


def rectangle(
    axes: Axes, corner: tuple[float, float], width: float, height: float, **style: Any
) -> None:
    """Adds a rectangle without a line around it, unless the style has one."""
    from matplotlib.patches import Rectangle

    own: dict[str, Any] = {"edgecolor": "none"} | style
    axes.add_patch(Rectangle(corner, width, height, **own))


def legend(figure: Figure, ncols: int) -> None:
    """One legend of all axes, below them. The figure grows by its height."""
    pairs = [axes.get_legend_handles_labels() for axes in figure.axes]
    lines = {name: line for part in pairs for line, name in zip(*part, strict=True)}
    place = {"loc": "outside lower center", "ncols": ncols, "frameon": False, "fontsize": "small"}
    figure.legend(list(lines.values()), list(lines), **place)
    figure.set_figheight(figure.get_figheight() + math.ceil(len(lines) / ncols) * 18 / 96)


def line_panels(
    title: str,
    parts: Mapping[str, Mapping[str, Mapping[int, float]]],
    names: tuple[str, str],
    ncols: int,
    *,
    widest: float = 1.6,
    sharey: bool = True,
    yscale: str = "linear",
    bottom: float | None = None,
) -> Figure:
    """A figure with a panel of lines for each part, and one legend.

    Arguments:
        title: of the figure.
        parts: {title of a panel: {name of a line: {x: y}}}. The x are at equal distances.
        names: of the x axes and of the y axes.
        ncols: how many panels are in a row.
        widest: the width of the first line. Later lines are thinner, so that both are seen where
            they are equal.
        sharey: whether all panels have the same y axis.
        yscale: of matplotlib.
        bottom: where the y axes begin; None leaves that to matplotlib.
    """
    result, places = panels(len(parts), ncols, (420, 280), title, sharey=sharey)
    colour_of = colours(name for lines in parts.values() for name in lines)
    for axes, (heading, lines) in zip(places, parts.items(), strict=True):
        xs = sorted({x for points in lines.values() for x in points})
        for index, (name, points) in enumerate(lines.items()):
            style = {"color": colour_of[name], "marker": "o" if len(xs) <= FEW_TICKS else ""}
            style |= {"linewidth": widest + (1.4 - widest) * index / len(lines), "markersize": 4}
            axes.plot([xs.index(x) for x in points], list(points.values()), label=name, **style)
        ticks = range(0, len(xs), 1 if len(xs) <= FEW_TICKS else len(xs) // 7)
        axes.set_xticks(ticks, [str(xs[tick]) for tick in ticks], rotation=45, size="small")
        axes.set_xlabel(names[0], size="small")
        axes.set_yscale(yscale)
        if bottom is not None:  # None as an argument would end the automatic limits
            axes.set_ylim(bottom=bottom)
        head(axes, heading)
        plain(axes)
    for axes in places[::ncols]:
        axes.set_ylabel(names[1], size="small")
    legend(result, 2 * ncols)
    return result


def bars(
    axes: Axes,
    names: Sequence[str],
    lengths: Sequence[float],
    colour: str | Sequence[str] = BLUE,
    digits: str = ".2f",
) -> None:
    """Draws horizontal bars from top to bottom, with names at the left and numbers at the right.

    A bar whose length is NaN is missing.
    """
    places = range(len(names))
    axes.barh(places, lengths, 0.72, color=colour)
    right = {"transform": axes.get_yaxis_transform(), "ha": "right", "va": "center"}
    for place, length in enumerate(lengths):
        text = "-" if math.isnan(length) else format(length, digits)
        axes.text(1.14, place, text, size="small", **right)
    axes.set_yticks(places, names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(labelsize="small")
    plain(axes, "x")


def bar_groups(
    groups: Sequence[str], series: Mapping[str, Sequence[float]], axes: Axes | None = None
) -> Axes:
    """Draws a group of horizontal bars for each name of `groups`, with one bar of each series.

    Without axes, those of a new figure that a notebook shows. The axis is logarithmic where the
    longest bar has more than WIDE times the length of the shortest, and the names are as small as
    their distance demands. Returns the axes.
    """
    if axes is None:
        from matplotlib import pyplot

        inches = 1 + 0.25 * len(groups) * max(1.0, 0.6 * len(series))
        axes = pyplot.subplots(figsize=(8, inches), layout="constrained")[1]
    height = 0.8 / len(series)
    for index, (name, colour) in enumerate(colours(series).items()):
        places = [place + index * height for place in range(len(groups))]
        axes.barh(places, series[name], height, color=colour, label=name)
    middles = [place + 0.4 - height / 2 for place in range(len(groups))]
    box = axes.get_window_extent()
    points = 72 / axes.figure.dpi * box.height / len(groups)  # from one name to the next
    axes.set_yticks(middles, groups, fontsize=max(4.0, min(10.0, 0.8 * points)))
    axes.set_ylim(len(groups), -0.2)
    lengths = [length for bars in series.values() for length in bars if length > 0]
    if max(lengths) > WIDE * min(lengths):
        axes.set_xscale("log")
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=len(series), frameon=False)
    return axes


@contextlib.contextmanager
def axes_of(path: Path, title: str, *, height: float = 420) -> Iterator[Any]:
    """The axes to draw into; at the end they get their legend, and the picture is written."""
    result = figure(730, height)
    axes = result.subplots()
    axes.set_title(title, size="medium")
    plain(axes)
    yield axes
    legend(result, 2)
    save(result, path)


def save(figure: Figure, path: Path) -> None:
    """Writes a PNG or an SVG file. The viewer of an SVG file chooses the font."""
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "tcgemm"}):
        figure.savefig(path, dpi=PNG_DPI, metadata=METADATA[path.suffix])
