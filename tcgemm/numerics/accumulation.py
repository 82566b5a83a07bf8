"""What accumulators lose: partial sums that are added outside of the tensor cores, and long sums.

The error is |C - C64|, in units of 2^-24 |A||B|: one rounding of a float32 sum whose products all
have one sign is at most one unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tcgemm import emulate, explain
from tcgemm.measure.errors import exact_difference
from tcgemm.numerics.data import draw
from tcgemm.numerics.machine import Machine
from tcgemm.numerics.table import Curve, Table

SIDE, LONG = 32, 4096
LARGE = 4096  # rows and columns of the product whose kernel the sums of any length have
DATA = ("normal", "uniform")
PARTIAL = (None, 64, 32, 16)  # products in a partial sum; None: one sum
LENGTHS = tuple(2**power for power in range(5, 17))
SHOWN = (64, 512, 4096, 65536)


# The ways to add products that tcgemm has: the dtype of the operands, and the words of a call.
WAYS: dict[str, tuple[torch.dtype, dict[str, Any]]] = {
    "float16": (torch.float16, {}),
    "float16, float16 sums": (torch.float16, {"acc_dtype": torch.float16}),
    "bfloat16": (torch.bfloat16, {}),
    "float32, high (tf32)": (torch.float32, {"precision": "high"}),
    "float32, highest": (torch.float32, {"precision": "highest"}),
    "float8_e4m3fn, fast": (torch.float8_e4m3fn, {"precision": "fast"}),
    "float8_e4m3fn, promoted": (torch.float8_e4m3fn, {"precision": "promoted"}),
    "float64": (torch.float64, {}),
}


def operands(k: int, distribution: str, dtype: torch.dtype, side: int) -> tuple[Tensor, Tensor]:
    """a (side, k) and b (k, side)."""
    generator = torch.Generator().manual_seed(k)
    a, b = (draw((side, k), distribution, dtype, generator) for _ in range(2))
    return a, b.t()


def error(result: Tensor, a: Tensor, b: Tensor) -> tuple[float, float]:
    """The largest error and the root mean square, in units of 2^-24 |A||B|."""
    a, b = a.double(), b.double()
    if result.dtype is torch.float64:
        difference = exact_difference(result, a, b)
    else:
        difference = (result.double() - a @ b).abs()
    units = difference / (a.abs() @ b.abs()) * 2.0**24
    return units.max().item(), units.square().mean().sqrt().item()


def in_parts(machine: Machine, name: str, a: Tensor, b: Tensor, length: int | None) -> Tensor:
    """The product whose partial sums of `length` products float32 additions join."""
    if length is None:
        return machine.multiply(name, a, b, None)
    parts = machine.multiply(
        name,
        a.unflatten(1, (-1, length)).transpose(0, 1).contiguous(),
        b.unflatten(0, (-1, length)).contiguous(),
        None,
    )
    total = torch.zeros(parts.shape[1:], device="cpu")
    for part in parts:
        total = total + part.float()
    return total


def outside(machines: Sequence[Machine]) -> Table:
    """Partial sums of 16 to 64 products that are added in float32 outside of the tensor cores."""
    rows = []
    for accumulator in ("f32", "f16"):
        name = f"mma.m16n8k16.{accumulator}.f16.f16"
        for data in DATA:
            a, b = operands(LONG, data, torch.float16, SIDE)
            if accumulator == "f16" and data != "normal":
                b = b / 8  # a float16 sum ends at 65504
            for machine in machines:
                row = {"sums": accumulator, "data": data, "on": machine.name}
                for length in PARTIAL:
                    largest, mean = error(in_parts(machine, name, a, b, length), a, b)
                    row["inside" if length is None else f"parts of {length}"] = (
                        f"{largest:.3g} / {mean:.3g}"
                    )
                rows.append(row)
    title = f"float16 products, K = {LONG}: largest / root mean square error in 2^-24 |A||B|"
    notes = [
        "Tensor cores cut a sum toward zero at each instruction, so sums of one sign drift with K. "
        "Parts that begin with zero and are added outside, to nearest, drift within themselves.",
    ]
    return Table(title, rows, notes)


def kernel_of_large(k: int, dtype: torch.dtype, **options: Any) -> str:
    """The kernel of a large product of this depth. `options`: those of tcgemm.explain."""
    large = torch.empty(LARGE, k, dtype=dtype, device="meta")
    return explain(large, large.t(), **options).kernel


def long_sums(device: str = "H200") -> Table:
    """The error over K of every way of tcgemm to add on a GPU, with its curves. The kernels are
    those of large products."""
    rows, curves = [], []
    for way, (dtype, words) in WAYS.items():
        options = {**words, "device": device}
        for data in DATA:
            points = {}
            for k in LENGTHS:
                kernel = kernel_of_large(k, dtype, **options)
                a, b = operands(k, data, dtype, side=8)
                sums = emulate.mm(a, b, kernel=kernel, before_activation=True, **options)
                points[k] = error(sums, a, b)[1]
            curves.append(Curve(f"{way}, {data}", way, data != DATA[0], points))
            rows.append({"way": way, "data": data} | {f"K = {k}": points[k] for k in SHOWN})
    title = f"Root mean square error of the sums on an {device} in 2^-24 |A||B|"
    notes = [
        '"uniform" is uniform in [0, 1): all products have one sign.',
        '"high" rounds the operands to tf32; that is most of its error in short sums.',
    ]
    return Table(title, rows, notes, curves, ("K", "2^-24 |A||B|"))
