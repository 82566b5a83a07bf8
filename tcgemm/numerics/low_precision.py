"""Tables XII to XV of Sun et al.: what one product, one sum and one accumulation lose.

An m16n8k8 instruction computes a0 * b0, or a0 + a1, or a0 + c0; all its other elements are zero.
The difference to the same in float32 on the CPU is averaged over 1000 rounds. "low" rounds the
numbers before both computations, "FP32" only for the GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tcgemm import published
from tcgemm.emulate.instruction import TORCH
from tcgemm.numerics.machine import Machine
from tcgemm.numerics.stream import normal_stream
from tcgemm.numerics.table import Table

SOURCE = published.DOCUMENTS["003"].short
ROUNDS = 1000
_LOW_TF32 = ~0x1FFF
NOTES = [
    'In the published tables, "low" rounds c0 to float16 or tf32 but not to bfloat16. So their '
    "accumulation rows compare different sums: with a float32 c0 all three types lose the same "
    "(the rows c0 of FP32).",
    "The inner product and the accumulation of float16 sums are equal because both add the same "
    "two float16 numbers.",
    "tf32 operands are rounded by cvt.rna. Tensor cores drop the low bits of operands that are not "
    'rounded (the rows "not rounded").',
]


class Figure(NamedTuple):
    """A mean absolute difference of tables XII to XV, or one that is computed beside them."""

    table: str
    input: str  # the type of a and b
    accumulator: str
    operation: str
    init: str  # "low": all numbers are rounded before both computations; "FP32": on the GPU alone
    reference: str  # "FP32", or "FP32 to FP16" where the CPU's result is rounded
    value: float | None
    c0: str  # "FP32": the addend of an accumulation is not rounded; "low"
    is_rounded: bool = True  # the machine's a and b


BESIDE = (
    Figure("-", "f16", "f32", "accumulation", "low", "FP32", None, "FP32"),
    Figure("-", "tf32", "f32", "accumulation", "low", "FP32", None, "FP32"),
    Figure("-", "tf32", "f32", "multiplication", "FP32", "FP32", None, "low", is_rounded=False),
)


def figures() -> list[Figure]:
    """The published figures. A row is named by its types and its reference."""
    result = []
    for table in ("XII", "XIII", "XIV", "XV"):
        for row, cells in published.table("003", table).items():
            element, sums, reference = row.split(" ", 2)
            c0 = "FP32" if element == "bf16" else "low"
            for column, value in cells.items():
                operation, init = column.rsplit(" ", 1)
                result.append(Figure(table, element, sums, operation, init, reference, value, c0))
    return result


def truncate_tf32(x: Tensor) -> Tensor:
    """float32 with the low 13 bits cleared."""
    return x.contiguous().view(torch.int32).bitwise_and(_LOW_TF32).view(torch.float32)


def round_half_away_tf32(x: Tensor) -> Tensor:
    """float32 rounded to the 10 fraction bits of tf32, as by the instruction cvt.rna."""
    bits = x.contiguous().view(torch.int32)
    return (bits + 0x1000).bitwise_and(_LOW_TF32).view(torch.float32)


def operand(x: Tensor, input_type: str) -> Tensor:
    """The numbers as a tensor core gets them."""
    return round_half_away_tf32(x) if input_type == "tf32" else x.to(TORCH[input_type])


def lowered(x: Tensor, input_type: str) -> Tensor:
    """The numbers of the type, as float32. For tf32 the published program cuts bits off."""
    return truncate_tf32(x) if input_type == "tf32" else x.to(TORCH[input_type]).float()


def results(machine: Machine, figure: Figure) -> tuple[Tensor, Tensor]:
    """The machine's result and the CPU's float32 result of each round."""
    x, y = normal_stream(2 * ROUNDS).unflatten(0, (-1, 2)).unbind(1)
    second = y
    if figure.init == "low":
        x, y = lowered(x, figure.input), lowered(y, figure.input)
    a, b, c = (torch.zeros(ROUNDS, *shape, device="cpu") for shape in ((16, 8), (8, 8), (16, 8)))
    a[:, 0, 0], b[:, 0, 0] = x, 1
    if figure.operation == "multiplication":
        b[:, 0, 0] = y
        exact = x * y
    elif figure.operation == "inner product":
        a[:, 0, 1], b[:, 1, 0] = y, 1
        exact = x + y
    else:
        c[:, 0, 0] = second if figure.c0 == "FP32" else y
        exact = x + c[:, 0, 0]
    if figure.is_rounded:
        a, b = operand(a, figure.input), operand(b, figure.input)
    name = f"mma.m16n8k8.{figure.accumulator}.{figure.input}.{figure.input}"
    result = machine.multiply(name, a, b, c.to(TORCH[figure.accumulator]))
    return result[:, 0, 0].float(), exact


def difference(result: Tensor, exact: Tensor, reference: str) -> float:
    """The mean absolute difference."""
    if reference == "FP32 to FP16":
        exact = exact.half().float()
    return (result - exact).abs().double().mean().item()


def run(machines: Sequence[Machine]) -> Table:
    """The tables, with a column for each machine beside the published figures."""
    rows = []
    for figure in (*figures(), *BESIDE):
        extra = "" if figure.value is not None else ", c0 of FP32"
        row = {
            "table": figure.table,
            "types": f"{figure.input}, {figure.accumulator} sums",
            "operation": figure.operation + (extra if figure.is_rounded else ", not rounded"),
            "init": figure.init,
            "beside": figure.reference,
            "published": figure.value,
        }
        for machine in machines:
            row[machine.name] = difference(*results(machine, figure), figure.reference)
        rows.append(row)
    title = f"Mean |tensor core - float32| of {ROUNDS} rounds ({SOURCE}, A100)"
    return Table(title, rows, NOTES)
