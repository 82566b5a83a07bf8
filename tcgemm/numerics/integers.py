"""Sums of integers are exact: a million random products over the full range of each type."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tcgemm import emulate
from tcgemm.emulate import table
from tcgemm.emulate.instruction import TORCH
from tcgemm.numerics.machine import Machine
from tcgemm.numerics.table import Table

SIDE = 1000  # rows and columns of the results
INSTRUCTIONS = (
    "mma.m16n8k32.s32.s8.s8",
    "mma.m16n8k32.s32.s8.u8",
    "mma.m16n8k32.s32.u8.s8",
    "mma.m16n8k32.s32.u8.u8",
    "mma.m16n8k64.s32.s4.s4",
    "mma.m16n8k64.s32.u4.u4",
    "mma.m16n8k256.s32.b1.b1.and.popc",
    "mma.m16n8k256.s32.b1.b1.xor.popc",
)
RANGES = {"s8": (-128, 127), "u8": (0, 255), "b1": (0, 1)} | table.RANGES
LARGEST = 2**31 - 1


def draw(shape: tuple[int, int], input_type: str, seed: int) -> Tensor:
    """Uniform numbers of the whole range."""
    low, high = RANGES[input_type]
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, high + 1, shape, generator=generator, device="cpu").to(
        TORCH[input_type]
    )


def exact(instruction: emulate.Instruction, a: Tensor, b: Tensor) -> Tensor:
    """The sums as int64, by float64 products."""
    products = a.double() @ b.double()
    if instruction.name.endswith("xor.popc"):  # x ^ y = x + y - 2 x y
        counts = a.double().sum(1, keepdim=True) + b.double().sum(0, keepdim=True)
        products = counts - 2 * products
    return products.long()


def run(machines: Sequence[Machine]) -> Table:
    """How many of a million results are wrong, for each type."""
    names = {row.name: row for row in emulate.instructions("Ampere")}
    rows = []
    for name in INSTRUCTIONS:
        instruction = names[name]
        k = instruction.shape[2]
        a, b = draw((SIDE, k), instruction.input, 1), draw((k, SIDE), instruction.input_b, 2)
        sums = exact(instruction, a, b)
        row = {"instruction": name, "smallest": int(sums.min()), "largest": int(sums.max())}
        for machine in machines:
            result = machine.multiply(name, a, b, None)
            row[f"wrong on {machine.name}"] = int((result.long() != sums).sum())
        rows.append(row)
    title = f"Wrong results of {SIDE * SIDE:,} sums over the full range of integers"
    return Table(title, rows, [overflow()])


def overflow() -> str:
    """A sentence on what happens beyond the range of s32."""
    a = torch.ones(1, 32, dtype=torch.int8, device="cpu")
    c = torch.full((1, 1), LARGEST, dtype=torch.int32, device="cpu")
    name = INSTRUCTIONS[0]
    wrapped = emulate.mma(a, a.t(), c, instruction=name).item()
    clamped = emulate.mma(a, a.t(), c, instruction=name, satfinite=True).item()
    return (
        f"32 added to the accumulator {LARGEST} is {wrapped}: sums are modulo 2^32. With .satfinite"
        f" each instruction clamps its result: {clamped}. tcgemm's kernels do not use .satfinite."
    )
