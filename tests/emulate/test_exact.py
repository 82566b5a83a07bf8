"""The emulator equals the rule in exact fractions, on random small cases of every instruction.

The reference here shares nothing with csrc/emulate/: it works on values, not on bits.
"""

import math
from fractions import Fraction

import pytest
import torch

import tcgemm
from tcgemm import emulate
from tcgemm.numerics.integers import RANGES

from support import subbyte
from support.reference import same_bits

TORCH = emulate.instruction.TORCH
LOWEST = {"f16": -14, "bf16": -126, "tf32": -126, "e4m3": -6, "e5m2": -14, "f32": -126}
ROWS = emulate.instructions()


def exponent(value, lowest):
    """The exponent of a number in its format; a subnormal number has the lowest one."""
    return max(math.frexp(value)[1] - 1, lowest)


def cut(value, unit):
    """The multiple of `unit` next to the value, toward zero."""
    return Fraction(math.trunc(value / unit)) * unit


def converted(value, mma):
    """A block's sum as the accumulator holds it."""
    if value == 0:
        return Fraction(0)
    top = math.floor(math.log2(abs(value)))
    top += (abs(value) >= Fraction(2) ** (top + 1)) - (abs(value) < Fraction(2) ** top)
    if mma.rounding == "FP16, to nearest even":
        unit = Fraction(2) ** (max(top, -14) - 10)
        return Fraction(round(value / unit)) * unit  # Python rounds halves to even
    bits = 13 if mma.rounding == "14 bits, toward zero" else 23
    return cut(value, Fraction(2) ** (max(top, -126) - bits))


def block(c, products, mma, lowest_c):
    """c plus products, each a pair of numbers with their exponents."""
    terms = [(Fraction(x) * Fraction(y), ex + ey) for (x, ex), (y, ey) in products]
    if c != 0:
        terms.append((Fraction(c), exponent(float(c), lowest_c)))
    terms = [(value, e) for value, e in terms if value != 0]
    if not terms:
        return Fraction(0)
    largest = max(e for _, e in terms)
    if mma.lowest_exponent is not None:
        largest = max(largest, mma.lowest_exponent)
    unit = Fraction(2) ** (largest - mma.fraction_bits)
    return converted(sum(cut(value, unit) for value, _ in terms), mma)


def nearest(value, dtype):
    """The float of a dtype that is nearest to a fraction of at most 53 bits."""
    assert Fraction(float(value)) == value
    return Fraction(torch.tensor(float(value), dtype=torch.float64).to(dtype).item())


def expected(mma, a, b, c):
    """One element of the result: a and b are lists of the stored operands, as floats."""
    widened = mma.method == "two halves"
    lowest_a, lowest_b = (LOWEST["f16" if widened else name] for name in (mma.input, mma.input_b))
    numbers = [
        ((x, exponent(x, lowest_a)), (y, exponent(y, lowest_b))) for x, y in zip(a, b, strict=True)
    ]
    lowest_c = LOWEST[mma.accumulator]
    total = Fraction(c)
    for first in range(0, len(a), mma.stored):
        step = numbers[first : first + mma.stored]
        if widened:
            halves = [[p for i, p in enumerate(step) if i & 2 == half] for half in (0, 2)]
            partial = Fraction(0)
            for half in halves:
                partial = block(partial, half, mma, lowest_c)
            total = nearest(total + partial, TORCH[mma.accumulator])
            continue
        for i in range(0, len(step), mma.products):
            total = block(total, step[i : i + mma.products], mma, lowest_c)
    return total


def drawn(shape, dtype, spread):
    x = torch.randn(shape, dtype=torch.float64) * 2.0 ** torch.randint(-spread, spread + 1, shape)
    return x.to(dtype)


def operands(mma, spread):
    """Two rows, three columns and two instructions along k, with zeros among the elements."""
    m, n, k = 2, 3, 2 * mma.shape[2]
    columns = 2 * mma.stored
    a = drawn((m, columns), TORCH[mma.input], spread)
    b = drawn((k, n), TORCH[mma.input_b], spread)
    a[0, ::5] = 0
    c = drawn((m, n), TORCH[mma.accumulator], spread)
    if "tf32" in (mma.input, mma.input_b):
        a, b = (x.view(torch.int32).bitwise_and(~0x1FFF).view(torch.float32) for x in (a, b))
    return a, b, c


def pick_metadata(mma, a):
    """Positions 1 and 3 of each group of four, or position 1 of each group of two."""
    if not mma.is_sparse:
        return None, range(a.shape[1])
    byte = 0b01010101 if mma.input == "tf32" else 0b11011101
    metadata = torch.full((a.shape[0], a.shape[1] // mma.pair // 4), byte, dtype=torch.uint8)
    pairs = range(mma.pair, 2 * a.shape[1], 2 * mma.pair)  # where a pair or an element begins
    return metadata, [first + i for first in pairs for i in range(mma.pair)]


FLOATS = [row for row in ROWS if row.method in ("blocks", "two halves")]


@pytest.mark.parametrize("mma", FLOATS, ids=lambda row: f"{row.arch}-{row.name}")
@pytest.mark.parametrize("spread", [0, 6])
def test_equals_the_rule_in_fractions(mma, spread):
    a, b, c = operands(mma, spread)
    metadata, columns = pick_metadata(mma, a)
    result = emulate.mma(a, b, c, instruction=mma.name, arch=mma.arch, metadata=metadata)
    values_a, values_b, values_c = a.double().tolist(), b.double().tolist(), c.double().tolist()
    for row in range(a.shape[0]):
        for col in range(b.shape[1]):
            column = [values_b[k][col] for k in columns]
            exact = expected(mma, values_a[row], column, values_c[row][col])
            assert Fraction(result[row, col].item()) == exact, (row, col)


INTEGERS = [row for row in ROWS if row.accumulator == "s32"]


def integers(shape, input_type):
    low, high = RANGES[input_type]
    return torch.randint(low, high + 1, shape).to(TORCH[input_type])


@pytest.mark.parametrize("mma", INTEGERS, ids=lambda row: f"{row.arch}-{row.name}")
def test_integers_are_exact(mma):
    k = 3 * mma.shape[2]
    a = integers((4, 3 * mma.stored), mma.input)
    b = integers((k, 5), mma.input_b)
    c = torch.randint(-(2**31), 2**31, (4, 5)).int()
    metadata, columns = pick_metadata(mma, a)
    result = emulate.mma(a, b, c, instruction=mma.name, arch=mma.arch, metadata=metadata)
    left, right = a.long().unsqueeze(-1), b.long()[list(columns)]
    terms = left ^ right if mma.name.endswith("xor.popc") else left * right
    exact = terms.sum(1) + c.long()
    assert torch.equal(result, exact.int())  # a conversion to int32 wraps
    if mma.input == "b1":
        return
    saturated = emulate.mma(
        a[:, : mma.stored],
        b[: mma.shape[2]],
        c,
        instruction=mma.name,
        arch=mma.arch,
        metadata=None if metadata is None else metadata[:, : metadata.shape[1] // 3],
        satfinite=True,
    )
    exact = terms[:, : mma.stored].sum(1) + c.long()
    assert torch.equal(saturated, exact.clamp(-(2**31), 2**31 - 1).int())


@pytest.mark.parametrize("mma", [row for row in ROWS if row.method == "FMA chain"], ids=str)
def test_float64_is_a_chain_of_fmas(mma):
    a, b = torch.randn(2, 16, dtype=torch.float64), torch.randn(16, 3, dtype=torch.float64)
    c = torch.randn(2, 3, dtype=torch.float64)
    result = emulate.mma(a, b, c, instruction=mma.name, arch=mma.arch)
    for row in range(2):
        for col in range(3):
            total = Fraction(c[row, col].item())
            for k in range(16):
                total += Fraction(a[row, k].item()) * Fraction(b[k, col].item())
                total = Fraction(float(total))  # Python rounds a fraction to nearest even
            assert Fraction(result[row, col].item()) == total


def test_order_of_k_matters_between_instructions_only():
    row = "wgmma.m64nNk16.f32.f16.f16"
    a, b = torch.randn(8, 64).half(), torch.randn(64, 8).half()
    first = emulate.mma(a, b, instruction=row)
    order = torch.cat([torch.randperm(16) + start for start in range(0, 64, 16)])
    assert same_bits(emulate.mma(a[:, order], b[order], instruction=row), first)
    permutation = torch.randperm(64)
    assert not same_bits(emulate.mma(a[:, permutation], b[permutation], instruction=row), first)


def test_sums_of_int4_are_those_of_the_cpu():
    """Whichever kernel computes them: int4 itself on an A100, int8 on an H200."""
    a, b = subbyte.int4(33, 130), subbyte.int4(20, 130, signed=False).t()
    options = {"bias": torch.arange(20, dtype=torch.int32), "activation": "relu", "alpha": 3.0}
    for device in ("A100", "H200"):
        result = emulate.mm(a, b, **options, device=device)
        assert torch.equal(result, tcgemm.mm(a, b, **options))
    with pytest.raises(NotImplementedError, match=r"^a is a BinaryTensor, whose products count ex"):
        emulate.mm(subbyte.bits(4, 8), subbyte.bits(4, 8).t())
