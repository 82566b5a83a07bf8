"""act(alpha * (a @ b) + beta * c + bias) + residual, rounded once: every term, type and shape.

Normal data and the bound of reference.py, and whole numbers, where one rounding shows bit by bit.
"""

import itertools

import pytest
import torch

import tcgemm

from support import cases, reference
from support.cases import BF16, F16, F32, F64

M, N, K = 67, 42, 96
NAN = float("nan")


def addend_types(dtype):
    return (*cases.FLOATS, F64) if dtype == F64 else cases.FLOATS


def result_type(dtype):
    return F64 if dtype == F64 else F32


@pytest.mark.parametrize("activation", cases.ACTIVATIONS)
@pytest.mark.parametrize(("device", "types"), cases.DEVICE_TYPES)
def test_activation(device, types, activation):
    options = {
        "activation": activation,
        "out_dtype": types.out,
        "acc_dtype": types.accumulator,
        "alpha": 0.25,  # so that the curved part of each activation is met
    }
    a, b = cases.operands("TN", M, N, K, dtype=types.input, device=device)
    bias = cases.make("contiguous", N, dtype=types.input, device=device)
    out = tcgemm.mm(a, b, bias=bias, **options)
    reference.assert_close(out, a, b, None, bias, **options)


@pytest.mark.parametrize("activation", (None, *cases.ACTIVATIONS))
@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_everything_at_once(device, dtype, activation):
    options = {"activation": activation, "alpha": -0.5, "beta": 1.5}
    wide = result_type(dtype)
    for m, n, k in ((M, N, K), (128, 64, 64), (1, 257, 20), (130, 1, 7)):
        a, b = cases.operands("TN", m, n, k, dtype=dtype, device=device)
        c, residual = (cases.make("contiguous", m, n, dtype=dtype, device=device) for _ in range(2))
        bias = cases.make("contiguous", n, dtype=dtype, device=device)
        terms = {"bias": bias, "residual": residual}
        for out_dtype in {dtype, wide}:
            out = tcgemm.addmm(c, a, b, **terms, **options, out_dtype=out_dtype)
            reference.assert_close(out, a, b, c, bias, residual, **options, out_dtype=out_dtype)


@pytest.mark.parametrize(
    "terms", [t for n in range(1, 4) for t in itertools.combinations(("c", "bias", "residual"), n)]
)
@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_every_choice_of_addends(device, dtype, terms):
    a, b = cases.operands("NN", M, N, K, dtype=dtype, device=device, largest=3)
    shapes = {"c": (M, N), "bias": (N,), "residual": (M, N)}
    given = {
        term: cases.make("contiguous", *shapes[term], dtype=dtype, device=device, largest=9)
        for term in terms
    }
    options = {"activation": "relu", "alpha": 2.0, "beta": -3.0, "out_dtype": result_type(dtype)}
    out = torch.ops.tcgemm._gemm(a, b, **given, **options)
    reference.assert_exact(out, reference.exact(a, b, **given, **options))


@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_types_of_addends_are_independent(device, dtype):
    a, b = cases.operands("TN", M, N, K, dtype=dtype, device=device, largest=3)
    for types in itertools.product(addend_types(dtype), repeat=3):
        c, bias, residual = (
            cases.make("contiguous", *shape, dtype=kind, device=device, largest=9)
            for shape, kind in zip(((M, N), (N,), (M, N)), types, strict=True)
        )
        options = {"alpha": 2.0, "beta": 3.0, "out_dtype": result_type(dtype)}
        out = tcgemm.addmm(c, a, b, bias=bias, residual=residual, **options)
        reference.assert_exact(out, reference.exact(a, b, c, bias, residual, **options))


@pytest.mark.parametrize("shape", ((N,), (1, N), (M, 1)), ids=str)
@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_bias_along_rows_and_columns(device, dtype, shape):
    a, b = cases.operands("TN", M, N, K, dtype=dtype, device=device, largest=3)
    for strides in ("contiguous", "offset", "step_cols" if shape[-1] > 1 else "step_rows"):
        if len(shape) == 1:
            bias = cases.make(strides, 1, *shape, dtype=dtype, device=device, largest=99)[0]
        else:
            bias = cases.make(strides, *shape, dtype=dtype, device=device, largest=99)
        for out_dtype in {dtype, result_type(dtype)}:
            out = tcgemm.mm(a, b, bias=bias, out_dtype=out_dtype)
            expected = reference.exact(a, b, None, bias, out_dtype=out_dtype)
            reference.assert_exact(out, expected)


@pytest.mark.parametrize("strides", cases.STRIDES)
@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_addends_of_any_strides(device, dtype, strides):
    options = {"dtype": dtype, "device": device, "largest": 9}
    a, b = cases.operands("TN", M, N, K, dtype=dtype, device=device, largest=3)
    c, residual = (cases.make(strides, M, N, **options) for _ in range(2))
    out_dtype = result_type(dtype)
    out = tcgemm.addmm(c, a, b, residual=residual, out_dtype=out_dtype)
    expected = reference.exact(a, b, c, None, residual, out_dtype=out_dtype)
    reference.assert_exact(out, expected)


@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_addends_broadcast(device, dtype):
    options = {"dtype": dtype, "device": device, "largest": 9}
    a = cases.make("contiguous", 3, 2, 20, K, dtype=dtype, device=device, largest=3)
    b = cases.make("contiguous", 2, K, N, dtype=dtype, device=device, largest=3)
    for shape in ((), (1,), (N,), (20, 1), (1, N), (2, 1, 1), (3, 1, 20, N), (3, 2, 20, N)):
        residual = cases.make("contiguous", *shape, **options)
        out = tcgemm.matmul(a, b, residual=residual)
        reference.assert_exact(out, reference.exact(a, b, None, None, residual))
        out = torch.ops.tcgemm._gemm(a, b, residual, beta=2.0)
        reference.assert_exact(out, reference.exact(a, b, residual, beta=2.0))
    vector = cases.make("contiguous", K, dtype=dtype, device=device, largest=3)
    residual = cases.make("contiguous", 20, **options)
    out = tcgemm.matmul(a, vector, residual=residual)
    reference.assert_exact(out, reference.exact(a, vector, None, None, residual))


@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_c_is_not_read_where_beta_is_zero(device, dtype):
    a, b = cases.operands("TN", M, N, K, dtype=dtype, device=device)
    product = tcgemm.mm(a, b)
    for value in (NAN, float("inf")):
        c = torch.full((M, N), value, dtype=dtype, device=device)
        assert torch.equal(tcgemm.addmm(c, a, b, beta=0.0), product)
        assert not torch.equal(tcgemm.addmm(c, a, b, beta=1.0), product)
    bias = cases.make("contiguous", N, dtype=dtype, device=device)
    c.fill_(NAN)
    out = tcgemm.addmm(c, a, b, beta=0.0, bias=bias, activation="silu")
    reference.assert_close(out, a, b, None, bias, activation="silu")


@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_addends_spread_nan_and_inf(device, dtype):
    options = {"dtype": dtype, "device": device}
    a, b = cases.operands("TN", M, N, K, largest=3, **options)
    bias, residual = torch.zeros(N, **options), torch.zeros(M, N, **options)
    bias[41], residual[66, 0], residual[3, 41] = NAN, float("inf"), 1.0
    for activation in (None, *cases.ACTIVATIONS):
        out = tcgemm.mm(a, b, bias=bias, residual=residual, activation=activation)
        wrong = ~out.isfinite()
        assert wrong.sum() == M + 1
        assert out[:, 41].isnan().all()
        assert out[66, 0] == float("inf")


@pytest.mark.parametrize("device", cases.DEVICES)
def test_rounded_once(device):
    """An epilogue on a rounded product would lose what the sum needs."""
    k = 2049
    a = torch.ones(3, k, dtype=F16, device=device)
    b = torch.ones(k, 5, dtype=F16, device=device)
    c = torch.full((3, 5), -2048.0, dtype=F16, device=device)
    # 2049 is no f16: 2048 after a rounding in between.
    assert torch.equal(tcgemm.addmm(c, a, b), torch.ones_like(c))
    assert torch.equal(tcgemm.mm(a, b, residual=c), torch.ones_like(c))
    assert torch.equal(tcgemm.mm(a, b, bias=c[0], activation="relu"), torch.ones_like(c))
    assert torch.equal(tcgemm.mm(a, b, alpha=0.5), torch.full_like(c, 1024.0))
    assert torch.equal(tcgemm.mm(a, b, out_dtype=F32), torch.full_like(c, k, dtype=F32))
    assert torch.equal(tcgemm.mm(a, b, out_dtype=BF16), torch.full_like(c, 2048, dtype=BF16))


@pytest.mark.parametrize("device", cases.DEVICES)
def test_order_of_operations(device):
    """relu stands after c and bias and before the residual; alpha does not scale the addends."""
    one = torch.ones(1, 1, dtype=F16, device=device)
    options = {"alpha": 3.0, "beta": 5.0, "activation": "relu"}
    out = tcgemm.addmm(-one, one, one, bias=-one[0], residual=-one, **options)
    assert out.item() == -1.0
    out = tcgemm.addmm(one, one, one, bias=-one[0], residual=-one, **options)
    assert out.item() == 6.0


@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_scalars_of_every_size(device, dtype):
    a, b = cases.operands("NN", 33, 40, 64, dtype=dtype, device=device)
    c = cases.make("contiguous", 33, 40, dtype=dtype, device=device)
    for alpha, beta in ((1e-3, 1e3), (-1.0, -1.0), (1 / 3, 2 / 3), (0.0, 0.1), (1.0, 0.0)):
        options = {"alpha": alpha, "beta": beta, "out_dtype": result_type(dtype)}
        out = tcgemm.addmm(c, a, b, **options)
        reference.assert_close(out, a, b, c, **options)


@pytest.mark.parametrize("device", cases.DEVICES)
def test_alpha_zero_still_multiplies(device):
    """0 * NaN is NaN: alpha is a factor like any other, and a broken operand cannot hide."""
    a, b = cases.operands("TN", 9, 5, 8, dtype=F16, device=device)
    a[4, 4] = NAN
    out = tcgemm.mm(a, b, alpha=0.0)
    assert out[4].isnan().all()
    assert out.isnan().sum() == 5
