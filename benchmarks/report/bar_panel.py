"""A panel of a picture: groups of bars that are x torch's speed."""

from collections.abc import Mapping
from typing import Any

from benchmarks.report.svg import INK, SOFT, Drawing

PLOT_TOP, PLOT_HEIGHT = 106, 210
BAR, GROUP_GAP = 17, 26


def panel_width(groups: int, bars_a_group: int) -> int:
    return groups * (BAR * bars_a_group + GROUP_GAP)


def _scale(highest: float) -> tuple[float, float]:
    """(the top of the axis, the distance of its ticks)."""
    step = 0.25
    while highest > 6 * step:
        step *= 2
    return step * -(-highest * 1.04 // step), step


def bars(
    drawing: Drawing,
    left: float,
    title: str,
    groups: Mapping[Any, str],
    colours: Mapping[str, str],
    ratios: Mapping[tuple[Any, str], float | None],
) -> float:
    """Draws a panel, and returns its right edge.

    Arguments:
        groups: {group: the label below its bars}, from left to right.
        colours: {name of a bar: its colour}, in the order of the bars.
        ratios: {(group, name): x torch's speed}; a bar without a ratio is missing.
    """
    right = left + panel_width(len(groups), len(colours))
    bottom = PLOT_TOP + PLOT_HEIGHT
    heights = [ratio for (_, name), ratio in ratios.items() if ratio and name in colours]
    top, step = _scale(max(1.0, *heights, 0.0))
    drawing.text(left, PLOT_TOP - 32, title, bold=True)
    drawing.text(left, PLOT_TOP - 16, "x torch's speed (above 1: faster)", size=11, fill=SOFT)

    def height(ratio: float) -> float:
        return PLOT_HEIGHT * ratio / top

    tick = 0.0
    while tick <= top:
        y = bottom - height(tick)
        drawing.line(left, y, right, y)
        drawing.text(left - 6, y + 4, f"{tick:g}", size=11, fill=SOFT, anchor="end")
        tick += step
    drawing.line(left, bottom - height(1), right, bottom - height(1), INK, 1.5)
    for index, (group, label) in enumerate(groups.items()):
        start = left + index * panel_width(1, len(colours)) + GROUP_GAP / 2
        for place, (name, colour) in enumerate(colours.items()):
            ratio = ratios.get((group, name))
            if ratio is None:
                continue
            tall, x = height(ratio), start + place * BAR
            drawing.rect(x, bottom - tall, BAR - 2, tall, colour)
            drawing.text(
                *(x + BAR / 2 - 1, bottom - tall - 3, f"{ratio:.1f}"),
                size=9,
                anchor="middle",
                halo=True,
            )
        middle = start + BAR * len(colours) / 2
        drawing.text(middle, bottom + 16, label, size=12, anchor="middle")
    return right
