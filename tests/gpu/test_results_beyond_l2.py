"""Exact results that L2 cannot hold, through each path of TMA stores."""

import pytest
import torch

import tcgemm
from tcgemm.ops import query

from support import cases
from support.cases import BF16, F16, F32
from support.reference import assert_exact, exact

pytestmark = [pytest.mark.gpu, pytest.mark.sm90]
M, N = 5000, 8200  # 82 MB of 16 bits; no multiples of a tile


def operands(layout, k, dtype):
    return cases.operands(layout, M, N, k, dtype=dtype, device="cuda", largest=3)


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("k", [64, 456])
@pytest.mark.parametrize("strides", ["contiguous", "transposed"])
def test_rows_and_columns(dtype, k, strides):
    a, b = operands("TN", k, dtype)
    out = cases.empty(strides, (M, N), dtype=dtype, device="cuda")
    tcgemm.mm(a, b, out=out)
    assert_exact(out, exact(a, b))


def test_columns_of_a_kernel_that_transposes_b():
    """It computes the transposed product, which its store warp stores."""
    a, b = operands("NN", 512, F32)
    out = torch.empty(M, N, device="cuda", dtype=BF16)
    options = {"precision": "high", "out_dtype": BF16}
    assert query.ask("explain", a, b, **options, out=out)["store_path"] == "tma_columns"
    tcgemm.mm(a, b, **options, out=out)
    assert_exact(out, exact(a, b, **options))


def test_f32():
    a, b = operands("TN", 136, BF16)
    assert_exact(tcgemm.mm(a, b, out_dtype=F32), exact(a, b, out_dtype=F32))


@pytest.mark.parametrize("operation", ["and", "xor", "pm1"])
def test_bits(operation):
    k = 520
    a, b = (torch.rand(size, k, device="cuda") > 0.5 for size in (M, N))
    bits_a, bits_b = (tcgemm.BinaryTensor.from_bool(bits) for bits in (a, b))
    both = a.float() @ b.float().t()
    differ = a.sum(1, keepdim=True) + b.sum(1) - 2 * both
    expected = {"and": both, "xor": differ, "pm1": k - 2 * differ}[operation]
    assert torch.equal(tcgemm.binary_mm(bits_a, bits_b.t(), operation), expected.int())
