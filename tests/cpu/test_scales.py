"""Scales and amax on the CPU, bit by bit: the order of the epilogue, blocks of 128."""

import math

import pytest
import torch

import tcgemm  # noqa: F401  (registers torch.ops.tcgemm)

from support.cases import BF16, E4M3, E5M2, F16, F32, F64, FP8, S8
from support.cpu_model import Types, model, rounded
from support.cpu_operands import addends, normal, operand, scales, to
from support.reference import same_bits

scaled_mm = torch.ops.tcgemm.scaled_mm
scaled_mm_amax = torch.ops.tcgemm.scaled_mm_amax
inf, nan = math.inf, math.nan


@pytest.mark.parametrize("types", [(S8, S8), (E4M3, E5M2), (F16, F16), (F32, F32)], ids=str)
@pytest.mark.parametrize("kind", ["one", "rows", "columns", "both"])
def test_scales_and_the_rest_of_the_epilogue_in_their_order(types, kind):
    m, n, k = 19, 37, 29
    a, b = operand(types[0], m, k), operand(types[1], k, n)
    scale_a = scales(m, 1) if kind in ("rows", "both") else scales(1)
    scale_b = scales(1, n) if kind in ("columns", "both") else scales()
    c, bias, residual = addends(m, n)
    alpha, beta, scale_out = torch.tensor(1 / 3), torch.tensor(-0.7), torch.tensor(0.037)
    sums = (a.long() @ b.long()).float() if types[0] is S8 else model(Types(F16, F32, F32), a, b)
    value = sums * alpha * scale_a * scale_b + c * beta + bias
    value = torch.where(value < 0, 0, value) + residual
    options = {"activation": "relu", "alpha": alpha.item(), "beta": beta.item()}
    tensors = (scale_a, scale_b, c, bias, residual, None, None, scale_out)
    for out in (F16, F32, S8) if types[0] is S8 else (F16, F32, *FP8):
        expected = to(value * scale_out, out)
        assert same_bits(scaled_mm(a, b, *tensors, out_dtype=out, **options), expected)
        transposed = torch.empty(n, m, dtype=out).mT
        torch.ops.tcgemm.scaled_mm.out(a, b, *tensors, out_dtype=out, out=transposed, **options)
        assert same_bits(transposed, expected)
        result, amax = scaled_mm_amax(a, b, *tensors, out_dtype=out, **options)
        assert same_bits(result, expected)
        assert same_bits(amax, value.abs().max())


def test_f64_takes_scales_too():
    a, b = torch.randn(9, 7, dtype=F64), torch.randn(7, 5, dtype=F64)
    scale_a, scale_b, scale_out = scales(9, 1), scales(1, 5), scales(1)
    value = scaled_mm(a, b) * scale_a.double() * scale_b.double()
    result, amax = scaled_mm_amax(a, b, scale_a, scale_b, scale_out=scale_out)
    assert same_bits(result, value * scale_out.double())
    assert same_bits(amax, value.abs().max().float())


def expanded(scale, m, n):
    """To one value an element."""
    rows, columns = scale.shape
    whole = scale.repeat_interleave(128, 0) if rows not in (1, m) else scale
    whole = whole.repeat_interleave(128, 1) if columns not in (1, n) else whole
    return whole[:m, :n].expand(m, n)


@pytest.mark.parametrize("shape", [(3, 4, 129), (2, 5, 300), (150, 3, 260), (2, 150, 260)], ids=str)
@pytest.mark.parametrize("kind", ["1x128", "128x128", "a", "b", "a and rows of b"])
def test_block_scales_multiply_the_sums_of_128(shape, kind):
    m, n, k = shape
    blocks = math.ceil(k / 128)
    a, b = normal(E4M3, m, k), normal(E5M2, k, n)
    scale_a, scale_b = scales(m, blocks), scales(blocks, n)
    if kind == "128x128":
        scale_a, scale_b = scales(math.ceil(m / 128), blocks), scales(blocks, math.ceil(n / 128))
    scale_a = scales(1, 1) if kind == "b" else scale_a
    scale_b = scales(1, n) if kind == "a and rows of b" else scales() if kind == "a" else scale_b
    wide_a = expanded(scale_a, m, blocks)
    wide_b = expanded(scale_b.view(1, 1) if scale_b.dim() == 0 else scale_b, blocks, n)
    value = torch.zeros(m, n)
    for i in range(blocks):
        part = slice(128 * i, 128 * i + 128)
        partial = model(Types(E4M3, F32, F32), a[:, part], b[part])
        value = value + wide_a[:, i, None] * wide_b[i] * partial
    alpha, bias = torch.tensor(0.3), torch.randn(n)
    assert same_bits(scaled_mm(a, b, scale_a, scale_b, out_dtype=F32), value)
    result = scaled_mm(a, b, scale_a, scale_b, bias=bias, alpha=alpha.item())
    assert same_bits(result, rounded(value * alpha + bias, BF16))
    out = torch.empty(n, m, dtype=F32).mT
    torch.ops.tcgemm.scaled_mm.out(a, b, scale_a, scale_b, out_dtype=F32, out=out)
    assert same_bits(out, value)
    step = torch.empty(*scale_a.shape, 3)[..., 1]
    assert same_bits(scaled_mm(a, b, step.copy_(scale_a), scale_b, out_dtype=F32), value)


def test_amax_is_nan_if_any_value_is_and_counts_all_products():
    a, b = torch.randn(2, 40, 30), torch.randn(30, 20)
    assert scaled_mm_amax(a, b)[1] == scaled_mm(a, b).abs().max()
    assert scaled_mm_amax(a, b, activation="relu")[1] == scaled_mm(a, b).max()
    assert scaled_mm_amax(a, b, scale_out=torch.tensor(0.0))[1] == scaled_mm(a, b).abs().max()
    largest = torch.full((1, 1), 1e9)
    assert scaled_mm_amax(a, b, residual=-largest, out_dtype=E4M3)[1] > 9e8
    for value, expected in ((-inf, inf), (-nan, nan)):
        a[1, 7, 3] = value
        assert same_bits(scaled_mm_amax(a[:, :, 3:4], b[3:4])[1], torch.tensor(expected))
    # Batches whose strides do not merge are products of their own.
    wide = torch.randn(3, 2, 5, 7).permute(1, 0, 2, 3)
    wide[0, 0, 0, 0] = 1e3  # in the first of them
    other = torch.randn(2, 3, 7, 4)
    assert scaled_mm_amax(wide, other)[1] == scaled_mm(wide, other).abs().max()
    assert scaled_mm_amax(a[:, :0], b)[1] == 0 and scaled_mm_amax(a[:, :, :0], b[:0])[1] == 0
