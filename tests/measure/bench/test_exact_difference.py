"""The error of float64 products, from sums without a rounding."""

from fractions import Fraction

import pytest
import torch

from tcgemm.measure.errors import exact_difference


def exact(out, a, b):
    """|out - a @ b| by Python's fractions."""
    rows, columns = a.tolist(), b.t().tolist()
    return [
        [
            float(abs(Fraction(value) - sum(map(Fraction.__mul__, left, right), Fraction(0))))
            for value, right in zip(values, fractions_of(columns), strict=True)
        ]
        for values, left in zip(out.tolist(), fractions_of(rows), strict=True)
    ]


def fractions_of(rows):
    return [[Fraction(value) for value in row] for row in rows]


@pytest.mark.parametrize("spread", [0, 8], ids=["normal", "of many magnitudes"])
def test_the_difference_is_exact(spread):
    generator = torch.Generator().manual_seed(spread)
    options = {"dtype": torch.float64, "generator": generator}
    a, b = torch.randn(5, 200, **options), torch.randn(200, 4, **options)
    a = a * torch.exp2(spread * torch.randn(a.shape, **options))
    out = a @ b
    found, expected = exact_difference(out, a, b), torch.tensor(exact(out, a, b), dtype=out.dtype)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    assert 0 < float(found.max()) < 1e-12 * float(a.abs().max()) * 200


def test_zeros_and_values_that_are_not_finite():
    zero, one = (torch.full((2, 2), value, dtype=torch.float64) for value in (0.0, 1.0))
    assert not exact_difference(zero, zero, one).any()
    assert exact_difference(one, one * float("nan"), one).isnan().all()
