"""Bounds of the error of sums in tensor cores, from the table of instructions.

docs/numerics/index.md derives them. Both are first-order in the roundings.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from tcgemm.testing.numerics import BLOCK, f32_tolerance

if TYPE_CHECKING:
    from torch import Tensor

    from tcgemm.emulate import Instruction

F32_UNIT = 2.0**-24
# The largest relative error of the conversion of a block's sum.
CONVERSION = {
    "FP32, toward zero": 2.0**-23,
    "14 bits, toward zero": 2.0**-13,
    "FP16, to nearest even": 2.0**-11,
}


class Sums(NamedTuple):
    """How a kernel adds the products of an element.

    Attributes:
        instruction: what it issues; None for integers and for float32 in terms.
        promoted (int): products in a partial sum that is added in float32; 0: one sum.
        terms (int): terms of a float32 operand; 1 for other operands.
        accumulator (str): "f32", "f16", "f64" or "s32".
        conversions (float): the largest relative error of a product by roundings of the operands,
            and of the sum.
    """

    instruction: Instruction | None
    promoted: int
    terms: int
    accumulator: str
    conversions: float = 0.0


def _step(instruction: Instruction) -> float:
    """The largest error of an instruction, relative to the sum of the magnitudes it adds."""
    cut = (instruction.products + 1) * 2.0**-instruction.fraction_bits
    block = cut + CONVERSION[str(instruction.rounding)]
    if instruction.method == "two halves":
        return 2 * block + F32_UNIT
    return math.ceil(instruction.stored / instruction.products) * block


def _chain(instruction: Instruction, products: int) -> float:
    return math.ceil(products / instruction.stored) * _step(instruction)


def any_data(sums: Sums, k: int) -> float:
    """r, where |C - C64| <= r |A||B| for any data without overflow and underflow.

    Kernels that add float64 products have r = K 2^-53, and integers have none. float32 operands in
    terms have the tolerance that the tests ask for. Conversions are added.
    """
    if sums.accumulator == "s32":
        return 0.0
    if sums.terms > 1:
        return f32_tolerance("cuda", k) * F32_UNIT
    if sums.accumulator == "f64" or sums.instruction is None:
        return k * 2.0**-53 + sums.conversions
    if not sums.promoted:
        return _chain(sums.instruction, k) + sums.conversions
    chains = math.ceil(k / sums.promoted)
    return _chain(sums.instruction, min(k, sums.promoted)) + chains * F32_UNIT + sums.conversions


def normal_data(sums: Sums, a: Tensor, b: Tensor) -> Tensor:
    """The bound of each element for operands with a normal distribution.

    (K/L + 2) u 4 sqrt((A*A) @ (B*B)), the bound that tests and tcgemm.compare use: errors have the
    size of the partial sums, which are far smaller than |A||B| where signs differ.
    """
    a, b = a.double(), b.double()
    k = a.shape[-1]
    if sums.terms > 1 or sums.instruction is None or sums.accumulator in ("s32", "f64"):
        return any_data(sums, k) * (a.abs() @ b.abs())
    unit = CONVERSION[str(sums.instruction.rounding)]
    products = min(sums.instruction.products, sums.instruction.stored)
    length = min(k, BLOCK) if sums.promoted else k
    factor = (math.ceil(length / products) + 2) * unit
    if sums.promoted:
        factor += (math.ceil(k / BLOCK) + 2) * F32_UNIT
    factor += sums.conversions
    return 4 * factor * ((a * a) @ (b * b)).sqrt()
