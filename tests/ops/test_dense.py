"""mm, bmm, matmul, addmm and linear on normal data: shapes, dtypes, layouts, batches, NaN and Inf.

The same tests run on the CPU and on a GPU. Epilogues (test_epilogue.py), strides (test_strides.py),
whole numbers (test_exact.py) and scales (quant/test_scales.py) have files of their own.
"""

import itertools

import pytest
import torch

import tcgemm

from support import cases, reference
from support.cases import BF16, E4M3, F16, F32, F64, FP8, HALVES, S32, check_all
from support.dtype_matrix import DEVICE_DTYPES, EVERY, parameters

NAN, INF = float("nan"), float("inf")
FLOATING = parameters(lambda types: not types.integer)
# gpu/test_split_fp32.py has all kinds of data for precision="highest" on a GPU.
ANY_DATA = parameters(
    lambda types: not types.integer, on_cuda=lambda types: types.precision != "highest"
)
NARROW_FLOATS = parameters(lambda types: types.a in (*FP8, F32) and types.precision != "highest")


def shape_id(shape):
    return "x".join(map(str, shape))


# Shapes, dtypes and layouts.


@FLOATING
def test_mm_at_every_edge(device, types):
    def check(shape, layout):
        a, b = types.operands(layout, *shape, device=device)
        out = tcgemm.mm(a, b, **types.options)
        assert out.dtype == types.outs[0]
        assert out.device == a.device
        assert out.is_contiguous()
        reference.assert_close(out, a, b, **types.options)

    check_all(itertools.product(cases.SHAPES, cases.LAYOUTS), check)


@FLOATING
def test_mm_in_every_layout_and_result(device, types):
    for layout, (m, n, k) in itertools.product(cases.LAYOUTS, cases.FEW_SHAPES):
        a, b = types.operands(layout, m, n, k, device=device)
        for out_dtype in types.outs:
            out = tcgemm.mm(a, b, out_dtype=out_dtype, **types.options)
            assert out.dtype == out_dtype
            reference.assert_close(out, a, b, **types.options)


@FLOATING
def test_error_is_far_below_the_bound(device, types):
    """A bound that nothing comes near would see nothing; one that is nearly reached would flake."""
    ratios = []
    limit = 0.5 if types.a in (*HALVES, F64) or (types.a == F32 and device == "cpu") else 0.7
    for k in (64, 1500):
        a, b = types.operands("TN", 300, 200, k, device=device)
        out = tcgemm.mm(a, b, out_dtype=types.widest, **types.options)
        ratios.append(reference.assert_close(out, a, b, limit=limit, **types.options))
    # The CPU adds fp8 products in f32 and loses next to nothing. A GPU may sum f32 in f64, and then
    # rounds as the reference does.
    if device == "cpu" or types.options.get("precision") != "highest":
        assert max(ratios) > (1e-6 if types.fp8 else 1e-4)


@ANY_DATA
def test_mm_of_adversarial_data(device, types):
    """Sums that cancel, and magnitudes far apart: the classic bound holds for any data."""
    m, n, k = 65, 48, 300
    reach = 3 if types.a == F16 else 4 if types.fp8 else 6
    cancelled = types.operands("NN", m, n, 2 * k, device=device)
    cancelled[0][:, k:] = cancelled[0][:, :k]
    nearly = 1 if types.fp8 else 1 + 2.0**-6
    cancelled[1][k:] = (-cancelled[1][:k].double() * nearly).to(types.b)
    far = tuple(
        (x.double() * torch.exp2(torch.randint(-reach, reach + 1, x.shape)).to(device)).to(x.dtype)
        for x in types.operands("NN", m, n, k, device=device)
    )
    for (a, b), out_dtype in itertools.product((cancelled, far), types.outs):
        out = tcgemm.mm(a, b, out_dtype=out_dtype, **types.options)
        reference.assert_close(out, a, b, classic=True, **types.options)


@EVERY
def test_results_do_not_depend_on_other_rows_and_columns(device, types):
    """An element's bits come from its row and its column alone, whatever is computed beside it."""
    a, b = types.operands("NN", 64, 64, 512, device=device)
    whole = tcgemm.mm(a, b, **types.options)
    a2, b2 = a.clone(), b.clone()
    a2[1:] = types.operands("NN", 64, 64, 512, device=device)[0][1:]
    b2[:, 1:] = cases.poison(types.b)
    assert torch.equal(tcgemm.mm(a2, b2, **types.options)[0, 0], whole[0, 0])
    assert torch.equal(tcgemm.mm(a, b, **types.options), whole)


@EVERY
def test_dtype_of_the_result(device, types):
    a, b = types.operands("TN", 16, 16, 16, device=device)
    assert tcgemm.mm(a, b, precision=types.precision).dtype == types.outs[0]
    for out in types.outs:
        assert tcgemm.mm(a, b, out_dtype=out, **types.options).dtype == out
    if not types.integer:
        with pytest.raises(RuntimeError, match=r"out_dtype is torch\.int32"):
            tcgemm.mm(a, b, out_dtype=S32, **types.options)
    if types.a != F16:
        with pytest.raises(RuntimeError, match=r"acc_dtype is torch\.float16"):
            tcgemm.mm(a, b, acc_dtype=F16, precision=types.precision)


# Functions and batches.


@EVERY
def test_functions_agree(device, types):
    """One implementation behind all of them: the same bits whichever way a product is asked for."""
    a, b = types.operands("TN", 65, 33, 300, device=device)
    out = tcgemm.mm(a, b, **types.options)
    results = (
        tcgemm.bmm(a[None], b[None], **types.options)[0],
        tcgemm.matmul(a, b, **types.options),
        tcgemm.linear(a, b.mT, **types.options),
        torch.ops.tcgemm._gemm(a, b, **types.options),
        torch.ops.tcgemm.scaled_mm(a, b, **types.options),
    )
    c = types.addend(65, 33, out=types.outs[0], device=device)
    for other in (*results, tcgemm.addmm(c, a, b, beta=0.0, **types.options)):
        assert torch.equal(other, out)
    into = torch.empty_like(out)
    assert tcgemm.mm(a, b, out=into, **types.options) is into
    for _ in range(3):
        into.fill_(cases.poison(out.dtype))
        tcgemm.mm(a, b, out=into, **types.options)
        assert torch.equal(into, out)


@FLOATING
def test_bmm(device, types):
    sizes = ((1, 65, 33, 40), (3, 64, 128, 64), (7, 129, 17, 100), (2, 1, 1, 300))
    for layout, (batch, m, n, k) in itertools.product(cases.LAYOUTS, sizes):
        a, b = types.operands(layout, m, n, k, device=device, batch=(batch,))
        reference.assert_close(tcgemm.bmm(a, b, **types.options), a, b, **types.options)


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
@pytest.mark.parametrize(("device", "dtype"), DEVICE_DTYPES)
def test_matmul_broadcasts_as_torch(device, dtype, shapes):
    a, b = (cases.make("contiguous", *shape, dtype=dtype, device=device) for shape in shapes)
    out = tcgemm.matmul(a, b)
    assert out.shape == torch.matmul(a.cpu().double(), b.cpu().double()).shape
    reference.assert_close(out, a, b)


@pytest.mark.parametrize(("device", "dtype"), DEVICE_DTYPES)
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
@pytest.mark.parametrize(("device", "dtype"), DEVICE_DTYPES)
def test_linear(device, dtype, shape):
    x = cases.make("contiguous", *shape, dtype=dtype, device=device)
    weight = cases.make("contiguous", 25, 40, dtype=dtype, device=device)
    bias = cases.make("contiguous", 25, dtype=dtype, device=device)
    reference.assert_close(tcgemm.linear(x, weight), x, weight.t())
    reference.assert_close(tcgemm.linear(x, weight, bias), x, weight.t(), None, bias)


@pytest.mark.parametrize(("device", "dtype"), DEVICE_DTYPES)
def test_addmm(device, dtype):
    a, b = cases.operands("NT", 65, 33, 40, dtype=dtype, device=device)
    for shape in ((65, 33), (33,), (1, 33), (65, 1), (1, 1), (1,), ()):
        c = cases.make("contiguous", *shape, dtype=dtype, device=device)
        for alpha, beta in ((1.0, 1.0), (0.5, -2.0), (-1.25, 0.0), (0.0, 1.0)):
            out = tcgemm.addmm(c, a, b, beta=beta, alpha=alpha)
            reference.assert_close(out, a, b, c, alpha=alpha, beta=beta)


@pytest.mark.parametrize(("device", "dtype"), DEVICE_DTYPES)
def test_long_and_thin(device, dtype):
    for m, n, k in ((70000, 3, 8), (2, 70001, 5), (3, 2, 40000)):
        a, b = cases.operands("NN", m, n, k, dtype=dtype, device=device)
        reference.assert_close(tcgemm.mm(a, b), a, b)


# Nothing to multiply.


@pytest.mark.parametrize(("device", "dtype"), DEVICE_DTYPES)
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


@pytest.mark.parametrize(("device", "dtype"), DEVICE_DTYPES)
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
    reference.assert_guarded(guarded, zero)
    batch = torch.empty(3, 33, 0, **options)
    reference.assert_exact(tcgemm.matmul(batch, b), zero.expand(3, -1, -1))


@EVERY
def test_nothing_to_multiply(device, types):
    for m, n, k in ((0, 5, 3), (5, 0, 3), (0, 5, 0), (33, 17, 0)):
        a, b = types.operands("TN", m, n, k, device=device)
        for out in types.outs:
            zero = torch.zeros(m, n, dtype=out, device=device)
            assert torch.equal(tcgemm.mm(a, b, out_dtype=out, **types.options), zero)
            c, residual = (types.addend(m, n, out=out, device=device, step=i) for i in range(2))
            epilogue = {"residual": residual, "activation": "relu", "beta": 2.0}
            options = types.options | epilogue | {"out_dtype": out}
            expected = reference.exact(a, b, c, **options)
            reference.assert_exact(tcgemm.addmm(c, a, b, **options), expected)
    guarded = cases.Guarded("odd_pitch", (33, 17), dtype=types.outs[0], device=device)
    tcgemm.mm(a, b, out=guarded.view, **types.options)
    assert torch.equal(guarded.view, zero.to(types.outs[0]))
    assert guarded.untouched()


@EVERY
def test_depth_zero_with_scales(device, types):
    if types.integer:
        options = types.options | {"out_dtype": F32}
    else:
        options = types.options
    a, b = types.operands("TN", 33, 17, 0, device=device)
    scales = [(torch.full((33, 1), 2.0), torch.full((), NAN))]
    if types.fp8 and types.precision != "fast":
        scales += [(torch.empty(33, 0), torch.empty(0, 1))]
    for of_a, of_b in scales:
        scale_options = {"scale_a": of_a.to(device), "scale_b": of_b.to(device)}
        out, amax = tcgemm.mm(a, b, **scale_options, **options, amax=True)
        # Zeros times a NaN are none, where there are blocks to be scaled there is no zero either.
        assert out.isnan().all() if of_a.numel() else not out.any()
        assert amax.isnan() if of_a.numel() else amax == 0


# NaN and Inf.


def special(types, device):
    """Whole numbers with NaN and Inf where the operands have them."""
    a, b = (t.double() for t in types.operands("NN", 70, 90, 83, device=device, whole=True))
    a, b = a.clamp(-3, 3), b.clamp(-3, 3)
    a[5, 82] = b[82, 89] = NAN
    for operand, dtype, value in ((a, types.a, INF), (b, types.b, -INF)):
        operand[7, 3] = value if dtype != E4M3 else NAN
        operand[40, 33] = -value if dtype != E4M3 else 1.0
    if types.a != E4M3:
        a[69, 0] = INF
    b[33, 1] = b[0, 1] = 0.0
    return a.to(types.a), b.to(types.b)


@ANY_DATA
def test_nan_and_inf_spread_as_in_torch(device, types):
    """Through rows and columns, and no further; last k, row and column included."""
    a, b = special(types, device)
    expected = a.double() @ b.double()
    assert expected.isnan().any()
    if {types.a, types.b} != {E4M3}:
        assert expected.isinf().any()
    for layout in cases.LAYOUTS:
        stored_a, stored_b = cases.major_strides(layout)
        left = cases.empty(stored_a, a.shape, dtype=types.a, device=device).copy_(a)
        right = cases.empty(stored_b, b.shape, dtype=types.b, device=device).copy_(b)
        for out in types.outs:
            result = tcgemm.mm(left, right, out_dtype=out, **types.options)
            value = reference.narrow(expected, out).double()
            assert torch.equal(result.isnan(), value.isnan()), (layout, out)
            result = result.double().nan_to_num(nan=0.0)
            assert torch.equal(result, value.nan_to_num(nan=0.0)), (layout, out)


@NARROW_FLOATS
def test_every_number_of_8_bits_and_small_ones_of_f32(device, types):
    """Subnormal ones too. fp8 sums lose addends that are 2^13 below the largest one; here a sum
    has one product."""
    for layout in (None, "transposed"):  # of a, of b
        dtype, other = (types.a, types.b) if layout is None else (types.b, types.a)
        if types.fp8:
            values = torch.arange(256, dtype=torch.uint8).view(dtype)[:, None].to(device)
        else:
            values = torch.tensor([[2.0**-126], [-(2.0**-100)], [2.0**-130]], device=device)
        one = torch.ones(1, 1, device=device).to(other)
        factors = (values, one) if layout is None else (one, values.mT)
        out = tcgemm.mm(*factors, out_dtype=F32, **types.options).reshape(-1, 1)
        assert torch.equal(out.isnan(), values.isnan())
        assert torch.equal(out.nan_to_num(nan=0.0), values.float().nan_to_num(nan=0.0))


@pytest.mark.parametrize("activation", (None, *cases.ACTIVATIONS))
@pytest.mark.parametrize(("device", "dtype"), DEVICE_DTYPES)
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


@pytest.mark.parametrize(("device", "dtype"), DEVICE_DTYPES)
def test_small_numbers_are_not_flushed(device, dtype):
    """Subnormal operands count (f16), and a subnormal f16 result is stored as such."""
    tiny = 2.0**-20 if dtype == F16 else 2.0**-60
    a = torch.full((16, 32), tiny, dtype=dtype, device=device)
    b = torch.eye(32, dtype=dtype, device=device)
    reference.assert_exact(tcgemm.mm(a, b), a)
    reference.assert_exact(tcgemm.mm(a, b, alpha=0.5), a / 2)
