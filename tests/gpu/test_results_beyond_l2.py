"""Exact results that L2 cannot hold, through each path of TMA stores."""

import pytest
import torch

import tcgemm
from tcgemm.ops import query

from support.cases import BF16, F16, F32

pytestmark = [pytest.mark.gpu, pytest.mark.sm90]
M, N = 5000, 8200  # 82 MB of 16 bits; no multiples of a tile


def small(*shape, dtype):
    return torch.randint(-3, 4, shape, device="cuda").to(dtype)


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("k", [64, 456])
@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_rows_and_columns(dtype, k, layout):
    a, b = small(M, k, dtype=dtype), small(N, k, dtype=dtype).t()
    out = torch.empty(M, N, device="cuda", dtype=dtype)
    if layout == "columns":
        out = torch.empty(N, M, device="cuda", dtype=dtype).t()
    tcgemm.mm(a, b, out=out)
    assert torch.equal(out, (a.float() @ b.float()).to(dtype))


def test_columns_of_a_kernel_that_transposes_b():
    """It computes the transposed product, which its store warp stores."""
    a, b = small(M, 512, dtype=F32), small(512, N, dtype=F32)
    out = torch.empty(M, N, device="cuda", dtype=BF16)
    options = {"precision": "high", "out_dtype": BF16, "out": out}
    assert query.ask("explain", a, b, **options)["store_path"] == "tma_columns"
    tcgemm.mm(a, b, **options)
    assert torch.equal(out, (a @ b).to(BF16))


def test_f32():
    a, b = small(M, 136, dtype=BF16), small(N, 136, dtype=BF16).t()
    assert torch.equal(tcgemm.mm(a, b, out_dtype=F32), a.float() @ b.float())


@pytest.mark.parametrize("operation", ["and", "xor", "pm1"])
def test_bits(operation):
    k = 520
    a, b = (torch.rand(size, k, device="cuda") > 0.5 for size in (M, N))
    packed_a, packed_b = (tcgemm.BinaryTensor.from_bool(bits) for bits in (a, b))
    both = a.float() @ b.float().t()
    differ = a.sum(1, keepdim=True) + b.sum(1) - 2 * both
    expected = {"and": both, "xor": differ, "pm1": k - 2 * differ}[operation]
    assert torch.equal(tcgemm.binary_mm(packed_a, packed_b.t(), operation), expected.int())
