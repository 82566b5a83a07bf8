"""Tables XII to XV of Sun et al.: what one product, one sum and one accumulation lose.

An m16n8k8 instruction computes a0 * b0, or a0 + a1, or a0 + c0; all its other elements are zero.
The difference to the same in float32 on the CPU is averaged over 1000 rounds. "low" rounds the
numbers before both computations, "FP32" only for the GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from tcgemm import published
from tcgemm.emulate.instruction import TORCH
from tcgemm.numerics.stream import normal_stream
from tcgemm.numerics.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from tcgemm.numerics.machine import Machine

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
    """A mean absolute difference of tables XII to XV."""

    table: str
    input: str  # the type of a and b
    accumulator: str
    operation: str
    init: str  # "low": all numbers are rounded before both computations; "FP32": on the GPU alone
    reference: str  # "FP32", or "FP32 to FP16" where the CPU's result is rounded
    value: float | None


def figures() -> list[Figure]:
    """The published figures. A row is named by its types and its reference."""
    result = []
    for table in ("XII", "XIII", "XIV", "XV"):
        for row, cells in published.table("003", table).items():
            operand, accumulator, reference = row.split(" ", 2)
            for column, value in cells.items():
                operation, init = column.rsplit(" ", 1)
                types = operand, accumulator
                result.append(Figure(table, *types, operation, init, reference, value))
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


def _single(value: Tensor, shape: tuple[int, int], *positions: tuple[int, int]) -> Tensor:
    """Matrices of zeros, one for each round, with `value` at each of the positions."""
    matrices = torch.zeros(value.shape[0], *shape, dtype=value.dtype)
    for row, col in positions:
        matrices[:, row, col] = value
    return matrices


def results(
    machine: Machine, types: tuple[str, str], operation: str, init: str, c0: str, rounded: bool
) -> tuple[Tensor, Tensor]:
    """The machine's result and the CPU's float32 result of each round."""
    input_type, accumulator = types
    first, second = normal_stream(2 * ROUNDS).unflatten(0, (-1, 2)).unbind(1)
    if init == "low":
        x, y = lowered(first, input_type), lowered(second, input_type)
    else:
        x, y = first, second
    ones = torch.ones(ROUNDS)
    convert = operand if rounded else (lambda values, _: values)
    a = _single(convert(x, input_type), (16, 8), (0, 0))
    b = _single(convert(ones, input_type), (8, 8), (0, 0))
    c = torch.zeros(ROUNDS, 16, 8)
    if operation == "multiplication":
        b[:, 0, 0] = convert(y, input_type)
        exact = x * y
    elif operation == "inner product":
        a[:, 0, 1] = convert(y, input_type)
        b[:, 1, 0] = 1
        exact = x + y
    else:
        addend = second if c0 == "FP32" else y
        c[:, 0, 0] = addend
        exact = x + addend
    name = f"mma.m16n8k8.{accumulator}.{input_type}.{input_type}"
    result = machine.multiply(name, a, b, c.to(TORCH[accumulator]))
    return result[:, 0, 0].float(), exact


def difference(result: Tensor, exact: Tensor, reference: str) -> float:
    """The mean absolute difference."""
    if reference == "FP32 to FP16":
        exact = exact.half().float()
    return (result - exact).abs().double().mean().item()


def run(machines: Sequence[Machine]) -> Table:
    """The tables, with a column for each machine beside the published figures."""
    cases: list[tuple[Figure, str, bool, float | None]] = [
        (row, "FP32" if row.input == "bf16" else "low", True, row.value) for row in figures()
    ]
    for input_type in ("f16", "tf32"):
        figure = Figure("", input_type, "f32", "accumulation", "low", "FP32", 0.0)
        cases.append((figure, "FP32", True, None))
    figure = Figure("", "tf32", "f32", "multiplication", "FP32", "FP32", 0.0)
    cases.append((figure, "low", False, None))
    rows = []
    for figure, c0, rounded, value in cases:
        types = (figure.input, figure.accumulator)
        operation = figure.operation
        extra = "" if value is not None else ", not rounded" if not rounded else ", c0 of FP32"
        row = {
            "table": figure.table or "-",
            "types": f"{figure.input}, {figure.accumulator} sums",
            "operation": operation + extra,
            "init": figure.init,
            "beside": figure.reference,
            "published": value,
        }
        for machine in machines:
            result, exact = results(machine, types, operation, figure.init, c0, rounded)
            row[machine.name] = difference(result, exact, figure.reference)
        rows.append(row)
    title = f"Mean |tensor core - float32| of {ROUNDS} rounds ({SOURCE}, A100)"
    return Table(title, rows, NOTES)
