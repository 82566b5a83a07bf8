"""Activations of 16-bit results over their whole range, on each path of the epilogue.

One column of a holds the arguments and one row of b powers of two, so each sum is exact and the
error is the error of the activation and of the last rounding alone.
"""

import itertools
import math

import pytest
import torch

from tcgemm.ops.activations import activate

from support import cases, reference
from support.cases import BF16, F16, check_all
from support.catalog_rows import launch, operands, row_and_layout, rows

SMOOTH = tuple(word for word in cases.ACTIVATIONS if word != "relu")
# The variants of the epilogue (csrc/tile/unrolled.cuh), and the addends that the call has for them.
VARIANTS = {"activation": (), "general": (), "addend": ("residual",), "rolled": ("residual", "c")}


def arguments(count, dtype, device="cpu"):
    """From -20 to 20, and what is larger, infinite or NaN."""
    x = torch.linspace(-20, 20, count, device=device)
    x[-8:] = torch.tensor([math.inf, -math.inf, math.nan, 6e4, -6e4, 300.0, -300.0, 1e-3])
    return x.to(dtype)


def largest_ratio(name, out, x, residual=0.0):
    """The largest error over its bound. Infinite and NaN arguments give what torch gives."""
    x = x.double()
    value = activate(x, name) + residual
    bound = reference.NARROW_ACTIVATION * x.abs() + reference.HALF_SMALLEST[out.dtype]
    bound += reference.UNIT_ROUNDOFF[out.dtype] * value.abs()
    return reference.largest_ratio(out, value, bound)


@rows(lambda row: row.types.a in cases.HALVES and not row.bias_only)
def test_row_over_the_range_of_an_activation(row):
    def check(name, variant, out_dtype, step):
        rolled = variant == "rolled"
        if row.unrolled_only and rolled:
            return
        m, n, k = 2 * row.tile[0], row.tile[1] + 8, row.tile[2]
        out_strides = "odd_pitch" if rolled and step else "padded"
        a, b = operands(*row_and_layout(row, out_strides), m, n, k)
        a.zero_(), b.zero_()
        a[:, 0] = arguments(m, row.types.a, "cuda")
        b[0] = 2.0 ** -(torch.arange(n, device="cuda") % 4)
        dtype = out_dtype if variant == "addend" else BF16
        terms = {
            addend: torch.zeros(m, n, dtype=dtype, device="cuda") for addend in VARIANTS[variant]
        }
        alpha = 0.5 if variant == "general" else 1.0
        out = cases.Guarded(out_strides, (m, n), dtype=out_dtype, device="cuda")
        launch(row, a, b, out=out.view, activation=name, alpha=alpha, **terms)
        ratio = largest_ratio(name, out.view, alpha * a[:, :1].double() * b[:1].double())
        assert ratio <= 1, f"{name}: an error of {ratio:.3g} times the bound"
        assert out.untouched()

    outs = [out for out in (BF16, F16) if out in row.types.outs]
    # relu belongs to the rounding in one variant alone.
    pairs = [(name, variant) for name in SMOOTH for variant in VARIANTS] + [("relu", "activation")]
    check_all(
        (
            (name, variant, outs[(i + step) % len(outs)], step)
            for i, (name, variant) in enumerate(pairs)
            for step in (0, 1)
        ),
        check,
    )


@rows(lambda row: row.types.a in cases.HALVES and not row.bias_only)
def test_row_with_one_addend_of_each_type(row):
    """c or the residual of 16 bits, with infinite and NaN elements, and each activation."""

    def check(name, addend, dtype, out_dtype):
        m, n, k = 2 * row.tile[0], row.tile[1] + 8, row.tile[2]
        a, b = operands(*row_and_layout(row, "padded"), m, n, k)
        a.zero_(), b.zero_()
        a[:, 0] = torch.linspace(-8, 8, m, device="cuda").to(a.dtype)
        b[0] = 1
        matrix = torch.randint(-16, 17, (m, n), device="cuda").to(dtype)
        matrix[3, 1:4] = torch.tensor([math.inf, -math.inf, math.nan], dtype=dtype)
        c, residual = (0.25 * matrix.double(), 0.0) if addend == "c" else (0.0, matrix.double())
        out = cases.Guarded("padded", (m, n), dtype=out_dtype, device="cuda")
        launch(row, a, b, out=out.view, activation=name, beta=0.25, **{addend: matrix})
        ratio = largest_ratio(name, out.view, a[:, :1].double().expand(m, n) + c, residual)
        assert ratio <= 1, f"{name}, {addend}: an error of {ratio:.3g} times the bound"
        assert out.untouched()

    outs = [out for out in cases.HALVES if out in row.types.outs]
    choices = itertools.product((None, *SMOOTH), ("c", "residual"), cases.HALVES, outs)
    check_all(choices, check)


@pytest.mark.parametrize("dtype", cases.HALVES)
@pytest.mark.parametrize("name", SMOOTH)
def test_the_check_finds_a_coarse_tanh_and_a_lost_sign(name, dtype):
    x = arguments(4096, dtype)
    value = activate(x.double(), name)
    assert largest_ratio(name, value.to(dtype), x) <= 1
    logistic = value / x.double()
    coarse = x.double() * (0.5 + (logistic - 0.5) * (1 + 2.0**-11))
    assert largest_ratio(name, coarse.to(dtype), x) > 1
    assert largest_ratio(name, (x.double() * (1 - logistic)).to(dtype), x) > 1
    assert largest_ratio(name, value.to(dtype).nan_to_num(), x) > 1


@pytest.mark.parametrize("dtype", cases.HALVES)
def test_the_check_finds_a_missing_relu(dtype):
    x = arguments(4096, dtype)
    assert largest_ratio("relu", x.relu(), x) <= 1
    assert largest_ratio("relu", x, x) > 1
    assert largest_ratio("relu", x.relu().nan_to_num(), x) > 1
