"""gelu, gelu_tanh and silu of 16-bit results over their whole range, on each path of the epilogue.

One column of a holds the arguments and one row of b powers of two, so each sum is exact and the
error is that of the activation and of the last rounding alone.
"""

import math

import pytest
import torch

from support import cases, reference
from support.cases import BF16, F16, each
from support.catalog_rows import asked, launch, operands, rows

SMOOTH = ("gelu", "gelu_tanh", "silu")
# Terms of the call, by the variant of the epilogue that has them (csrc/tile/unrolled.cuh).
VARIANTS = {
    "activation": {},
    "addend": {"residual": 0.0},
    "general": {"alpha": 0.5},
    "rolled": {"residual": 0.0, "c": 0.0},
}


def exact(name, x):
    """In float64, without the cancellation of 1 + erf(x) and 1 + tanh(x)."""
    x = x.double()
    if name == "gelu":
        return 0.5 * x * torch.special.erfc(-x * math.sqrt(0.5))
    if name == "gelu_tanh":
        return x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    return x * torch.sigmoid(x)


def bound(name, x, dtype):
    rounding = reference.UNIT_ROUNDOFF[dtype] * exact(name, x).abs()
    return (
        reference.NARROW_ACTIVATION * x.double().abs() + rounding + reference.HALF_SMALLEST[dtype]
    )


def arguments(count, dtype, device="cpu"):
    """From -20 to 20, and what is larger, infinite or NaN."""
    x = torch.linspace(-20, 20, count, device=device)
    x[-8:] = torch.tensor([math.inf, -math.inf, math.nan, 6e4, -6e4, 300.0, -300.0, 1e-3])
    return x.to(dtype)


def right_elements(name, out, x):
    """Which elements are right. Infinite and NaN arguments give what torch gives."""
    value = exact(name, x)
    close = (out.double() - value).abs() <= bound(name, x, out.dtype)
    special = (out.double() == value) | (out.isnan() & value.isnan())
    return torch.where(x.isfinite(), close, special)


@rows(lambda row: row.types.a in cases.HALVES and not row.bias_only)
def test_row_over_the_range_of_an_activation(row):
    def check(name, variant, out_dtype, step):
        terms = dict(VARIANTS[variant])
        rolled = variant == "rolled"
        if row.unrolled_only and rolled:
            return
        m, n, k = 2 * row.tile[0], row.tile[1] + 8, row.tile[2]
        out_strides = "odd_pitch" if rolled and step else "padded"
        a, b = operands(*asked(row, out_strides), m, n, k)
        a.zero_(), b.zero_()
        a[:, 0] = arguments(m, row.types.a, "cuda")
        b[0] = 2.0 ** -(torch.arange(n, device="cuda") % 4)
        x = terms.get("alpha", 1.0) * a[:, :1].double() * b[:1].double()
        for term in ("residual", "c"):
            if term in terms:
                dtype = out_dtype if variant == "addend" else BF16
                terms[term] = torch.zeros(m, n, dtype=dtype, device="cuda")
        out = cases.Guarded(out_strides, (m, n), dtype=out_dtype, device="cuda")
        launch(row, a, b, out=out.view, activation=name, **terms)
        right = right_elements(name, out.view, x)
        wrong = (~right).nonzero()[:4].tolist()
        assert not wrong, f"{name} of {[float(x[i, j]) for i, j in wrong]} is wrong"
        assert out.untouched()

    outs = [out for out in (BF16, F16) if out in row.types.outs]
    each(
        (
            (name, variant, outs[(i + step) % len(outs)], step)
            for i, name in enumerate(SMOOTH)
            for variant in VARIANTS
            for step in (0, 1)
        ),
        check,
    )


@pytest.mark.parametrize("dtype", cases.HALVES)
@pytest.mark.parametrize("name", SMOOTH)
def test_the_check_finds_a_coarse_tanh_and_a_lost_sign(name, dtype):
    x = arguments(4096, dtype)
    rounded = exact(name, x).to(dtype)
    assert right_elements(name, rounded, x).all()
    logistic = exact(name, x) / x.double()
    coarse = x.double() * (0.5 + (logistic - 0.5) * (1 + 2.0**-11))
    assert not right_elements(name, coarse.to(dtype), x).all()
    assert not right_elements(name, (x.double() * (1 - logistic)).to(dtype), x).all()
    assert not right_elements(name, rounded.nan_to_num(), x).all()
