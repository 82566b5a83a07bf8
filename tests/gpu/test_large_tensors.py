"""Tensors of more than 2^31 elements, whose indices need 64 bits."""

import pytest
import torch

import tcgemm

from support import cases, dtype_matrix, reference
from support.cases import (
    BF16,
    CHUNK,
    E4M3,
    F16,
    F32,
    LARGE,
    S8,
    S32,
    U8,
)
from support.cpu_model import narrowed

pytestmark = pytest.mark.gpu

NAN = float("nan")


def small(dtype, *shape):
    """Small integers, made where they are to be: -3 to 3; -1, 0 and 1 in a byte."""
    if dtype == F16:
        return torch.empty(shape, dtype=F16, device="cuda").random_(-3, 4)
    x = torch.empty(shape, dtype=U8, device="cuda").random_(0, 4)
    sign = x.bitwise_and(2)
    x.bitwise_and_(1)
    if dtype == S8:
        return x.view(S8).mul_(1 - sign.view(S8))
    one = 0x38 if dtype == E4M3 else 0x3C
    return x.mul_(one).bitwise_or_(sign.mul_(64)).view(dtype)


DTYPES = pytest.mark.parametrize(
    "dtype", (F16, pytest.param(E4M3, marks=pytest.mark.sm89), S8), ids=cases.NAMES.get
)
ARCHES = pytest.mark.parametrize("kernel", ("sm8", pytest.param("sm90a", marks=pytest.mark.sm90)))


@ARCHES
@DTYPES
@pytest.mark.parametrize("n", (2064, 2049))
def test_results_past_two_to_the_31(free_memory, n, dtype, kernel):
    """Stored by TMA and in words, or one by one where rows are odd; bytes beside a scale for each
    row."""
    m, k = 2**20 + 1, 24 if dtype == F16 else 32
    assert m * n > LARGE
    a, b = small(dtype, m, k), small(dtype, k, n)
    scale = None if dtype == F16 else 2.0 ** torch.randint(-1, 2, (m, 1)).to("cuda")
    out = cases.empty("contiguous", (m, n), dtype=dtype, device="cuda")
    torch.ops.tcgemm.scaled_mm.out(a, b, scale, kernel_name=kernel, out_dtype=dtype, out=out)
    for first in range(0, m, CHUNK):
        rows = slice(first, first + CHUNK)
        expected = a[rows].float() @ b.float()
        if scale is None:
            reference.assert_exact(out[rows], expected.to(dtype))
        else:
            reference.assert_exact(out[rows], narrowed(scale[rows] * expected, dtype))


@ARCHES
@DTYPES
@pytest.mark.parametrize("strides", ("contiguous", "odd_pitch", "transposed"))
def test_operands_past_two_to_the_31(free_memory, strides, dtype, kernel):
    """An odd pitch brings in a copy that is as large, the other major of bytes is transposed or
    copied; with blocks of scales, or sums for zero points."""
    m, n, k = 2**20 + 8, 16, 2056
    assert m * k > LARGE
    a = cases.empty(strides, (m, k), dtype=dtype, device="cuda")
    a.copy_(small(dtype, m, k))
    b = small(dtype, k, n) if dtype == F16 else small(dtype, n, k).t()
    terms, scale = {}, torch.ones(m, 1, device="cuda")
    if dtype == S8:
        terms["zero_b"] = torch.full((1, n), 3, dtype=S32, device="cuda")
    elif dtype == E4M3:
        scale = 2.0 ** torch.randint(-1, 2, (m, dtype_matrix.blocks(k))).to("cuda")
        terms["scale_a"] = scale
    out = torch.full((m, n), NAN, dtype=F32, device="cuda")
    options = {"kernel_name": kernel, "out_dtype": F32}
    torch.ops.tcgemm.scaled_mm.out(a, b, **terms, **options, out=out)
    for first in range(0, m, CHUNK):
        rows = slice(first, first + CHUNK)
        left = a[rows].float() * reference.expand_scale(scale[rows], len(a[rows]), k).float()
        expected = left @ (b.float() - (3 if dtype == S8 else 0))
        reference.assert_exact(out[rows], expected)


@ARCHES
@DTYPES
def test_strides_past_two_to_the_31(free_memory, dtype, kernel):
    """Few elements, far apart: matrices of a batch, rows of an operand, rows of a result."""
    rows, pitch, between = 520, 2**22 + 64, LARGE + 64
    assert (rows - 1) * pitch > LARGE
    buffer = cases.empty("contiguous", (rows * pitch,), dtype=dtype, device="cuda")
    b = small(dtype, 2, 64, 200) if dtype == F16 else small(dtype, 2, 200, 64).mT
    largest, wide = (4, F16) if dtype == F16 else (1, F32)
    options = {"out_dtype": wide, "kernel": kernel}
    a = cases.fill(buffer.as_strided((2, 300, 64), (between, 64, 1)), largest=largest)
    out = torch.ops.tcgemm._gemm(a, b, **options)
    reference.assert_exact(out, reference.exact(a, b, out_dtype=wide))
    a = cases.fill(buffer.as_strided((rows, 64), (pitch, 1)), largest=largest)
    out = torch.ops.tcgemm._gemm(a, b[0], **options)
    reference.assert_exact(out, reference.exact(a, b[0], out_dtype=wide))
    a = a.clone(memory_format=torch.contiguous_format)
    options["out_dtype"] = dtype
    out = buffer.as_strided((rows, 200), (pitch, 1))
    torch.ops.tcgemm._gemm.out(a, b[0], **options, out=out)
    reference.assert_exact(out, reference.exact(a, b[0], out_dtype=dtype))


@pytest.mark.parametrize("granularity", dtype_matrix.GRANULARITIES)
def test_quantize_past_two_to_the_31(free_memory, granularity):
    """As its parts, which are whole groups."""
    m, k = 2**20 + 1, 2056
    x = torch.empty(m, k, dtype=BF16, device="cuda").normal_()
    values, scale = tcgemm.quantize(x, S8, granularity)
    if granularity == "tensor":
        assert float(scale) == float(x.abs().max().float().cpu() / 127)
    for first in range(0, m, CHUNK):
        rows = slice(first, first + CHUNK)
        if granularity == "tensor":
            assert torch.equal(values[rows], (x[rows].float() / scale).round().to(S8))
            continue
        part, of_part = tcgemm.quantize(x[rows], S8, granularity)
        assert torch.equal(values[rows], part)
        lines = 128 if granularity == "128x128" else 1
        assert torch.equal(scale[first // lines : (first + CHUNK) // lines], of_part)
