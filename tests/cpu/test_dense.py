"""The CPU product against its definition (csrc/cpu/dense.h), bit by bit.

The model is one chain of libm's fma per element, k ascending. Every code and rounding is in
test_numbers.py, what must change no bit in test_same_bits.py, integers and scales in their files.
"""

import itertools
import math

import pytest
import torch

import tcgemm  # noqa: F401  (registers torch.ops.tcgemm)

from support import cases
from support.cases import BF16, E4M3, F16, F32, F64, FP8, S8, S32, U8
from support.cpu_model import TYPES, Types, model, rounded
from support.cpu_operands import gemm, integers, scales, to
from support.dtype_matrix import gemm_types
from support.reference import same_bits

scaled_mm = torch.ops.tcgemm.scaled_mm


CHAINS = [
    types
    for types in gemm_types("cpu")
    if not types.integer and types.precision not in ("high", "medium")
]


@pytest.mark.parametrize("types", CHAINS, ids=str)
@pytest.mark.parametrize("shape", [(5, 9, 17), (13, 35, 40), (3, 4, 523)], ids=str)
def test_the_sum_is_one_chain_of_fma_in_ascending_k(types, shape):
    """In every dtype of the result; fp8 has one chain whatever precision is asked for."""
    a, b = types.operands("TN", *shape)
    sums = model(types, a, b)
    for out, stored in itertools.product(types.outs, (b, b.contiguous())):
        assert same_bits(scaled_mm(a, stored, **types.options, out_dtype=out), to(sums, out))
    assert same_bits(scaled_mm(a, b, **types.options), to(sums, types.outs[0]))
    for precision in ("fast", "promoted") if types.fp8 else ():
        assert same_bits(scaled_mm(a, b, out_dtype=F32, precision=precision), sums)


@pytest.mark.parametrize("types", [Types(F16, F32, F32), Types(BF16, F32, F32)], ids=str)
def test_a_chain_in_another_order_is_told_apart(types):
    """The model can fail: descending k gives other bits on the same data."""
    a, b = cases.operands("NN", 8, 8, 200, dtype=types.input)
    assert not torch.equal(gemm(a, b, types=types), model(types, a.flip(1), b.flip(0)))


def test_the_f16_accumulator_is_rounded_every_16_products():
    """1 + 2^-12 sixteen times: lost in f16 if every product were rounded, kept in a chain of 16."""
    a = torch.full((1, 32), 2.0**-6, dtype=F16)
    a[0, 0] = 2.0**6
    b = torch.full((32, 1), 2.0**-6, dtype=F16)
    # 1 + 15 * 2^-12 rounds to 1 + 4 * 2^-10; 16 more make 8 * 2^-10.
    expected = torch.tensor([[1 + 2.0**-7]])
    types = Types(F16, F16, F32)
    assert same_bits(gemm(a, b, types=types), expected)
    assert same_bits(model(types, a, b), expected)
    assert not torch.equal(gemm(a, b, out_dtype=F32), expected)


@pytest.mark.parametrize("types", TYPES, ids=str)
def test_epilogue_operations_and_their_order(types):
    m, n, k = 7, 37, 29
    a, b = cases.operands("NN", m, n, k, dtype=types.input)
    wide = F64 if types.accumulator is F64 else F32
    c, residual = (cases.make("contiguous", m, n, dtype=wide) for _ in range(2))
    bias = cases.make("contiguous", n, dtype=wide if wide is F64 else types.input)
    alpha, beta = 1 / 3, -0.7

    def scalar(x):
        return torch.tensor(x, dtype=wide)

    value = model(types, a, b) * scalar(alpha) + c * scalar(beta) + bias.to(wide)
    expected = torch.where(value < 0, 0, value) + residual
    result = gemm(a, b, c, bias, residual, activation="relu", alpha=alpha, beta=beta, types=types)
    assert same_bits(result, rounded(expected, types.out))


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("name", cases.ACTIVATIONS)
def test_activations_are_right_to_a_few_ulps(name, dtype):
    """Relatively, also in the negative tail where 1 + erf(x) would cancel."""
    x = torch.cat([torch.linspace(-9, 9, 4001), torch.randn(2000) * 1e-20]).to(dtype)[:, None]
    result = gemm(x, torch.ones(1, 1, dtype=dtype), activation=name).double()
    wide = x.double()
    if name == "relu":
        exact = wide.clamp(min=0)
    elif name == "gelu":
        exact = 0.5 * wide * torch.special.erfc(-wide * math.sqrt(0.5))
    elif name == "gelu_tanh":
        exact = wide * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3))
    else:
        exact = wide * torch.sigmoid(wide)
    # An error of one ulp in the argument of exp is one of |argument| ulps in its value.
    ulps = 4 + 2 * (wide * wide).clamp(max=120)
    error = (result - exact).abs()
    assert (error <= ulps * torch.finfo(dtype).eps * exact.abs()).all()


def test_beta_zero_leaves_c_unread_and_a_zero_depth_is_a_zero_product():
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    nans = torch.full((3, 5), math.nan)
    assert same_bits(gemm(a, b, nans, beta=0.0), gemm(a, b))
    assert gemm(a, b, nans, beta=1.0).isnan().all()
    c, bias = torch.randn(3, 5), torch.randn(5)
    empty = gemm(a[:, :0], b[:0], c, bias, beta=2.0)
    assert same_bits(empty, 0.0 + 2.0 * c + bias)


def test_a_depth_of_zero():
    for dtype in (*FP8, S8, U8, F32):
        a, b, bias = torch.ones(3, 0).to(dtype), torch.ones(0, 5).to(dtype), torch.randn(5)
        result = scaled_mm(a, b, scales(3, 1), scales(1, 5), bias=bias, out_dtype=F32)
        assert torch.equal(result, bias.expand(3, 5))
    zero = integers(S32, 1, 1)
    assert scaled_mm(a.to(S8), b.to(S8), zero_a=zero, zero_b=zero).eq(0).all()
    a, b = a.to(E4M3), b.to(E4M3)
    assert scaled_mm(a, b, torch.empty(3, 0), torch.empty(0, 5)).eq(0).all()
