"""Bounds of the error of sums in tensor cores, from the table of instructions.

docs/numerics/index.md derives them. Both are first-order in the roundings.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tcgemm.emulate import Instruction
from tcgemm.emulate.sums import Kernel
from tcgemm.measure.errors import BLOCK, f32_tolerance
from tcgemm.numerics.formats import FORMATS

F32_UNIT = 2.0**-24
# The largest relative error of the conversion of a block's sum.
CONVERSION = {
    "FP32, toward zero": 2.0**-23,
    "14 bits, toward zero": 2.0**-13,
    "FP16, to nearest even": 2.0**-11,
}


def _step(instruction: Instruction) -> float:
    """The largest error of an instruction, relative to the sum of the magnitudes it adds."""
    cut = (instruction.products + 1) * 2.0**-instruction.fraction_bits
    block = cut + CONVERSION[str(instruction.rounding)]
    if instruction.method == "two halves":
        return 2 * block + F32_UNIT
    return math.ceil(instruction.stored / instruction.products) * block


def _chain(instruction: Instruction, products: int) -> float:
    return math.ceil(products / instruction.stored) * _step(instruction)


def _conversions(row: dict[str, Any], operand: torch.dtype) -> float:
    """The largest relative error of a product by roundings of float32 operands or of its sum."""
    if operand is not torch.float32:
        return 0.0
    # Operands are rounded to tf32 or bfloat16, or float64 sums to float32.
    is_wide = row["accumulator"] == "f64"
    return F32_UNIT if is_wide else 2 * FORMATS[row["input"]].unit_roundoff


def any_data(kernel: Kernel, operand: torch.dtype, k: int) -> float:
    """r, where |C - C64| <= r |A||B| for any data without overflow and underflow.

    Kernels that add float64 products have r = K 2^-53, and integers have none. float32 operands in
    terms have the tolerance that the tests ask for. Conversions are added.
    """
    row = kernel.row
    if row["accumulator"] == "s32":
        return 0.0
    if row["terms"] > 1:
        return f32_tolerance("cuda", k) * F32_UNIT
    conversions = _conversions(row, operand)
    if row["accumulator"] == "f64":
        return k * 2.0**-53 + conversions
    instruction = kernel.instruction()
    if not row["promoted"]:
        return _chain(instruction, k) + conversions
    return _chain(instruction, min(k, BLOCK)) + math.ceil(k / BLOCK) * F32_UNIT + conversions


def normal_data(kernel: Kernel, operand: torch.dtype, a: Tensor, b: Tensor) -> Tensor:
    """The bound of each element for operands with a normal distribution.

    (K/L + 2) u 4 sqrt((A*A) @ (B*B)), the bound that tests and tcgemm.compare use: errors have the
    size of the partial sums, which are far smaller than |A||B| where signs differ.
    """
    a, b = a.double(), b.double()
    row, k = kernel.row, a.shape[-1]
    if row["terms"] > 1 or row["accumulator"] in ("s32", "f64"):
        return any_data(kernel, operand, k) * (a.abs() @ b.abs())
    instruction = kernel.instruction()
    products = min(instruction.products, instruction.stored)
    length = min(k, BLOCK) if row["promoted"] else k
    factor = (math.ceil(length / products) + 2) * CONVERSION[str(instruction.rounding)]
    if row["promoted"]:
        factor += (math.ceil(k / BLOCK) + 2) * F32_UNIT
    factor += _conversions(row, operand)
    return 4 * factor * ((a * a) @ (b * b)).sqrt()
