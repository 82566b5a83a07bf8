"""The picture of the 2:4 format. tcgemm.compress24 makes the values and the metadata that it shows.

row of the dense matrix   16 elements, four groups of four
values                    8 elements
metadata                  2 bytes, four positions of two bits in each
"""

import torch

import tcgemm
from benchmarks.report.svg import BLUE, GREEN, GRID, INK, ORANGE, PURPLE, SOFT, Drawing

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


def _cell(drawing: Drawing, x: float, y: float, content: str, colour: str, *, kept: bool) -> None:
    drawing.rect(x, y, CELL - 2, CELL - 2, colour if kept else "#f6f8fa", stroke=GRID, radius=3)
    fill = "#ffffff" if kept else SOFT
    place = (x + CELL / 2 - 1, y + CELL / 2 + 5)
    drawing.text(*place, content, size=15, fill=fill, anchor="middle", bold=kept, mono=True)


def _group_x(group: int) -> float:
    """The left edge of a group of four cells."""
    return LEFT + group * (4 * CELL + GAP)


def draw() -> str:
    values, positions, octets = parts()
    drawing = Drawing(860, 316, TITLE, f"The row {ROW} has the values {values}.")
    drawing.text(20, 32, TITLE, size=16, bold=True)
    for y, head, below in (
        (TOP, "dense row", "K elements"),
        (TOP + 80, "values", "K/2 elements"),
        (TOP + 140, "positions", "two bits each"),
    ):
        drawing.text(20, y + 18, head, bold=True)
        drawing.text(20, y + 35, below, size=12, fill=SOFT)
    for group, colour in enumerate(GROUPS):
        left, columns = _group_x(group), positions[2 * group : 2 * group + 2]
        for place in range(4):
            element = str(ROW[4 * group + place])
            _cell(drawing, left + place * CELL, TOP, element, colour, kept=place in columns)
        drawing.arrow(left + 2 * CELL - 1, TOP + CELL + 4, left + 2 * CELL - 1, TOP + 76)
        for index, position in enumerate(columns):
            x = left + (index + 1) * CELL
            value = str(values[2 * group + index])
            _cell(drawing, x, TOP + 80, value, colour, kept=True)
            drawing.text(
                *(x + CELL / 2 - 1, TOP + 157, str(position)),
                size=15,
                fill=colour,
                anchor="middle",
                bold=True,
                mono=True,
            )
            bits = f"{position:02b}"
            drawing.text(
                *(x + CELL / 2 - 1, TOP + 175, bits), size=12, fill=SOFT, anchor="middle", mono=True
            )
    y = TOP + 214
    drawing.text(20, y + 4, "metadata", bold=True)
    drawing.text(20, y + 21, "K/8 bytes", size=12, fill=SOFT)
    for index, octet in enumerate(octets):
        left, right = _group_x(2 * index), _group_x(2 * index + 1) + 4 * CELL
        drawing.line(left, y - 18, right, y - 18, INK, 1.5)
        bits = " ".join(f"{octet >> shift & 3:02b}" for shift in (6, 4, 2, 0))
        middle = (left + right) / 2
        drawing.text(middle, y + 4, f"byte {bits}", size=14, anchor="middle", mono=True)
        below = "the first position is in the lowest bits"
        drawing.text(middle, y + 21, below, size=12, fill=SOFT, anchor="middle")
    return drawing.svg()
