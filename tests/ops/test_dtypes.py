"""Products of 8 bits, of f32 as tf32 and as bf16: shapes, layouts, functions, results, NaN and Inf.

The same tests run on the CPU and on a GPU. f16, bf16 and f64 have theirs in test_dense.py and
test_exact.py; strides, epilogues and scales of every dtype are in files of their own.
"""

import itertools

import pytest
import torch

import tcgemm

from support import cases, reference
from support.cases import E5M2, F16, F32, FP8, S32
from support.dtype_matrix import EVERY, NARROW, parameters

NAN, INF = float("nan"), float("inf")
FLOATING = parameters(lambda types: types.a in (*FP8, F32) and types.precision != "highest")
INTEGERS = parameters(lambda types: types.integer)


def check(types, a, b, **options):
    """mm is exact on whole numbers."""
    options = types.options | options
    reference.assert_exact(tcgemm.mm(a, b, **options), reference.exact(a, b, **options))


# Shapes and layouts.


@NARROW
def test_whole_numbers_at_every_edge(device, types):
    for index, (m, n, k) in enumerate(cases.SHAPES):
        layout = cases.LAYOUTS[index % 4]
        a, b = types.operands(layout, m, n, k, device=device, whole=True)
        out = types.outs[index // 2 % len(types.outs)] if index % 2 else types.widest
        check(types, a, b, out_dtype=out)


@FLOATING
def test_normal_data_in_every_layout(device, types):
    for layout, (m, n, k) in itertools.product(cases.LAYOUTS, cases.FEW_SHAPES):
        a, b = types.operands(layout, m, n, k, device=device)
        for out in types.outs[:2]:
            given = tcgemm.mm(a, b, out_dtype=out, **types.options)
            assert given.dtype == out
            reference.assert_close(given, a, b, **types.options)


@FLOATING
def test_error_is_far_below_the_bound(device, types):
    """A bound that nothing comes near would see nothing; one that is nearly reached would flake."""
    ratios = []
    for k in (64, 1500):
        a, b = types.operands("TN", 300, 200, k, device=device)
        out = tcgemm.mm(a, b, out_dtype=F32, **types.options)
        ratios.append(reference.assert_close(out, a, b, limit=0.7, **types.options))
    # Of fp8 the CPU, whose sums are f32's, loses next to nothing.
    assert max(ratios) > (1e-6 if types.fp8 else 1e-4)


@NARROW
def test_sizes_around_4096(device, types):
    for index, size in enumerate(range(4088, 4105)):
        layout = cases.LAYOUTS[index % 4]
        for m, n, k in ((size, 24 + index, 40), (23, size, 33 + index), (16 + index, 9, size)):
            a, b = types.operands(layout, m, n, k, device=device, whole=True)
            check(types, a, b)


@NARROW
def test_one_row_one_column_one_product(device, types):
    shapes = ((1, 257, 100), (300, 1, 77), (65, 129, 1), (1, 1, 1), (1, 1, 1000), (1, 65, 1))
    for layout, shape in itertools.product(cases.LAYOUTS, (*shapes, (1, 4096, 64), (4097, 1, 16))):
        a, b = types.operands(layout, *shape, device=device, whole=True)
        check(types, a, b)


@INTEGERS
def test_integers_wrap_around(device, types):
    k = 2**17 + 70
    a = torch.full((3, k), torch.iinfo(types.a).min or 255, dtype=types.a, device=device)
    b = torch.full((k, 5), torch.iinfo(types.b).min or 255, dtype=types.b, device=device)
    a[0, :9], b[:33, 1] = 1, 3
    for left, right in ((a, b), (a, b.mT.contiguous().mT), (b.mT.to(types.a), b)):
        check(types, left, right)


# Functions and batches.


@EVERY
def test_functions_agree(device, types):
    """One implementation behind all of them: the same bits whichever way a product is asked for."""
    a, b = types.operands("TN", 65, 33, 300, device=device)
    out = tcgemm.mm(a, b, **types.options)
    given = (
        tcgemm.bmm(a[None], b[None], **types.options)[0],
        tcgemm.matmul(a, b, **types.options),
        tcgemm.linear(a, b.mT, **types.options),
        torch.ops.tcgemm._gemm(a, b, **types.options),
        torch.ops.tcgemm.scaled_mm(a, b, **types.options),
    )
    c = types.addend(65, 33, out=types.outs[0], device=device)
    for other in (*given, tcgemm.addmm(c, a, b, beta=0.0, **types.options)):
        assert torch.equal(other, out)
    into = torch.empty_like(out)
    assert tcgemm.mm(a, b, out=into, **types.options) is into
    for _ in range(3):
        into.fill_(cases.poison(out.dtype))
        tcgemm.mm(a, b, out=into, **types.options)
        assert torch.equal(into, out)


@NARROW
def test_batches(device, types):
    batches = (((5,), (5,)), ((2, 3), ()), ((), (3,)), ((2, 1, 2), (3, 1)), ((4, 1), (4, 2)))
    for layout, batch in itertools.product(cases.LAYOUTS, batches):
        a, b = types.operands(layout, 33, 65, 40, device=device, batch=batch, whole=True)
        expected = reference.exact(a, b, **types.options)
        reference.assert_exact(tcgemm.matmul(a, b, **types.options), expected)
    a, b = types.operands("NN", 17, 30, 50, device=device, batch=(4,), whole=True)
    expected = reference.exact(a, b, **types.options)
    reference.assert_exact(tcgemm.bmm(a, b, **types.options), expected)
    bias = types.addend(30, out=expected.dtype, device=device)
    out = tcgemm.linear(a, b[1].mT, bias, **types.options)
    reference.assert_exact(out, reference.exact(a, b[1], None, bias, **types.options))
    for left, right in ((a, b[0, :, 3]), (a[1, 2], b), (a[1, 2], b[0, :, 3])):
        out = tcgemm.matmul(left, right, **types.options)
        reference.assert_exact(out, reference.exact(left, right, **types.options))


@NARROW
def test_more_matrices_than_a_grid_dimension_has(device, types):
    """65535 is the limit of a CUDA grid's second and third dimension."""
    a, b = types.operands("NN", 3, 4, 5, device=device, batch=(70000,), whole=True)
    out = tcgemm.bmm(a, b, **types.options)
    reference.assert_exact(out, reference.exact(a, b, **types.options))


@NARROW
def test_results_do_not_depend_on_the_neighbours(device, types):
    """An element's bits come from its row and its column alone, whatever is computed beside it."""
    a, b = types.operands("NN", 64, 64, 512, device=device)
    whole = tcgemm.mm(a, b, **types.options)
    a2, b2 = a.clone(), b.clone()
    a2[1:] = types.operands("NN", 64, 64, 512, device=device)[0][1:]
    b2[:, 1:] = cases.poison(types.b)
    assert torch.equal(tcgemm.mm(a2, b2, **types.options)[0, 0], whole[0, 0])


# Nothing to multiply.


@EVERY
def test_nothing_to_multiply(device, types):
    for m, n, k in ((0, 5, 3), (5, 0, 3), (0, 5, 0), (33, 17, 0)):
        a, b = types.operands("TN", m, n, k, device=device)
        for out in types.outs:
            zero = torch.zeros(m, n, dtype=out, device=device)
            assert torch.equal(tcgemm.mm(a, b, out_dtype=out, **types.options), zero)
            c, residual = (types.addend(m, n, out=out, device=device, turn=i) for i in range(2))
            given = {"residual": residual, "activation": "relu", "beta": 2.0}
            options = types.options | given | {"out_dtype": out}
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
        given = {"scale_a": of_a.to(device), "scale_b": of_b.to(device)}
        out, amax = tcgemm.mm(a, b, **given, **options, amax=True)
        # Zeros times a NaN are none, where there are blocks to be scaled there is no zero either.
        assert out.isnan().all() if of_a.numel() else not out.any()
        assert amax.isnan() if of_a.numel() else amax == 0


# NaN and Inf, and data that no bound of chance holds for.


def special(types, device):
    """Whole numbers with NaN and Inf where the operands have them."""
    a, b = (t.float() for t in types.operands("NN", 70, 90, 83, device=device, whole=True))
    a, b = a.clamp(-3, 3), b.clamp(-3, 3)
    a[5, 82] = b[82, 89] = NAN
    for operand, dtype, value in ((a, types.a, INF), (b, types.b, -INF)):
        operand[7, 3] = value if dtype in (E5M2, F32) else NAN
        operand[40, 33] = -value if dtype in (E5M2, F32) else 1.0
    b[33, 1] = 0.0
    return a.to(types.a), b.to(types.b)


@FLOATING
def test_nan_and_inf_spread_as_in_torch(device, types):
    """Through rows and columns, and no further; last k, row and column included."""
    a, b = special(types, device)
    expected = a.double() @ b.double()
    assert expected.isnan().any()
    if E5M2 in (types.a, types.b) or types.a == F32:
        assert expected.isinf().any()
    for layout in cases.LAYOUTS:
        stored_a, stored_b = cases.major_strides(layout)
        left = cases.empty(stored_a, a.shape, dtype=types.a, device=device).copy_(a)
        right = cases.empty(stored_b, b.shape, dtype=types.b, device=device).copy_(b)
        for out in types.outs:
            given = tcgemm.mm(left, right, out_dtype=out, **types.options)
            value = reference.narrow(expected, out).double()
            assert torch.equal(given.isnan(), value.isnan()), (layout, out)
            given = given.double().nan_to_num(nan=0.0)
            assert torch.equal(given, value.nan_to_num(nan=0.0)), (layout, out)


@FLOATING
def test_adversarial_data(device, types):
    """Sums that cancel, and magnitudes far apart: the classic bound holds for any data."""
    m, n, k = 65, 48, 300
    a, b = types.operands("NN", m, n, 2 * k, device=device)
    a[:, k:] = a[:, :k]
    b[k:] = (-b[:k].float()).to(types.b)
    options = {"classic": True, **types.options}
    reference.assert_close(tcgemm.mm(a, b, out_dtype=F32, **types.options), a, b, **options)
    a, b = types.operands("NN", m, n, k, device=device)
    a = (a.float() * torch.exp2(torch.randint(-4, 5, a.shape)).to(device)).to(types.a)
    b = (b.float() * torch.exp2(torch.randint(-4, 5, b.shape)).to(device)).to(types.b)
    for out in types.outs:
        given = tcgemm.mm(a, b, out_dtype=out, **types.options)
        reference.assert_close(given, a, b, **options)


@FLOATING
def test_every_number_of_8_bits_and_small_ones_of_f32(device, types):
    """Subnormal ones too. What lies 2^13 below the largest product of a sum would be cut off from
    fp8 sums, but here there is one product."""
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


@NARROW
def test_dtype_of_the_result(device, types):
    a, b = types.operands("TN", 16, 16, 16, device=device)
    assert tcgemm.mm(a, b, precision=types.precision).dtype == types.outs[0]
    for out in types.outs:
        assert tcgemm.mm(a, b, out_dtype=out, **types.options).dtype == out
    if not types.integer:
        with pytest.raises(RuntimeError, match=r"out_dtype is torch\.int32"):
            tcgemm.mm(a, b, out_dtype=S32, **types.options)
    if types.accumulator != F16:
        with pytest.raises(RuntimeError, match=r"acc_dtype is torch\.float16"):
            tcgemm.mm(a, b, acc_dtype=F16, precision=types.precision)
