"""The picture of one step of a tensor core: how addends are aligned, cut and added.

The numbers are from a Hopper GPU's FP8 step. tcgemm.emulate computes the result that it shows.
"""

from fractions import Fraction

import torch

from benchmarks.report import style
from benchmarks.report.style import BLUE, INK, ORANGE, PALE, RED, SOFT
from tcgemm import emulate

INSTRUCTION = "wgmma.m64nNk32.f32.e4m3.e4m3"
# Products of e4m3 numbers, and the accumulator.
PRODUCTS = ((1.875, 0.875), (0.203125, 1.625), (0.0546875, 0.40625), (0.015625, 0.01171875))
ACCUMULATOR = Fraction(5) + Fraction(0b10110111010111, 2**14)
HIGHEST, LOWEST = 2, -17  # exponents of the first and the last column
CELL, LEFT, TOP, ROW = 27, 212, 74, 34
TITLE = "One FP8 step of a Hopper tensor core: align, cut, add, cut"


def addends() -> list[tuple[str, Fraction]]:
    """(text, value): the accumulator and the products."""
    terms = [(f"c = {float(ACCUMULATOR):.6f}", ACCUMULATOR)]
    terms += [(f"{x:g} x {y:g}", Fraction(x) * Fraction(y)) for x, y in PRODUCTS]
    return terms


def fraction_bits() -> int:
    """F: addends are cut to 2^(E - F), where E is the exponent of the accumulator."""
    rows = emulate.instructions("Hopper")
    return next(row.fraction_bits for row in rows if row.name == INSTRUCTION)


def result() -> Fraction:
    """The step's result, by the emulator."""
    a, b = torch.zeros(1, 32), torch.zeros(32, 1)
    for k, (x, y) in enumerate(PRODUCTS):
        a[0, k], b[k, 0] = x, y
    c = torch.tensor([[float(ACCUMULATOR)]])
    narrow = (x.to(torch.float8_e4m3fn) for x in (a, b))
    return Fraction(emulate.mma(*narrow, c, instruction=INSTRUCTION).item())


def _row(axes: "style.Axes", y: float, name: str, value: Fraction, lowest: Fraction) -> None:
    """The bits of a value; bits below `lowest` are lost."""
    axes.text(20, y + 18, name, family="monospace", size=9)
    for column, exponent in enumerate(range(HIGHEST, LOWEST - 1, -1)):
        weight = Fraction(2) ** exponent
        digit = int(value / weight) & 1
        if value < weight and exponent >= 0:
            continue
        colour = (RED if weight < lowest else BLUE) if digit else PALE
        style.box(axes, (LEFT + column * CELL, y, CELL - 2, CELL - 1), colour, str(digit))


def draw() -> "style.Figure":
    lowest, total = Fraction(2) ** (HIGHEST - fraction_bits()), result()
    cut = sum((value // lowest * lowest for _, value in addends()), Fraction(0))
    assert total == cut  # the sum has 14 bits here, so that its own cut loses nothing
    exact = sum((value for _, value in addends()), Fraction(0))
    figure, axes = style.canvas(780, 352, TITLE)
    for column, exponent in enumerate(range(HIGHEST, LOWEST - 1, -1)):
        x = LEFT + column * CELL + CELL / 2 - 1
        axes.text(x, TOP - 10, str(exponent), size="small", color=SOFT, ha="center")
    axes.text(20, TOP - 10, "bit of 2 to the power", size="small", color=SOFT)
    for index, (name, value) in enumerate(addends()):
        _row(axes, TOP + index * ROW, name, value, lowest)
    below = TOP + len(PRODUCTS) * ROW + ROW + 8
    axes.plot([20, LEFT + (HIGHEST - LOWEST + 1) * CELL], [below - 7] * 2, color=INK, linewidth=1)
    _row(axes, below, f"result {float(total):.6f}", total, lowest)
    _row(axes, below + ROW, f"exact  {float(exact):.6f}", exact, lowest)
    edge = LEFT + (fraction_bits() + 1) * CELL - 1
    axes.plot([edge] * 2, [TOP - 4, below + 2 * ROW - 4], color=ORANGE)
    axes.text(edge + 6, below + 2 * ROW + 12, "red bits are lost", size="small", color=RED)
    text = "E = 2 is the largest exponent; bits below 2^(E - 13) do not enter the sum"
    axes.text(20, below + 2 * ROW + 12, text, size="small", color=SOFT)
    return figure
