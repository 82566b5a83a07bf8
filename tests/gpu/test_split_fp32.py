"""f32 products that keep all bits, on a GPU: what decides between three f16 products, six bf16 ones
and f64, what the kernel of tf32 terms leaves to f64, and that each element of the result is right
whatever the data.

    data                                  what has to happen
    normal                                f16, nothing recomputed
    rows far apart                        f16: each has an exponent of its own
    elements of a row far apart           bf16
    few such rows                         f16, and the flagged tiles recomputed
    Inf, NaN                              their rows and columns computed again, nothing else
    more than bf16's range in one row     computed again

An error is counted in units of 2^-24 of |a| @ |b|, element by element: see units().
"""

import pytest
import torch

import tcgemm

from support import cases
from support.cases import F32

pytestmark = [pytest.mark.gpu, pytest.mark.sm90]

F16, BF16, TF32, F64 = "f16x2", "bf16x3", "tf32x2", "f32_f64"
# Beyond a unit of rounding: what the products left out come to, where one of them is all there is.
LIMITS = {F16: 8.0, BF16: 4.0, TF32: 9.0, F64: 1.0, "": 8.0}
LAYOUTS = pytest.mark.parametrize("layout", cases.LAYOUTS)
inf, nan = float("inf"), float("nan")


def operands(layout, m, n, k, *batch):
    strides = cases.major_strides(layout)
    return tuple(
        cases.make(words, *batch, *shape, dtype=F32, device="cuda")
        for words, shape in zip(strides, ((m, k), (k, n)), strict=True)
    )


def product(a, b, kernel="", **options):
    return torch.ops.tcgemm._gemm(a, b, precision="highest", kernel=kernel or None, **options)


def units(out, a, b):
    """The largest error in units of 2^-24 |a| @ |b|; where that is 0 the result has to be 0."""
    exact = a.double() @ b.double()
    size = a.double().abs() @ b.double().abs()
    error = (out.double() - exact).abs()
    assert not error[size == 0].any()
    # Below f32's normal numbers a result is rounded to a multiple of 2^-149.
    error = (error - 2.0**-150).clamp(min=0)
    return float((error / size.clamp(min=5e-324)).max() * 2**24)


def assert_right(out, a, b, limit=LIMITS[F16]):
    assert torch.isfinite(out).all()
    assert units(out, a, b) < limit


def spread(x, exponents):
    """Elements times powers of two, evenly from 2^-exponents to 2^exponents."""
    powers = torch.randint(-exponents, exponents + 1, x.shape, device=x.device)
    return x.copy_(torch.ldexp(x, powers))


@LAYOUTS
@pytest.mark.parametrize("kernel", [F16, BF16, TF32, F64])
@pytest.mark.parametrize("k", [1, 31, 64, 65, 500, 4096])
def test_each_way_by_itself(kernel, layout, k):
    a, b = operands(layout, 261, 300, k)
    assert_right(product(a, b, kernel), a, b, LIMITS[kernel])


def test_f64_rounds_once():
    a, b = operands("NN", 130, 70, 33)
    assert torch.equal(product(a, b, F64), (a.double() @ b.double()).float())


@LAYOUTS
def test_rows_far_apart_keep_their_bits(layout):
    a, b = operands(layout, 300, 260, 512)
    a *= 2.0 ** torch.randint(-60, 60, (300, 1), device="cuda")
    b *= 2.0 ** torch.randint(-60, 60, (1, 260), device="cuda")
    for kernel in ("", F16, BF16, TF32):
        assert_right(product(a, b, kernel), a, b)


@LAYOUTS
@pytest.mark.parametrize("exponents", [10, 20, 60])
def test_elements_far_apart_keep_their_bits(layout, exponents):
    """Large against small along k: all products count, the smallest elements as well."""
    a, b = operands(layout, 300, 260, 512)
    powers = 2.0 ** torch.randint(-exponents, exponents + 1, (512,), device="cuda").double()
    a.copy_(a * powers)
    b.copy_(b / powers[:, None])
    for kernel in (
        "",
        F16,
        BF16,
        TF32,
    ):  # the filter's kernel leaves flagged tiles to the recompute pass
        assert_right(product(a, b, kernel), a, b)


@LAYOUTS
def test_independent_elements_far_apart(layout):
    a, b = (spread(x, 20) for x in operands(layout, 257, 300, 640))
    assert_right(product(a, b), a, b)


@pytest.mark.parametrize("kernel", ["", F16, BF16, TF32])
def test_the_identity_gives_the_operand_back(kernel):
    a = spread(torch.randn(512, 512, device="cuda"), 30)
    eye = torch.eye(512, device="cuda")
    assert_right(product(a, eye, kernel), a, eye)
    assert_right(product(eye, a, kernel), eye, a)


def test_few_wide_rows_are_seen_and_mended():
    """An element 2^-60 of its row's largest one, alone against a column's only element."""
    a, b = operands("TN", 512, 512, 512)
    a[77, 5] = 2.0**-60
    b[:, 300] = 0
    b[5, 300] = 3.0
    assert_right(product(a, b), a, b)
    assert product(a, b)[77, 300] == 3 * 2.0**-60
    # The other way round.
    assert product(b.t(), a.t())[300, 77] == 3 * 2.0**-60


def test_more_than_any_parts_hold():
    a, b = operands("TN", 200, 136, 256)
    below_one = torch.rand(2, 256, device="cuda") / 2 + 0.5
    a[3, :] = torch.ldexp(below_one[0], torch.arange(-128, 128, device="cuda"))
    b[:, 7] = torch.ldexp(below_one[1], torch.arange(120, -136, -1, device="cuda"))
    for kernel in ("", F16, BF16, TF32):
        out = product(a, b, kernel)
        assert_right(out[:, :7], a, b[:, :7])
        assert_right(out[3:4, 7:8], a[3:4], b[:, 7:8])


@pytest.mark.parametrize("kernel", ["", F16, BF16, TF32])
def test_subnormal_operands(kernel):
    a, b = operands("NN", 256, 192, 320)
    a *= 2.0**-130
    assert_right(product(a, b, kernel), a, b)
    b *= 2.0**100
    assert_right(product(a, b, kernel), a, b)


@pytest.mark.parametrize("kernel", ["", F16, BF16, TF32])
def test_the_ends_of_the_range(kernel):
    """Sums past f32's end become Inf, those that fit are right although parts of them do not."""
    a = torch.full((128, 128), 2.0**127, device="cuda")
    b = torch.zeros(128, 64, device="cuda")
    b[0, :] = 1.5
    b[1, 32:] = -1.5
    b[2, :] = 0.5
    b[3, :16] = 4.0
    out = product(a, b, kernel)
    assert (out[:, :16] == inf).all()
    assert (out[:, 16:32] == inf).all()  # 2^128
    assert (out[:, 32:] == 2.0**126).all()
    zeros = torch.zeros_like(a)
    assert (product(zeros, b, kernel) == 0).all()


@LAYOUTS
@pytest.mark.parametrize("kernel", ["", F16, BF16, TF32])
def test_not_finite_as_f32_has_it(layout, kernel):
    a, b = operands(layout, 300, 400, 256)
    a[5, 7] = inf
    a[200, 0] = nan
    b[7, 100] = 0.0
    b[9, 333] = -inf
    clean_a, clean_b = a.nan_to_num(0, 0, 0), b.nan_to_num(0, 0, 0)
    out, clean = product(a, b, kernel), product(clean_a, clean_b, kernel)
    expected = (a.double() @ b.double()).float()
    assert torch.equal(out.isnan(), expected.isnan())
    assert torch.equal(out.isinf(), expected.isinf())
    assert torch.equal(out[out.isinf()], expected[expected.isinf()])
    assert out[5, 100].isnan()  # Inf * 0
    assert_right(out.nan_to_num(0, 0, 0)[6:200, :333], clean_a[6:200], clean_b[:, :333])
    # Tiles without any of it equal the same tiles of the product without any of it, bit for bit.
    assert torch.equal(out[64:192, 0:320], clean[64:192, 0:320])


def test_all_of_it_not_finite():
    a, b = operands("TN", 200, 136, 256)
    a[:, 3] = nan
    assert product(a, b).isnan().all()


@LAYOUTS
def test_the_same_bits_every_time(layout):
    a, b = operands(layout, 700, 520, 1024)
    for x in (a, spread(a.clone(), 20)):
        first = product(x, b)
        for _ in range(5):
            assert torch.equal(product(x, b), first)


def test_a_graph_decides_at_each_replay():
    """No decision is made on the host: one graph serves normal data, wide data, and NaN."""
    a, b = operands("NN", 512, 512, 512)
    tcgemm.mm(a, b, precision="highest")
    out = torch.empty(512, 512, device="cuda")
    graph, _ = cases.graph_of(lambda: tcgemm.mm(a, b, precision="highest", out=out))
    normal = a.clone()
    wide, poisoned = spread(normal.clone(), 40), normal.clone()
    poisoned[100] = nan
    for x in (normal, wide, poisoned, normal):
        a.copy_(x)
        out.fill_(cases.poison(F32))
        graph.replay()
        assert torch.equal(out, product(x, b)) or x is poisoned
        finite = [i for i in range(512) if x is not poisoned or i != 100]
        assert_right(out[finite], x[finite], b)
        assert x is not poisoned or out[100].isnan().all()


def test_a_batch_with_one_bad_matrix():
    a, b = operands("TN", 130, 140, 192, 5)
    a[3, 77, 5] = inf
    spread(a[1], 25)
    for shared in (False, True):
        right = b[0] if shared else b
        out = tcgemm.matmul(a, right, precision="highest")
        for i in range(5):
            rows = [row for row in range(130) if (i, row) != (3, 77)]
            assert_right(out[i][rows], a[i][rows], right if shared else right[i])
        assert not out[3, 77].isfinite().any()


@pytest.mark.parametrize("strides", ["odd_pitch", "offset", "step_both", "transposed_odd"])
def test_any_strides(strides):
    a = cases.make(strides, 300, 517, dtype=F32, device="cuda")
    b = cases.make(strides, 517, 270, dtype=F32, device="cuda")
    for kernel in ("", F16, BF16, TF32):
        assert_right(product(a, b, kernel), a, b)
    a[11, 13] = nan
    assert product(a, b)[11].isnan().all()


def test_recomputed_tiles_have_the_epilogue_too():
    a, b = operands("TN", 256, 256, 256)
    a[9, 9] = inf
    bias, residual = torch.randn(256, device="cuda"), torch.randn(256, 256, device="cuda")
    options = {"bias": bias, "residual": residual, "alpha": -0.5, "activation": "relu"}
    options["out_dtype"] = torch.bfloat16
    out = tcgemm.mm(a, b, precision="highest", **options)
    clean = tcgemm.mm(a.nan_to_num(0, 0, 0), b, precision="highest", **options)
    assert torch.equal(out[64:], clean[64:])
    positive = b[9] < 0  # -0.5 * Inf * b
    assert (out[9][positive] == inf).all()
    expected = residual[9].bfloat16()
    assert torch.equal(out[9][~positive], expected[~positive])
