"""The sums of GEMV kernels, whose warps divide k by blocks of 128 bytes."""

import functools

import pytest
import torch

from tcgemm import emulate, info
from tcgemm.emulate.instruction import TORCH

ROWS = [
    row
    for row in info.catalog()
    if row["gemv"] and row["accumulator"] != "s32" and not row["weight_bits"]
]
PRECISIONS = {"tf32": "high", "f32": "highest"}
EACH_ROW = pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])


def operands(row, m, n, k):
    a = torch.randn(m, k, dtype=torch.float64).to(TORCH[row["input"]])
    b = torch.randn(n, k, dtype=torch.float64).to(TORCH[row["input_b"]])
    return a, b.t()


def mm(row, a, b):
    options = {"precision": PRECISIONS.get(row["input"]), "device": "H200", "kernel": row["name"]}
    dtype = torch.float64 if row["input"] == "f64" else torch.float32
    return emulate.mm(a, b, out_dtype=dtype, **options)


@EACH_ROW
def test_the_sums_of_warps_are_added_in_order(row):
    if row["input"] == "f32":
        pytest.skip("its sums are rounded after the addition alone")
    depth, warps = row["tile"][2], row["threads"] // 32
    cluster = 1 if row["tile"][0] == 8 else 2
    k = (3 * warps * cluster + 5) * depth - 3
    a, b = operands(row, 5, 7, k)

    def of_warp(warp):
        """The product where the other warps have zeros."""
        mask = torch.arange(k) // depth % (warps * cluster) == warp
        return mm(row, a.where(mask, torch.zeros((), dtype=a.dtype)), b)

    ctas = [range(rank * warps, (rank + 1) * warps) for rank in range(cluster)]
    of_ctas = [functools.reduce(torch.add, map(of_warp, cta)) for cta in ctas]
    assert torch.equal(mm(row, a, b), functools.reduce(torch.add, of_ctas))


def test_float64_of_a_block_is_added_by_elements_of_each_lane():
    """A lane has two elements in each half of a block; an instruction takes one of each lane."""
    (row,) = (row for row in ROWS if row["name"].startswith("sm90a_f64_f64_8x"))
    a, b = operands(row, 4, 4, 16)
    order = [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15]
    options = {"instruction": "mma.m8n8k4.f64.f64.f64", "arch": "Hopper"}
    assert torch.equal(mm(row, a, b), emulate.mma(a[:, order], b[order], None, **options))
    assert not torch.equal(mm(row, a, b), emulate.mma(a, b, None, **options))


@EACH_ROW
def test_the_product_is_right(row):
    a, b = operands(row, 3, 5, 700)
    exact = a.double() @ b.double()
    largest = {"tf32": 0.2, "f64": 1e-12}.get(row["input"], 1e-3)
    assert (mm(row, a, b).double() - exact).abs().max() < largest
