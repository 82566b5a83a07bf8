"""mm, bmm, matmul, addmm and linear on normal data: shapes, types, layouts, batches, NaN and Inf.

The same tests run on the CPU and on a GPU. The epilogue has its own file (test_epilogue.py), so
have strides (test_strides.py) and whole numbers (test_exact.py).
"""

import pytest
import torch

import tcgemm

from support import cases, reference
from support.cases import BF16, F16, F32, F64

NAN, INF = float("nan"), float("inf")


def shape_id(shape):
    return "x".join(map(str, shape))


# Shapes, types and layouts.


@pytest.mark.parametrize("shape", cases.SHAPES, ids=shape_id)
@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_mm_at_every_edge(device, dtype, shape):
    m, n, k = shape
    for layout in cases.LAYOUTS:
        a, b = cases.operands(layout, m, n, k, dtype=dtype, device=device)
        out = tcgemm.mm(a, b)
        assert out.dtype == dtype
        assert out.device == a.device
        assert out.is_contiguous()
        reference.assert_close(out, a, b)


@pytest.mark.parametrize("layout", cases.LAYOUTS)
@pytest.mark.parametrize(("device", "types"), cases.DEVICE_TYPES)
def test_mm_in_every_type(device, types, layout):
    options = {"out_dtype": types.out, "acc_dtype": types.accumulator}
    for m, n, k in cases.FEW_SHAPES:
        a, b = cases.operands(layout, m, n, k, dtype=types.input, device=device)
        out = tcgemm.mm(a, b, **options)
        assert out.dtype == types.out
        reference.assert_close(out, a, b, **options)


@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_error_is_far_below_the_bound(device, dtype):
    """A bound that nothing comes near would see nothing; one that is nearly reached would flake."""
    a, b = cases.operands("TN", 300, 200, 1500, dtype=dtype, device=device)
    out_dtype = F64 if dtype == F64 else F32
    ratio = reference.assert_close(tcgemm.mm(a, b, out_dtype=out_dtype), a, b, limit=0.5)
    assert ratio > 1e-4


@pytest.mark.parametrize(("device", "types"), cases.DEVICE_TYPES)
def test_mm_of_adversarial_data(device, types):
    """Sums that cancel, and magnitudes far apart: the classic bound holds for any data."""
    options = {"out_dtype": types.out, "acc_dtype": types.accumulator}
    m, n, k = 65, 48, 300
    a, b = cases.operands("NN", m, n, 2 * k, dtype=types.input, device=device)
    a[:, k:] = a[:, :k]
    b[k:] = -b[:k] * (1 + 2.0**-6)
    reference.assert_close(tcgemm.mm(a, b, **options), a, b, classic=True, **options)
    a, b = cases.operands("NN", m, n, k, dtype=types.input, device=device)
    reach = 3 if types.input == F16 else 6
    a *= torch.exp2(torch.randint(-reach, reach + 1, a.shape).to(a))
    b *= torch.exp2(torch.randint(-reach, reach + 1, b.shape).to(b))
    reference.assert_close(tcgemm.mm(a, b, **options), a, b, classic=True, **options)


@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_results_do_not_depend_on_the_neighbours(device, dtype):
    """An element's bits come from its row and its column alone, whatever is computed beside it."""
    a, b = cases.operands("NN", 64, 64, 512, dtype=dtype, device=device)
    whole = tcgemm.mm(a, b)
    a2, b2 = a.clone(), b.clone()
    a2[1:] = cases.make("contiguous", 63, 512, dtype=dtype, device=device)
    b2[:, 1:] = NAN
    assert torch.equal(tcgemm.mm(a2, b2)[0, 0], whole[0, 0])
    assert torch.equal(tcgemm.mm(a, b), whole)


# Batches.


@pytest.mark.parametrize("layout", cases.LAYOUTS)
@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_bmm(device, dtype, layout):
    for batch, m, n, k in ((1, 65, 33, 40), (3, 64, 128, 64), (7, 129, 17, 100), (2, 1, 1, 300)):
        a, b = cases.operands(layout, m, n, k, dtype=dtype, device=device, batch=(batch,))
        reference.assert_close(tcgemm.bmm(a, b), a, b)


BROADCASTS = (
    ((40,), (40,)),
    ((33, 40), (40,)),
    ((40,), (40, 17)),
    ((5, 33, 40), (40,)),
    ((40,), (5, 40, 17)),
    ((33, 40), (40, 17)),
    ((5, 33, 40), (40, 17)),
    ((33, 40), (5, 40, 17)),
    ((5, 33, 40), (5, 40, 17)),
    ((5, 33, 40), (1, 40, 17)),
    ((1, 33, 40), (5, 40, 17)),
    ((2, 3, 33, 40), (40, 17)),
    ((2, 1, 33, 40), (3, 40, 17)),
    ((2, 1, 33, 40), (1, 3, 40, 17)),
    ((2, 3, 1, 5, 9, 16), (4, 5, 16, 8)),
    ((1, 1, 1, 40), (1, 1, 40, 1)),
    ((3, 1, 40), (3, 40, 1)),
)


@pytest.mark.parametrize("shapes", BROADCASTS, ids=lambda shapes: "@".join(map(shape_id, shapes)))
@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_matmul_broadcasts_as_torch(device, dtype, shapes):
    a, b = (cases.make("contiguous", *shape, dtype=dtype, device=device) for shape in shapes)
    out = tcgemm.matmul(a, b)
    assert out.shape == torch.matmul(a.cpu().double(), b.cpu().double()).shape
    reference.assert_close(out, a, b)


@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_matmul_with_a_bias_in_every_place(device, dtype):
    a = cases.make("contiguous", 2, 3, 9, 24, dtype=dtype, device=device)
    b = cases.make("contiguous", 3, 24, 17, dtype=dtype, device=device)
    for shape in ((17,), (1, 17), (9, 1), (3, 1, 17), (2, 1, 9, 1), (1, 1, 1, 17)):
        bias = cases.make("contiguous", *shape, dtype=dtype, device=device)
        reference.assert_close(tcgemm.matmul(a, b, bias=bias), a, b, None, bias)
    row, column = a[0, 0, 0], b[0, :, 0]
    bias = cases.make("contiguous", 17, dtype=dtype, device=device)
    reference.assert_close(tcgemm.matmul(row, b, bias=bias), row, b, None, bias)
    bias = cases.make("contiguous", 9, 1, dtype=dtype, device=device)
    reference.assert_close(tcgemm.matmul(a, column, bias=bias), a, column, None, bias[:, 0])


@pytest.mark.parametrize("shape", ((40,), (1, 40), (33, 40), (4, 33, 40), (2, 3, 4, 40)))
@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_linear(device, dtype, shape):
    x = cases.make("contiguous", *shape, dtype=dtype, device=device)
    weight = cases.make("contiguous", 25, 40, dtype=dtype, device=device)
    bias = cases.make("contiguous", 25, dtype=dtype, device=device)
    reference.assert_close(tcgemm.linear(x, weight), x, weight.t())
    reference.assert_close(tcgemm.linear(x, weight, bias), x, weight.t(), None, bias)


@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_addmm(device, dtype):
    a, b = cases.operands("NT", 65, 33, 40, dtype=dtype, device=device)
    for shape in ((65, 33), (33,), (1, 33), (65, 1), (1, 1), (1,), ()):
        c = cases.make("contiguous", *shape, dtype=dtype, device=device)
        for alpha, beta in ((1.0, 1.0), (0.5, -2.0), (-1.25, 0.0), (0.0, 1.0)):
            out = tcgemm.addmm(c, a, b, beta=beta, alpha=alpha)
            reference.assert_close(out, a, b, c, alpha=alpha, beta=beta)


@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_operators_agree(device, dtype):
    """One implementation behind all of them: the same bits whichever way a product is asked for."""
    a, b = cases.operands("TN", 65, 33, 100, dtype=dtype, device=device)
    out = tcgemm.mm(a, b)
    assert torch.equal(tcgemm.bmm(a[None], b[None])[0], out)
    assert torch.equal(tcgemm.matmul(a, b), out)
    assert torch.equal(tcgemm.linear(a, b.t()), out)
    assert torch.equal(tcgemm.addmm(out, a, b, beta=0.0), out)
    assert torch.equal(torch.ops.tcgemm._gemm(a, b), out)


@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_more_matrices_than_a_grid_dimension_has(device, dtype):
    """65535 is the limit of a CUDA grid's second and third dimension."""
    batch = 70000
    a, b = cases.operands("NN", 3, 4, 5, dtype=dtype, device=device, batch=(batch,), largest=4)
    reference.assert_exact(tcgemm.bmm(a, b), reference.exact(a, b))
    a, b = cases.operands("TN", 1, 1, 8, dtype=dtype, device=device, batch=(batch,), largest=4)
    reference.assert_exact(tcgemm.bmm(a, b), reference.exact(a, b))


@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_long_and_thin(device, dtype):
    for m, n, k in ((70000, 3, 8), (2, 70001, 5), (3, 2, 40000)):
        a, b = cases.operands("NN", m, n, k, dtype=dtype, device=device)
        reference.assert_close(tcgemm.mm(a, b), a, b)


# Nothing to multiply.


@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_empty_results(device, dtype):
    options = {"dtype": dtype, "device": device}
    for m, n, k in ((0, 5, 3), (5, 0, 3), (0, 0, 0), (0, 5, 0), (5, 0, 0)):
        a, b = torch.empty(m, k, **options), torch.empty(k, n, **options)
        bias = torch.empty(n, **options)
        for out in (tcgemm.mm(a, b), tcgemm.mm(a, b, bias=bias), tcgemm.linear(a, b.t())):
            assert out.shape == (m, n)
            assert out.dtype == dtype
        out = torch.empty(m, n, **options)
        assert tcgemm.mm(a, b, out=out) is out
    for shape_a, shape_b in (
        ((0, 4, 5), (0, 5, 6)),
        ((0, 4, 5), (5, 6)),
        ((2, 0, 4, 5), (5, 6)),
        ((0, 1, 4, 5), (1, 3, 5, 6)),
    ):
        a, b = torch.empty(shape_a, **options), torch.empty(shape_b, **options)
        assert tcgemm.matmul(a, b).shape == torch.matmul(a, b).shape


@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_depth_zero_is_the_epilogue_of_zero(device, dtype):
    options = {"dtype": dtype, "device": device}
    a, b = torch.empty(33, 0, **options), torch.empty(0, 17, **options)
    zero = torch.zeros(33, 17, **options)
    reference.assert_exact(tcgemm.mm(a, b), zero)
    c = cases.make("contiguous", 33, 17, largest=8, **options)
    bias = cases.make("contiguous", 17, largest=8, **options)
    residual = cases.make("contiguous", 33, 17, largest=8, **options)
    reference.assert_exact(tcgemm.addmm(c, a, b, beta=2.0), 2 * c)
    out = tcgemm.addmm(c, a, b, bias=bias, residual=residual, activation="relu")
    reference.assert_exact(out, torch.relu(c + bias) + residual)
    guarded = cases.Guarded("padded", (33, 17), **options)
    tcgemm.mm(a, b, out=guarded.view)
    reference.assert_exact(guarded.view, zero)
    assert guarded.untouched()
    batch = torch.empty(3, 33, 0, **options)
    reference.assert_exact(tcgemm.matmul(batch, b), zero.expand(3, -1, -1))


# NaN and Inf.


@pytest.mark.parametrize("layout", cases.LAYOUTS)
@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_nan_and_inf_spread_as_in_torch(device, dtype, layout):
    """Through rows and columns, and no further; last k, row and column included."""
    a, b = cases.operands(layout, 70, 90, 83, dtype=dtype, device=device, largest=3)
    a[5, 82] = NAN
    a[69, 0] = INF
    a[7, 3] = -INF
    b[82, 89] = NAN
    b[40, 33] = INF
    b[0, 1] = 0.0
    expected = a.double() @ b.double()
    assert expected.isnan().any()
    assert expected.isinf().any()
    out = tcgemm.mm(a, b).double()
    assert torch.equal(out.isnan(), expected.isnan())
    assert torch.equal(out.nan_to_num(nan=0.0), expected.to(dtype).double().nan_to_num(nan=0.0))


@pytest.mark.parametrize("activation", (None, *cases.ACTIVATIONS))
@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_activations_of_nan_and_inf(device, dtype, activation):
    options = {"dtype": dtype, "device": device}
    values = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 100.0, -100.0, 3e4, -3e4]
    a = torch.tensor([[v] for v in values], **options)
    b = torch.ones(1, 1, **options)
    out = tcgemm.mm(a, b, activation=activation)
    value, bound = reference.evaluate(a, b, activation=activation)
    # torch's gelu of -Inf is NaN (Inf * 0) on some versions; the limit, 0, is as good.
    special = a.isinf() & (value.isnan() | out.isnan())
    value = torch.where(special, out.double(), value)
    assert reference.largest_ratio(out, value, bound) <= 1
    assert out[0, 0].isnan()
    assert out[1, 0] == INF


@pytest.mark.parametrize("device", cases.DEVICES)
def test_results_too_large_for_f16_are_infinite(device):
    a = torch.full((9, 64), 100.0, dtype=F16, device=device)
    a[0] = -100.0
    out = tcgemm.mm(a, a[1:].t())
    assert torch.equal(out[1:], torch.full_like(out[1:], INF))
    assert torch.equal(out[0], torch.full_like(out[0], -INF))
    wide = tcgemm.mm(a, a[1:].t(), out_dtype=F32)
    assert torch.equal(wide[1:], torch.full_like(wide[1:], 640000.0))
    half = tcgemm.mm(a, a[1:].t(), out_dtype=BF16)
    assert torch.equal(half, wide.to(BF16))


@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_small_numbers_are_not_flushed(device, dtype):
    """Subnormal operands count (f16), and a subnormal f16 result is stored as such."""
    tiny = 2.0**-20 if dtype == F16 else 2.0**-60
    a = torch.full((16, 32), tiny, dtype=dtype, device=device)
    b = torch.eye(32, dtype=dtype, device=device)
    reference.assert_exact(tcgemm.mm(a, b), a)
    reference.assert_exact(tcgemm.mm(a, b, alpha=0.5), a / 2)
