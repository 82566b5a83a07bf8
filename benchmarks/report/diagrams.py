"""The pictures that explain: the 2:4 format, one step of a tensor core.

x and y are pixels from the upper left corner.
"""

from fractions import Fraction

import torch

import tcgemm
from tcgemm import _plots, emulate
from tcgemm._plots import BLUE, GREEN, GRID, INK, ORANGE, PALE, PURPLE, RED, SOFT

SMALL = {"size": "small", "color": SOFT}
CODE = {"family": "monospace", "size": "medium"}


def canvas(width: float, height: float, title: str) -> tuple["_plots.Figure", "_plots.Axes"]:
    """A figure and its only axes."""
    figure = _plots.figure(width, height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    axes.text(20, 32, title, size="large", weight="bold")
    return figure, axes


def box(axes: "_plots.Axes", place: tuple[float, ...], colour: str, text: str) -> None:
    """A box at (x, y, width, height) with a text. The text is grey in a pale box."""
    x, y, width, height = place
    edge = {"edgecolor": GRID, "linewidth": 0.5, "clip_on": False}
    axes.bar(x, height, width, y, align="edge", color=colour, **edge)
    style = {"ha": "center", "va": "center_baseline", "color": SOFT if colour == PALE else "white"}
    axes.text(x + width / 2, y + height / 2, text, **style, **CODE)


# A group without zeros to spare, one with a zero that is stored, one with the last two, one empty.
SPARSE_ROW = (5, 0, 0, 2, 0, 0, 7, 0, 0, 0, 3, 1, 0, 0, 0, 0)


def compressed() -> tuple[list[int], list[int], list[int]]:
    """(values, positions, bytes of the metadata) of SPARSE_ROW, by tcgemm.compress24."""
    w = tcgemm.compress24(torch.tensor([SPARSE_ROW], dtype=torch.float16))
    octets = [int(byte) for byte in w.metadata[0]]
    positions = [byte >> shift & 3 for byte in octets for shift in (0, 2, 4, 6)]
    return [int(value) for value in w.values[0]], positions, octets


def sparse24() -> "_plots.Figure":
    """A row of 16 elements, its eight values, and two bytes of four positions each."""
    cell, side, top, left, group_width = 40, 38, 64, 150, 168
    title = "The 2:4 format: four elements become two values and two positions"
    figure, axes = canvas(860, 316, title)
    values, positions, octets = compressed()
    for y, head, below in (
        (top, "dense row", "K elements"),
        (top + 80, "values", "K/2 elements"),
        (top + 140, "positions", "two bits each"),
        (top + 200, "metadata", "K/8 bytes"),
    ):
        axes.text(20, y + 18, head, weight="bold")
        axes.text(20, y + 35, below, **SMALL)
    for group, colour in enumerate((BLUE, ORANGE, GREEN, PURPLE)):
        x = left + group * group_width
        kept = positions[2 * group : 2 * group + 2]
        for place, value in enumerate(SPARSE_ROW[4 * group : 4 * group + 4]):
            fill = colour if place in kept else PALE
            box(axes, (x + place * cell, top, side, side), fill, str(value))
        ends = (x + 2 * cell - 1, top + 80), (x + 2 * cell - 1, top + cell)
        axes.annotate("", *ends, arrowprops={"arrowstyle": "-|>", "color": SOFT})
        for index, position in enumerate(kept):
            place = x + (index + 1) * cell
            box(axes, (place, top + 80, side, side), colour, str(values[2 * group + index]))
            middle, style = place + cell / 2, {"ha": "center", "family": "monospace"}
            axes.text(middle, top + 157, str(position), color=colour, weight="bold", **style)
            axes.text(middle, top + 175, f"{position:02b}", **style, **SMALL)
    for index, octet in enumerate(octets):
        x = left + 2 * index * group_width
        right = x + 2 * group_width - 10
        axes.plot([x, right], [top + 196] * 2, color=INK)
        bits = " ".join(f"{octet >> shift & 3:02b}" for shift in (6, 4, 2, 0))
        axes.text((x + right) / 2, top + 218, f"byte {bits}", ha="center", **CODE)
        below = "the first position is in the lowest bits"
        axes.text((x + right) / 2, top + 235, below, ha="center", **SMALL)
    return figure


INSTRUCTION = "wgmma.m64nNk32.f32.e4m3.e4m3"
# Products of e4m3 numbers, and the accumulator.
PRODUCTS = ((1.875, 0.875), (0.203125, 1.625), (0.0546875, 0.40625), (0.015625, 0.01171875))
ACCUMULATOR = Fraction(5) + Fraction(0b10110111010111, 2**14)
HIGHEST, LOWEST = 2, -17  # exponents of the first and the last column


def step() -> "_plots.Figure":
    """How the addends of a step of a Hopper GPU are aligned, cut to 2^(E - F), and added."""
    cell, left, top, height = 27, 212, 74, 34
    instructions = emulate.instructions("Hopper")
    fraction_bits = next(row.fraction_bits for row in instructions if row.name == INSTRUCTION)
    lowest = Fraction(2) ** (HIGHEST - fraction_bits)
    a, b = (torch.zeros(1, 32, dtype=torch.float8_e4m3fn) for _ in range(2))
    a[0, : len(PRODUCTS)], b[0, : len(PRODUCTS)] = torch.tensor(PRODUCTS).t()
    c = torch.tensor([[float(ACCUMULATOR)]])
    total = Fraction(emulate.mma(a, b.t(), c, instruction=INSTRUCTION).item())
    addends = {f"c = {float(ACCUMULATOR):.6f}": ACCUMULATOR}
    addends |= {f"{x:g} x {y:g}": Fraction(x) * Fraction(y) for x, y in PRODUCTS}
    exact = sum(addends.values(), Fraction(0))
    below = top + len(addends) * height + 8
    rows = [(top + index * height, *addend) for index, addend in enumerate(addends.items())]
    rows.append((below, f"result {float(total):.6f}", total))
    rows.append((below + height, f"exact  {float(exact):.6f}", exact))
    figure, axes = canvas(780, 352, "One FP8 step of a Hopper tensor core: align, cut, add, cut")
    axes.text(20, top - 10, "bit of 2 to the power", **SMALL)
    for y, name, _ in rows:
        axes.text(20, y + 18, name, family="monospace", size=9)
    for column, exponent in enumerate(range(HIGHEST, LOWEST - 1, -1)):
        x, weight = left + column * cell, Fraction(2) ** exponent
        axes.text(x + cell / 2 - 1, top - 10, str(exponent), ha="center", **SMALL)
        for y, _, value in rows:
            digit = int(value / weight) & 1
            colour = (RED if weight < lowest else BLUE) if digit else PALE
            if value >= weight or exponent < 0:
                box(axes, (x, y, cell - 2, cell - 1), colour, str(digit))
    axes.plot([20, left + (HIGHEST - LOWEST + 1) * cell], [below - 7] * 2, color=INK, linewidth=1)
    edge = left + (fraction_bits + 1) * cell - 1
    axes.plot([edge] * 2, [top - 4, below + 2 * height - 4], color=ORANGE)
    axes.text(edge + 6, below + 2 * height + 12, "red bits are lost", size="small", color=RED)
    text = "E = 2 is the largest exponent; bits below 2^(E - 13) do not enter the sum"
    axes.text(20, below + 2 * height + 12, text, **SMALL)
    return figure
