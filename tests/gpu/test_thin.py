"""The thin kernels: many rows, few columns and a short k.

Faults, and the tests that find them:

    k or a column beside the matrix is read      NaN behind the operands
    rows of a in another order of k than b       whole numbers, of every k up to 64
    vectors of rows that do not begin a vector   every pitch, and addresses of one element more
    a tile of a CTA is left out, or twice        more tiles than CTAs
    columns are stored in the order of lanes     results with an epilogue, and without
"""

import itertools

import pytest
import torch

import tcgemm
from tcgemm import emulate

from support import cases, reference
from support.cases import F32, HALVES, check_all
from support.catalog_rows import built_rows, launch, parametrized
from support.reference import same_bits

THIN = pytest.mark.parametrize(
    "row", parametrized(row for row in built_rows() if row.mainloop == "thin")
)
SIZES = ((1, 1), (3, 3), (8, 16), (5, 9), (17, 40), (32, 32), (31, 63), (3, 64), (64, 3), (64, 64))
ROWS = (1, 63, 1000, 64 * 1500 + 5)


def fitting(row):
    """The columns and k that the kernel takes."""
    return [(n, k) for n, k in SIZES if n <= row.tile[1]]


def whole(strides, *shape, dtype):
    return cases.make(strides, *shape, dtype=dtype, device="cuda", largest=4)


@THIN
def test_row_is_exact(row):
    """All strides of the operands and of the result."""
    a_strides = ("contiguous", "padded", "odd_pitch", "transposed", "transposed_padded")
    outs = ("contiguous", "odd_pitch", "transposed", "padded")

    def check(m, size, strides, out_strides):
        n, k = size
        a = whole(strides, m, k, dtype=row.types.a)
        b = whole(a_strides[(n + k) % 5], k, n, dtype=row.types.b)
        guarded = cases.Guarded(out_strides, (m, n), dtype=row.types.outs[0], device="cuda")
        launch(row, a, b, out=guarded.view, direct=False)
        reference.assert_guarded(guarded, reference.exact(a, b, **row.types.options))

    pairs = [(strides, outs[i % 4]) for i, strides in enumerate(a_strides)]
    cases_ = itertools.product(ROWS, fitting(row), pairs)
    check_all([(m, size, *pair) for m, size, pair in cases_], check)


@THIN
def test_every_k_and_every_address(row):
    """What lies behind a row, and behind b, is NaN."""
    size = row.types.a.itemsize
    for k in range(1, 65):
        for shift in range(16 // size):
            memory = torch.full((200 * (k + 9),), float("nan"), device="cuda").to(row.types.a)
            a = memory.as_strided((150, k), (k + 8, 1), shift)
            a.copy_(whole("contiguous", 150, k, dtype=row.types.a))
            b = torch.full((k + 8, 40), float("nan"), device="cuda").to(row.types.b)[:k, :24]
            b.copy_(whole("contiguous", k, 24, dtype=row.types.b))
            out = torch.empty(150, 24, dtype=row.types.outs[0], device="cuda")
            launch(row, a, b, out=out, direct=False)
            assert torch.equal(out, reference.exact(a, b, **row.types.options)), (k, shift)


@THIN
def test_the_epilogue(row):
    def check(size, activation, out_dtype):
        n, k = size
        m = 3000
        a = whole("contiguous", m, k, dtype=row.types.a)
        b = whole("contiguous", k, n, dtype=row.types.b)
        options = {"activation": activation, "alpha": 0.5, "beta": -0.25}
        options["bias"] = whole("contiguous", 1, n, dtype=F32)[0]
        options["c"] = whole("padded", m, n, dtype=row.types.a)
        options["residual"] = whole("contiguous", m, n, dtype=row.types.a)
        out = torch.empty(m, n, dtype=out_dtype, device="cuda")
        launch(row, a, b, out=out, direct=False, **options)
        expected = reference.exact(a, b, **options, **row.types.options, out_dtype=out_dtype)
        assert torch.equal(out, expected)

    outs = dict.fromkeys((row.types.outs[0], row.types.widest))
    check_all(itertools.product(fitting(row), (None, "relu"), outs), check)


@THIN
def test_bits_are_those_of_the_emulator(row):
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the emulator has Hopper's arithmetic for these kernels")
    for (n, k), m in itertools.product(fitting(row), (40, 64 * 1200)):
        a = torch.randn(m, k, device="cuda").to(row.types.a)
        b = torch.randn(k, n, device="cuda").to(row.types.b)
        for out_dtype in dict.fromkeys((row.types.outs[0], row.types.widest)):
            out = torch.empty(m, n, dtype=out_dtype, device="cuda")
            launch(row, a, b, out=out, direct=False)
            options = row.types.options | {"out_dtype": out_dtype, "kernel": row.name}
            rows = slice(0, 40)
            expected = emulate.mm(a[rows].cpu(), b.cpu(), **options, device="H200")
            assert same_bits(out[rows].cpu(), expected), (n, k, m, out_dtype)


@pytest.mark.gpu
@pytest.mark.sm90
@pytest.mark.parametrize("dtype", [*HALVES, F32])
def test_planned_products_and_gradients(dtype):
    """In both orientations; the bits do not depend on the epilogue."""
    for n, k in ((3, 3), (20, 40), (32, 32)):
        a = torch.randn(1 << 17, k, device="cuda").to(dtype).requires_grad_()
        b = torch.randn(k, n, device="cuda").to(dtype).requires_grad_()
        assert tcgemm.explain(a, b).kernel.endswith("_thin")
        out = tcgemm.mm(a, b)
        assert same_bits(tcgemm.mm(a, b, activation="relu"), out.relu())
        other = tcgemm.mm(b.t(), a.t())
        assert torch.equal(other.t(), out) or dtype is F32
        exact = a.detach().double() @ b.detach().double()
        rtol, atol = (1e-2, 1e-1) if dtype in HALVES else (1e-5, 1e-5)
        torch.testing.assert_close(out.double(), exact, rtol=rtol, atol=atol)
        g = torch.randn_like(out)
        out.backward(g)
        grad_a = g.double() @ b.detach().double().t()
        torch.testing.assert_close(a.grad.double(), grad_a, rtol=rtol, atol=atol)
        with tcgemm.batch_invariant():
            assert not tcgemm.explain(a, b).kernel.endswith("_thin")


@pytest.mark.gpu
@pytest.mark.sm90
def test_nan_and_infinity_stay_in_their_rows():
    a = torch.ones(1 << 15, 6, device="cuda")
    a[7, 2], a[9, 5] = float("nan"), float("inf")
    out = tcgemm.mm(a, torch.ones(6, 5, device="cuda"))
    assert out[7].isnan().all() and out[9].isinf().all()
    assert (torch.cat((out[:7], out[8:9], out[10:])) == 6).all()
