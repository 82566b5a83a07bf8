"""f32 products by the kernel that makes two TF32 terms: clusters, slices of k, edges, epilogues,
and the mask of the tiles that are computed again. test_split_fp32.py has the kinds of data.
"""

import pytest
import torch

import tcgemm

from support import cases
from support.cases import F32
from support.reference import same_bits

pytestmark = [pytest.mark.gpu, pytest.mark.sm90]

WIDE, NARROW = "sm90a_f32_f32_128x64x32_w2_s6_{}_tf32x2", "sm90a_f32_f32_64x64x32_w1_s8_{}_tf32x2"
DIVISIONS = ("", "@1", "@2", "@4", "/2c", "/3c", "/4c", "/8c")
inf, nan = float("inf"), float("nan")


def product(a, b, kernel="tf32x2", **options):
    options |= {"precision": "highest", "kernel": kernel}
    if "out" not in options:
        return torch.ops.tcgemm._gemm(a, b, **options)
    torch.ops.tcgemm._gemm.out(a, b, **options)
    return options["out"]


def operands(m, n, k, layout="TN"):
    a = (
        torch.randn(m, k, device="cuda")
        if layout[1] == "N"
        else torch.randn(k, m, device="cuda").t()
    )
    b = (
        torch.randn(n, k, device="cuda").t()
        if layout[0] == "T"
        else torch.randn(k, n, device="cuda")
    )
    return a, b


def assert_right(out, a, b, limit=4.0):
    exact, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    assert ((out.double() - exact).abs() <= limit * 2.0**-24 * size).all()


@pytest.mark.parametrize("division", DIVISIONS)
@pytest.mark.parametrize("row", [WIDE, NARROW])
@pytest.mark.parametrize(("layout", "kernel_layout"), [("TN", "tn"), ("TT", "tt"), ("NN", "tt")])
def test_every_division(layout, kernel_layout, row, division):
    m, n = (72, 260) if layout == "NN" else (260, 72)
    for k in (1024, 1056, 1572):
        a, b = operands(m, n, k, layout)
        assert_right(product(a, b, row.format(kernel_layout) + division), a, b)


@pytest.mark.parametrize("size", [(1, 1), (1, 4096), (4096, 1), (63, 65), (65, 63), (129, 200)])
def test_edges(size):
    for k in (1, 4, 31, 32, 33, 260):
        a, b = operands(*size, k)
        assert_right(product(a, b), a, b, 8.0)


def test_more_tiles_than_multiprocessors():
    a, b = operands(3000, 1500, 320)
    for row in (WIDE, NARROW):
        assert_right(product(a, b, row.format("tn")), a, b)


@pytest.mark.parametrize("shared", [False, True])
def test_batches(shared):
    a, b = torch.randn(5, 100, 288, device="cuda"), torch.randn(5, 288, 70, device="cuda")
    b = b[:1].expand(5, -1, -1) if shared else b
    a[3, 7, 9] = nan
    out = product(a, b)
    assert out[3, 7].isnan().all()
    a[3, 7, 9] = 0
    keep = torch.ones(5, 100, dtype=torch.bool, device="cuda")
    keep[3, 7] = False
    exact = a.double() @ b.double()
    size = a.double().abs() @ b.double().abs()
    assert ((out - exact).abs() <= 4 * 2.0**-24 * size)[keep].all()


@pytest.mark.parametrize("division", ["@1", "/2c"])
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("out_dtype", [torch.float32, torch.bfloat16])
def test_epilogues_of_tiles_that_are_computed_again(out_dtype, columns, division):
    a, b = operands(200, 128, 512)
    options = {
        "bias": torch.randn(128, device="cuda"),
        "residual": torch.randn(200, 128, device="cuda"),
        "alpha": 0.5,
        "activation": "relu",
        "out_dtype": out_dtype,
    }
    out = torch.empty(200, 128, dtype=out_dtype, device="cuda")
    if columns:
        out = torch.empty(128, 200, dtype=out_dtype, device="cuda").t()
    kernel = WIDE.format("tn") + division
    clean = product(a, b, kernel, **options)
    z = 0.5 * (a.double() @ b.double()) + options["bias"]
    expected = (z.relu() + options["residual"]).to(out_dtype)
    torch.testing.assert_close(clean, expected, rtol=2.0**-7, atol=1e-3)
    a[70, 3] = inf
    result = product(a, b, kernel, out=out, **options)
    assert same_bits(result[:64], clean[:64]) and same_bits(result[128:], clean[128:])
    rest = [row for row in range(64, 128) if row != 70]
    torch.testing.assert_close(result[rest], expected[rest], rtol=2.0**-7, atol=1e-3)
    assert (result[70][b[3] > 0] == inf).all()


@pytest.mark.parametrize("division", DIVISIONS[1:])
def test_all_of_the_mask_is_written(division):
    """Whatever the workspace had before."""
    a, b = operands(260, 72, 1056)
    expected = product(a, b, WIDE.format("tn") + division)
    a[10, 700] = 2.0**-50  # in the second half of k
    again = product(a, b, WIDE.format("tn") + division)
    for value in (0, -1):
        memory = torch.full((2**20,), value, dtype=torch.int32, device="cuda")
        del memory
        result = product(a, b, WIDE.format("tn") + division)
        assert same_bits(result, again)
    assert same_bits(again[64:], expected[64:])
    float64_sums = (a.double() @ b.double()).float()
    assert same_bits(again[:64], float64_sums[:64])
    assert not same_bits(expected[:64], float64_sums[:64])


def test_a_result_beyond_float32_is_computed_again():
    """A sum of products that overflow on the way."""
    a, b = torch.full((64, 256), 2.0**100, device="cuda"), torch.ones(256, 64, device="cuda")
    b *= 2.0**27
    b[128:] *= -1
    b[0] += 2.0**20
    assert (product(a, b) == 2.0**120).all()


def test_the_planner_takes_it_for_few_rows():
    x, w = torch.randn(64, 4096, device="cuda"), torch.randn(4096, 4096, device="cuda")
    assert "tf32x2" in tcgemm.explain(x, w.t(), precision="highest").kernel
    out = tcgemm.mm(x, w.t(), precision="highest")
    assert_right(out, x, w.t(), 2.0)
    errors = (out.double() - x.double() @ w.t().double()).abs()
    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    torch_errors = ((x @ w.t()).double() - x.double() @ w.t().double()).abs()
    torch.backends.cuda.matmul.allow_tf32 = allowed
    assert errors.max() <= torch_errors.max() and errors.mean() <= torch_errors.mean()
    graph, result = cases.graph_of(lambda: tcgemm.mm(x, w.t(), precision="highest"))
    for value in (nan, 0.0):
        x[5, 5] = value
        graph.replay()
        assert bool(result[5].isnan().all()) == (value != value)
        assert result[torch.arange(64, device="cuda") != 5].isfinite().all()


def test_memory_is_small():
    """No terms lie in memory."""
    x, w = torch.randn(64, 4096, device="cuda"), torch.randn(8192, 4096, device="cuda", dtype=F32)
    tcgemm.mm(x, w.t(), precision="highest")
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    out = tcgemm.mm(x, w.t(), precision="highest")
    assert torch.cuda.max_memory_allocated() - before <= out.numel() * 4 + 2**16
