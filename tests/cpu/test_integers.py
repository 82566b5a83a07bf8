"""Integer products on the CPU: exact modulo 2^32, with zero points and addends."""

import pytest
import torch

import tcgemm  # noqa: F401  (registers torch.ops.tcgemm)

from support.cases import BF16, F32, S8, S32, U8
from support.cpu_operands import (
    INT8_PAIRS,
    integers,
    wrapped,
)
from support.reference import same_bits

scaled_mm = torch.ops.tcgemm.scaled_mm


@pytest.mark.parametrize("types", INT8_PAIRS, ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 33, 255), (70, 50, 1000), (300, 9, 70)], ids=str)
def test_integer_sums_are_exact(types, shape):
    m, n, k = shape
    a, b = integers(types[0], m, k), integers(types[1], k, n)
    exact = a.long() @ b.long()
    assert torch.equal(scaled_mm(a, b), exact.to(S32))
    assert same_bits(scaled_mm(a, b, out_dtype=F32), exact.to(S32).float())
    assert same_bits(scaled_mm(a, b, out_dtype=BF16), exact.float().to(BF16))
    assert same_bits(scaled_mm(a, b, out_dtype=S8), exact.clamp(-128, 127).to(S8))


@pytest.mark.parametrize("types", INT8_PAIRS, ids=str)
def test_integer_sums_are_exact_at_the_ends_of_the_range_and_wrap_around(types):
    """Blocks of 256 products reach 2^24 - 130816; 2^17 of the largest pass 2^31."""
    low, high = (tuple(torch.iinfo(t).min for t in types), tuple(torch.iinfo(t).max for t in types))
    for k in (255, 256, 257, 2**17 + 5):
        for x, y in ((low, low), (high, high), (low, high)):
            a = torch.full((3, k), x[0], dtype=types[0])
            b = torch.full((k, 2), y[1], dtype=types[1])
            a[0, 0] = b[1, 0] = 1
            assert torch.equal(scaled_mm(a, b), wrapped(a.long() @ b.long()))


@pytest.mark.parametrize("types", INT8_PAIRS, ids=str)
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("columns", [False, True])
def test_zero_points_are_subtracted_exactly(types, rows, columns):
    m, n, k = 70, 45, 300
    a, b = integers(types[0], m, k), integers(types[1], k, n)
    zero_a = integers(S32, m, 1) if rows else integers(S32, 1, 1)
    zero_b = integers(S32, 1, n) if columns else integers(S32)
    for x, y in ((zero_a, None), (None, zero_b), (zero_a, zero_b)):
        left = a.long() - (0 if x is None else x.long())
        right = b.long() - (0 if y is None else y.long())
        sums = wrapped(left @ right)
        assert torch.equal(scaled_mm(a, b, zero_a=x, zero_b=y), sums)
        result = scaled_mm(a, b, zero_a=x, zero_b=y, out_dtype=F32)
        assert same_bits(result, sums.float())
        out = torch.empty(n, m, dtype=S32).mT
        torch.ops.tcgemm.scaled_mm.out(a, b, zero_a=x, zero_b=y, out=out)
        assert torch.equal(out, sums)


@pytest.mark.parametrize("activation", [None, "relu"])
def test_integer_results_are_computed_modulo_2_to_32(activation):
    m, n, k = 37, 41, 300
    a, b = integers(S8, m, k), integers(U8, k, n)
    c, residual = integers(S32, m, n), integers(S32, 1, n)
    for bias in (integers(S32, n), integers(S32, m, 1)):
        value = wrapped(-3 * (a.long() @ b.long()) + 70000 * c.long() + bias.long())
        value = value.clamp(min=0) if activation else value
        options = {"activation": activation, "alpha": -3.0, "beta": 70000.0}
        result = scaled_mm(a, b, c=c, bias=bias, residual=residual, **options)
        assert torch.equal(result, wrapped(value.long() + residual.long()))
