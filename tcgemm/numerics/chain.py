"""Figure 17 of Sun et al.: a chain of products, each of which multiplies the one before.

D = A * B by one m16n8k8; D becomes A, rounded to the operands' type; B is new. The same chain in
float32 on the CPU is never rounded. "low" rounds A and B before both chains.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    "products grow by the factor sqrt(8) a step: the first chains of float16 overflow at N = 9.",
]


def matrices() -> tuple[Tensor, Tensor]:
    """A (rounds, 16, 8) and B (length, rounds, 8, 8), drawn one round after the other."""
    values = normal_stream(ROUNDS * (128 + 64 * LENGTH)).unflatten(0, (ROUNDS, -1))
    return (
        values[:, :128].unflatten(1, (16, 8)),
        values[:, 128:].unflatten(1, (LENGTH, 8, 8)).transpose(0, 1),
    )


def errors(machine: Machine, input_type: str, init: str) -> list[float]:
    """The mean error after 1, 2, ... LENGTH products; NaN after an overflow."""
    a, b = matrices()
    if init == "low":
        a, b = lowered(a, input_type), lowered(b, input_type)
    name = f"mma.m16n8k8.f32.{input_type}.{input_type}"
    exact, product, curve = a, a, []
    for factor in b:
        exact = exact @ factor
        left, right = operand(product, input_type), operand(factor, input_type)
        product = machine.multiply(name, left, right, None)
        wide = product.double()
        error = (wide - exact.double()).norm(dim=(1, 2)) / wide.norm(dim=(1, 2))
        curve.append(error.mean().item())
    return curve


def run(machines: Sequence[Machine]) -> Table:
    """The table, and a curve with every length for each machine, type and way to begin."""
    rows, curves = [], []
    for input_type in TYPES:
        for init in ("low", "FP32"):
            for machine in machines:
                curve = errors(machine, input_type, init)
                label = f"{input_type}, {init} init, {machine.name}"
                points = dict(enumerate(curve, start=1))
                curves.append(Curve(label, f"{input_type} {machine.name}", init == "FP32", points))
                row = {"type": input_type, "init": init, "on": machine.name}
                rows.append(row | {f"N = {n}": points[n] for n in SHOWN})
    title = f"Error of a chain of N products of mma.m16n8k8, mean of {ROUNDS} chains"
    return Table(title, rows, NOTES, curves, ("N", "error, relative to the result"))
