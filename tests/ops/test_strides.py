"""Operands and results of any strides: bit by bit what contiguous copies give.

Storage is NaN wherever an operand does not cover it, and so is the buffer around every result:
reading or writing beside a tensor shows.
"""

import pytest
import torch

import tcgemm

from support import cases, reference
from support.cases import F64

SHAPES = ((70, 40, 50), (17, 33, 96), (1, 65, 9), (129, 1, 64), (64, 64, 1))


@pytest.mark.parametrize(("stride_a", "stride_b"), cases.stride_pairs())
@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_operands_of_any_strides(device, dtype, stride_a, stride_b):
    options = {"dtype": dtype, "device": device, "largest": 5}
    for m, n, k in SHAPES:
        a = cases.make(stride_a, m, k, **options)
        b = cases.make(stride_b, k, n, **options)
        reference.assert_exact(tcgemm.mm(a, b), reference.exact(a, b))


@pytest.mark.parametrize("strides", cases.OUT_STRIDES)
@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_results_of_any_strides(device, dtype, strides):
    options = {"dtype": dtype, "device": device}
    for m, n, k in (*SHAPES, (128, 64, 72)):
        a, b = cases.operands("TN", m, n, k, largest=5, **options)
        for out_dtype in {dtype, F64 if dtype == F64 else torch.float32}:
            guarded = cases.Guarded(strides, (m, n), dtype=out_dtype, device=device)
            assert tcgemm.mm(a, b, out_dtype=out_dtype, out=guarded.view) is guarded.view
            reference.assert_exact(guarded.view, reference.exact(a, b, out_dtype=out_dtype))
            assert guarded.untouched()


@pytest.mark.parametrize("strides", cases.OUT_STRIDES)
@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_epilogue_into_any_strides(device, dtype, strides):
    options = {"dtype": dtype, "device": device}
    m, n, k = 65, 41, 30
    a, b = cases.operands("NT", m, n, k, largest=3, **options)
    bias = cases.make("contiguous", n, largest=9, **options)
    c, residual = (cases.make("contiguous", m, n, largest=9, **options) for _ in range(2))
    guarded = cases.Guarded(strides, (m, n), **options)
    terms = {"bias": bias, "residual": residual, "activation": "relu", "alpha": 2.0}
    tcgemm.addmm(c, a, b, beta=-1.0, **terms, out=guarded.view)
    reference.assert_exact(guarded.view, reference.exact(a, b, c, beta=-1.0, **terms))
    assert guarded.untouched()


BATCHED = (*cases.STRIDES, *cases.BATCH_STRIDES)


@pytest.mark.parametrize("strides", BATCHED)
@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_batches_of_any_strides(device, dtype, strides):
    options = {"dtype": dtype, "device": device, "largest": 5}
    m, n, k = 20, 24, 40
    for batch in ((3,), (2, 3)):
        a = cases.make(strides, *batch, m, k, **options)
        b = cases.make("contiguous", *batch, k, n, **options)
        reference.assert_exact(tcgemm.matmul(a, b), reference.exact(a, b))
        a, b = b.mT, a.mT
        reference.assert_exact(tcgemm.matmul(a, b), reference.exact(a, b))
        a = cases.make(strides, *batch, m, k, **options)
        b = cases.make(strides, *batch, k, n, **options)
        reference.assert_exact(tcgemm.matmul(a, b), reference.exact(a, b))
        b = cases.make("transposed", k, n, **options)
        reference.assert_exact(tcgemm.matmul(a, b), reference.exact(a, b))


@pytest.mark.parametrize("strides", (*cases.OUT_STRIDES, "batch_innermost", "batch_reversed"))
@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_batched_results_of_any_strides(device, dtype, strides):
    options = {"dtype": dtype, "device": device}
    a = cases.make("contiguous", 2, 3, 20, 40, largest=5, **options)
    for b in (
        cases.make("contiguous", 2, 3, 40, 24, largest=5, **options),
        cases.make("transposed", 40, 24, largest=5, **options),
    ):
        guarded = cases.Guarded(strides, (2, 3, 20, 24), **options)
        tcgemm.matmul(a, b, out=guarded.view)
        reference.assert_exact(guarded.view, reference.exact(a, b))
        assert guarded.untouched()


@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_vectors_of_any_strides(device, dtype):
    options = {"dtype": dtype, "device": device, "largest": 5}
    for strides in ("contiguous", "offset", "step_cols", "expanded_cols"):
        row = cases.make(strides, 1, 50, **options)[0]
        matrix = cases.make("odd_pitch", 50, 33, **options)
        reference.assert_exact(tcgemm.matmul(row, matrix), reference.exact(row, matrix))
        reference.assert_exact(tcgemm.matmul(matrix.t(), row), reference.exact(matrix.t(), row))
        reference.assert_exact(tcgemm.matmul(row, row), reference.exact(row, row))
        out = tcgemm.linear(row, matrix.t())
        reference.assert_exact(out, reference.exact(row, matrix))


@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_odd_strides_of_dimensions_of_one(device, dtype):
    """torch allows any stride where a dimension has one element, and makes such tensors itself."""
    options = {"dtype": dtype, "device": device}
    values = cases.make("contiguous", 4096, largest=5, **options)
    row = values.as_strided((1, 40), (3, 1))
    column = values.as_strided((40, 1), (1, 7), 8)
    matrix = values.as_strided((40, 24), (24, 1), 64)
    one = values.as_strided((1, 1), (5, 9), 1)
    for a, b in ((row, matrix), (matrix.t(), column), (row, column), (column, row), (one, row)):
        reference.assert_exact(tcgemm.mm(a, b), reference.exact(a, b))
        batch = a[None].as_strided((1, *a.shape), (11, *a.stride()), a.storage_offset())
        reference.assert_exact(tcgemm.matmul(batch, b), reference.exact(batch, b))


@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_operands_may_share_memory(device, dtype):
    x = cases.make("contiguous", 60, 60, dtype=dtype, device=device, largest=5)
    for a, b in ((x, x), (x, x.t()), (x[:30], x[:, :40]), (x[1:], x[:, 1:])):
        reference.assert_exact(tcgemm.mm(a, b), reference.exact(a, b))
    reference.assert_exact(tcgemm.addmm(x, x, x, residual=x), reference.exact(x, x, x, None, x))
    # Overlapping windows: every row begins one element after the one before.
    windows = x.flatten().as_strided((50, 48), (1, 1))
    reference.assert_exact(tcgemm.mm(windows, windows.t()), reference.exact(windows, windows.t()))
