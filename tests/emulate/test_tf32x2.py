"""emulate.mm of float32 operands in two TF32 terms: the terms, the order of the sums, and which
tiles are computed again. gpu/test_emulate.py compares its bits with a GPU's.
"""

import pytest
import torch

from tcgemm import emulate
from tcgemm.emulate import tf32x2

from support.reference import same_bits

TF32X2, F64 = "tf32x2", "f32_f64_64x64"
inf, nan = float("inf"), float("nan")


def product(a, b, kernel=TF32X2, **options):
    return emulate.mm(a, b, precision="highest", kernel=kernel, **options)


def operands(m=140, n=70, k=96):
    generator = torch.Generator().manual_seed(m * n + k)
    return (
        torch.randn(m, k, generator=generator),
        torch.randn(n, k, generator=generator).t(),
    )


def test_terms_hold_23_bits():
    x = torch.randn(8, 64)
    high, low = tf32x2._terms(x)
    assert ((high.view(torch.int32) | low.view(torch.int32)) & 0x1FFF == 0).all()
    assert ((high - x).abs() <= 2.0**-11 * x.abs()).all()
    assert ((high.double() + low - x).abs() <= 2.0**-23 * x.abs().double()).all()


def test_ties_go_to_even():
    x = torch.tensor([1 + 2.0**-11, 1 + 3 * 2.0**-11]).repeat(16)
    high, _ = tf32x2._terms(x[None])
    assert high[0, :2].tolist() == [1.0, 1 + 2 * 2.0**-10]


@pytest.mark.parametrize("k", [1, 31, 96, 500, 2100])
def test_sums_are_as_accurate_as_float32(k):
    a, b = operands(k=k)
    error = (product(a, b).double() - a.double() @ b.double()).abs()
    assert (error <= 2.0**-24 * 8 * (a.double().abs() @ b.double().abs())).all()


@pytest.mark.parametrize("left_out", [0, 1, 2])
def test_each_product_of_terms_counts(monkeypatch, left_out):
    a, b = operands()
    terms = tf32x2._terms

    def without(x):
        high, low = terms(x)
        is_a = x.shape[0] == a.shape[0]
        if left_out == 2:
            return [high * 0, low]
        return [high, low * 0] if is_a == (left_out == 0) else [high, low]

    monkeypatch.setattr(tf32x2, "_terms", without)
    error = (product(a, b).double() - a.double() @ b.double()).abs()
    assert not (error <= 2.0**-24 * 8 * (a.double().abs() @ b.double().abs())).all()


def test_another_order_of_sums_has_other_bits(monkeypatch):
    a, b = operands(k=2100)
    expected = product(a, b)
    monkeypatch.setattr(tf32x2, "CHAIN", 8)
    assert not same_bits(product(a, b), expected)


@pytest.mark.parametrize("value", [inf, nan, 2.0**-34, 2.0**-113, 2.0**-149, 2.0**35, 3e38])
@pytest.mark.parametrize("side", ["a", "b"])
def test_tiles_that_are_computed_again(side, value):
    """Rows with a wide range, elements whose terms lose bits, and results that are not finite."""
    a, b = operands()
    clean = product(a, b)
    if side == "a":
        a[70, 3] = value
    else:
        b[3, 65] = value
    result, float64_sums = product(a, b), product(a, b, F64)
    again = (slice(64, 128), slice(None)) if side == "a" else (slice(None), slice(64, None))
    assert same_bits(result[again], float64_sums[again])
    rest = torch.ones_like(clean, dtype=torch.bool)
    rest[again] = False
    assert same_bits(result[rest], clean[rest])


def test_ranges_that_are_not_wide():
    a, b = operands()
    a[70, :8], a[70, 0] = 1.0, 2.0**-27
    b[:4, 3], b[4:8, 3] = 2.0**-40, 1.0  # only four adjacent elements are compared
    assert not same_bits(product(a, b), product(a, b, F64))
    assert not tf32x2._wide_rows(a[70:71, :8]).any()
    assert not tf32x2._wide_columns(b[:, 3:4]).any()
    a[70, 0] = 2.0**-29
    assert tf32x2._wide_rows(a[70:71, :8]).all()


def test_zeros_have_no_range():
    a, b = operands()
    a[70], b[:, 3] = 0, 0
    result = product(a, b)
    assert not result[70].any() and not result[:, 3].any()
    assert not same_bits(result, product(a, b, F64))


def test_rows_of_a_batch_are_one_dimension():
    a, b = operands(m=150)
    batched = product(a.view(3, 50, -1), b)
    assert same_bits(batched.flatten(0, 1), product(a, b))
    a[49, 3] = inf
    batched = product(a.view(3, 50, -1), b)
    assert same_bits(batched.flatten(0, 1), product(a, b))


def test_the_larger_operand_is_the_first_of_the_kernel():
    a, b = operands(m=70, n=140)
    assert same_bits(product(a, b), product(b.t(), a.t()).t())
