"""The picture of the 2:4 format. tcgemm.compress24 makes the values and the metadata that it shows.

row of the dense matrix   16 elements, four groups of four
values                    8 elements
metadata                  2 bytes, four positions of two bits in each
"""

import torch

import tcgemm
from benchmarks.report import style
from benchmarks.report.style import BLUE, GREEN, INK, ORANGE, PALE, PURPLE, SOFT

# A group without zeros to spare, one with a zero that is stored, one with the last two, one empty.
ROW = (5, 0, 0, 2, 0, 0, 7, 0, 0, 0, 3, 1, 0, 0, 0, 0)
GROUPS = (BLUE, ORANGE, GREEN, PURPLE)
CELL, TOP, LEFT, GAP = 40, 64, 150, 8
TITLE = "The 2:4 format: four elements become two values and two positions"


def parts() -> tuple[list[int], list[int], list[int]]:
    """(values, positions, bytes of the metadata) of ROW."""
    w = tcgemm.compress24(torch.tensor([ROW], dtype=torch.float16))
    values = [int(value) for value in w.values[0]]
    octets = [int(byte) for byte in w.metadata[0]]
    positions = [byte >> shift & 3 for byte in octets for shift in (0, 2, 4, 6)]
    return values, positions, octets


def _group_x(group: int) -> float:
    """The left edge of a group of four cells."""
    return LEFT + group * (4 * CELL + GAP)


def draw() -> "style.Figure":
    values, positions, octets = parts()
    figure, axes = style.canvas(860, 316, TITLE)
    soft = {"size": "small", "color": SOFT}
    middle = {"ha": "center", "family": "monospace"}
    for y, head, below in (
        (TOP, "dense row", "K elements"),
        (TOP + 80, "values", "K/2 elements"),
        (TOP + 140, "positions", "two bits each"),
        (TOP + 200, "metadata", "K/8 bytes"),
    ):
        axes.text(20, y + 18, head, weight="bold")
        axes.text(20, y + 35, below, **soft)
    for group, colour in enumerate(GROUPS):
        left, columns = _group_x(group), positions[2 * group : 2 * group + 2]
        for place in range(4):
            x, fill = left + place * CELL, colour if place in columns else PALE
            style.box(axes, (x, TOP, CELL - 2, CELL - 2), fill, str(ROW[4 * group + place]))
        style.arrow(axes, left + 2 * CELL - 1, TOP + CELL, TOP + 80)
        for index, position in enumerate(columns):
            x, value = left + (index + 1) * CELL, str(values[2 * group + index])
            style.box(axes, (x, TOP + 80, CELL - 2, CELL - 2), colour, value)
            axes.text(x + CELL / 2, TOP + 157, str(position), color=colour, weight="bold", **middle)
            axes.text(x + CELL / 2, TOP + 175, f"{position:02b}", **middle, **soft)
    for index, octet in enumerate(octets):
        left, right = _group_x(2 * index), _group_x(2 * index + 1) + 4 * CELL - 2
        axes.plot([left, right], [TOP + 196] * 2, color=INK)
        bits = " ".join(f"{octet >> shift & 3:02b}" for shift in (6, 4, 2, 0))
        axes.text((left + right) / 2, TOP + 218, f"byte {bits}", **middle)
        below = "the first position is in the lowest bits"
        axes.text((left + right) / 2, TOP + 235, below, ha="center", **soft)
    return figure
