"""Figure 17 of Sun et al.: a chain of products, each of which multiplies the one before.

D = A * B by one m16n8k8; D becomes A, rounded to the operands' type; B is new. The same chain in
float32 on the CPU is never rounded. "low" rounds A and B before both chains.

Each length has chains of its own, as in the published program: for each N the engine starts again
with its seed, and each round draws A and then N + 1 times B, of which the chain takes the first N.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tcgemm.numerics.low_precision import lowered, operand
from tcgemm.numerics.machine import Machine
from tcgemm.numerics.stream import normal_stream
from tcgemm.numerics.table import Curve, Table

ROUNDS, LENGTH = 1000, 20
SHOWN = (1, 2, 5, 9, 10, 15, 20)  # the lengths in the table
TYPES = ("bf16", "f16", "tf32")
NOTES = [
    "The error is sqrt(sum (D - D32)^2) / sqrt(sum D^2), the mean of all rounds. Sums of eight "
    "products grow by the factor sqrt(8) a step, so float16 overflows; a mean ends at the first "
    "chain that does. Each N has random numbers of its own, as in the published program.",
]


class Operands(NamedTuple):
    """A and B of all chains. The chains of a step are those of `step` and more products."""

    a: Tensor  # (LENGTH, rounds, 16, 8): of the chains of 1, 2, ... LENGTH products
    b: list[Tensor]  # of each step: (chains of the step, rounds, 8, 8)


def operands() -> Operands:
    """The numbers of every chain, drawn one round after the other.

    The last B of a round is drawn and not used.
    """
    first, factors = [], []
    for length in range(1, LENGTH + 1):
        values = normal_stream(ROUNDS * (128 + 64 * (length + 1))).unflatten(0, (ROUNDS, -1))
        first.append(values[:, :128].unflatten(1, (16, 8)))
        factors.append(values[:, 128:].unflatten(1, (length + 1, 8, 8)))
    steps = range(LENGTH)
    b = [torch.stack([of_length[:, step] for of_length in factors[step:]]) for step in steps]
    return Operands(torch.stack(first), b)


def errors(machine: Machine, input_type: str, init: str, drawn: Operands) -> list[float]:
    """The mean errors of the chains of 1, 2, ... LENGTH products; NaN after an overflow."""
    name = f"mma.m16n8k8.f32.{input_type}.{input_type}"
    exact = product = lowered(drawn.a, input_type) if init == "low" else drawn.a
    curve = []
    for factor in drawn.b:
        right = lowered(factor, input_type) if init == "low" else factor
        exact = exact @ right
        left = operand(product, input_type)
        product = machine.multiply(name, left, operand(right, input_type), None)
        wide = product[0].double()  # the shortest chain ends here
        difference = (wide - exact[0].double()).norm(dim=(1, 2)) / wide.norm(dim=(1, 2))
        curve.append(difference.mean().item())
        exact, product = exact[1:], product[1:]
    return curve


def run(machines: Sequence[Machine]) -> Table:
    """The table, and a curve with every length for each machine, type and way to begin."""
    drawn = operands()
    rows, curves = [], []
    for input_type in TYPES:
        for init in ("low", "FP32"):
            for machine in machines:
                curve = errors(machine, input_type, init, drawn)
                label = f"{input_type}, {init} init, {machine.name}"
                points = dict(enumerate(curve, start=1))
                curves.append(Curve(label, f"{input_type} {machine.name}", init == "FP32", points))
                row = {"type": input_type, "init": init, "on": machine.name}
                rows.append(row | {f"N = {n}": points[n] for n in SHOWN})
    title = f"Error of a chain of N products of mma.m16n8k8, mean of {ROUNDS} chains"
    return Table(title, rows, NOTES, curves, ("N", "error, relative to the result"))
