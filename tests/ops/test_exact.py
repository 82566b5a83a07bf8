"""Whole numbers, whose products and sums are exact: there is one right result, bit by bit.

Each element of a or b that is lost, read twice, shifted or multiplied with the wrong partner
changes a sum by at least 1, so nothing that a rounding bound would forgive gets through.
"""

import itertools

import pytest
import torch

import tcgemm
from tcgemm.ops.operators import MATMUL, PLAIN

from support import cases, reference
from support.cases import F16, F32, F64, FLOATS, check_all
from support.dtype_matrix import DEVICE_DTYPES, EVERY, parameters

INTEGERS = parameters(lambda types: types.integer)


def check(types, a, b, **options):
    """mm is exact on whole numbers."""
    options = types.options | options
    reference.assert_exact(tcgemm.mm(a, b, **options), reference.exact(a, b, **options))


@EVERY
def test_mm(device, types):
    arguments = []
    for index, shape in enumerate(cases.SHAPES):
        if types.accumulator == F16 and shape[2] > 2048:
            continue  # no sum of so many is exact
        rotated = types.outs[index // 2 % len(types.outs)] if index % 2 else types.widest
        outs = [out for out in types.outs if out in FLOATS and types.a in FLOATS]
        for out in dict.fromkeys((rotated, *outs)):
            arguments.append((cases.LAYOUTS[index % 4], shape, out))

    def exact(layout, shape, out):
        a, b = types.operands(layout, *shape, device=device, whole=True)
        check(types, a, b, out_dtype=out)

    check_all(arguments, exact)


@EVERY
def test_sizes_around_4096(device, types):
    for index, size in enumerate(range(4088, 4105)):
        layout = cases.LAYOUTS[index % 4]
        for m, n, k in ((size, 24 + index, 40), (23, size, 33 + index), (16 + index, 9, size)):
            if types.accumulator == F16 and k > 2048:
                continue  # no sum of so many is exact
            a, b = types.operands(layout, m, n, k, device=device, whole=True)
            check(types, a, b)


@EVERY
def test_one_row_one_column_one_product(device, types):
    shapes = ((1, 257, 100), (300, 1, 77), (65, 129, 1), (1, 1, 1), (1, 1, 1000), (1, 65, 1))
    for layout, shape in itertools.product(cases.LAYOUTS, (*shapes, (1, 4096, 64), (4097, 1, 16))):
        a, b = types.operands(layout, *shape, device=device, whole=True)
        check(types, a, b)


@pytest.mark.parametrize("layout", cases.LAYOUTS)
@pytest.mark.parametrize(("device", "dtype"), DEVICE_DTYPES)
def test_against_int64(device, dtype, layout):
    """The independent witness: an integer product, no floating point in it."""
    a, b = cases.operands(layout, 130, 190, 321, dtype=dtype, device=device, largest=7)
    expected = (a.cpu().long() @ b.cpu().long()).to(F32)
    out_dtype = F64 if dtype == F64 else F32
    reference.assert_exact(tcgemm.mm(a, b, out_dtype=out_dtype).cpu(), expected.to(out_dtype))


@pytest.mark.parametrize(("device", "dtype"), DEVICE_DTYPES)
def test_every_place_is_used_once(device, dtype):
    """One 1 in a, one in b: a single product, in a single place, for every depth of a k-block."""
    m, n, k = 20, 24, 130
    for depth in range(k):
        a = torch.zeros(m, k, dtype=dtype, device=device)
        b = torch.zeros(k, n, dtype=dtype, device=device)
        a[depth % m, depth] = 3.0
        b[depth, depth % n] = 5.0
        out = tcgemm.mm(a, b)
        assert out[depth % m, depth % n] == 15.0
        assert out.sum() == 15.0


@pytest.mark.parametrize("layout", cases.LAYOUTS)
@pytest.mark.parametrize(("device", "dtype"), DEVICE_DTYPES)
def test_identity_copies(device, dtype, layout):
    """a @ 1 = a for any values, also those that are no integers; so is 1 @ b."""
    n = 200
    a, b = cases.operands(layout, n, n, n, dtype=dtype, device=device)
    one = torch.eye(n, dtype=dtype, device=device)
    reference.assert_exact(tcgemm.mm(a, one), a)
    reference.assert_exact(tcgemm.mm(one, b), b)


@pytest.mark.parametrize(("device", "dtype"), DEVICE_DTYPES)
def test_permutation_moves_rows(device, dtype):
    a = cases.make("contiguous", 300, 257, dtype=dtype, device=device)
    order = torch.randperm(300)
    permutation = torch.eye(300)[order].to(dtype).to(device)
    reference.assert_exact(tcgemm.mm(permutation, a), a[order.to(device)])


@INTEGERS
def test_integers_wrap_around(device, types):
    k = 2**17 + 70
    a = torch.full((3, k), torch.iinfo(types.a).min or 255, dtype=types.a, device=device)
    b = torch.full((k, 5), torch.iinfo(types.b).min or 255, dtype=types.b, device=device)
    a[0, :9], b[:33, 1] = 1, 3
    for left, right in ((a, b), (a, b.mT.contiguous().mT), (b.mT.to(types.a), b)):
        check(types, left, right)


@EVERY
def test_batches(device, types):
    for batch, m, n, k in (((5,), 65, 33, 100), ((2, 3), 16, 130, 64), ((2, 1, 2), 7, 9, 33)):
        for layout in cases.LAYOUTS:
            a, b = types.operands(layout, m, n, k, device=device, batch=batch, whole=True)
            expected = reference.exact(a, b, **types.options)
            reference.assert_exact(tcgemm.matmul(a, b, **types.options), expected)
            flat_a, flat_b = a.reshape(-1, m, k), b.reshape(-1, k, n)
            out = tcgemm.bmm(flat_a, flat_b, **types.options)
            reference.assert_exact(out, expected.reshape(-1, m, n))
            one = b[(0,) * len(batch)]
            out = tcgemm.matmul(a, one, **types.options)
            reference.assert_exact(out, reference.exact(a, one, **types.options))
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


@EVERY
def test_more_matrices_than_a_grid_dimension_has(device, types):
    """65535 is the limit of a CUDA grid's second and third dimension."""
    for layout, shape in (("NN", (3, 4, 5)), ("TN", (1, 1, 8))):
        a, b = types.operands(layout, *shape, device=device, batch=(70000,), whole=True)
        out = tcgemm.bmm(a, b, **types.options)
        reference.assert_exact(out, reference.exact(a, b, **types.options))


@pytest.mark.parametrize("operator", PLAIN, ids=lambda op: op.name)
@pytest.mark.parametrize(("device", "dtype"), DEVICE_DTYPES)
def test_out_is_what_is_returned(device, dtype, operator):
    """Every operator writes into a given tensor the bits that it returns without one."""
    options = {"dtype": dtype, "device": device, "largest": 5}
    batch = (3,) if operator.batched or operator is MATMUL else ()
    a, b = cases.operands("NN", 65, 42, 70, batch=batch, **options)
    c = cases.make("contiguous", 65, 42, **options)
    operands = (c, a, b) if operator.adds_c else (a, b.mT if operator.weight else b)
    function = getattr(tcgemm, operator.name)
    expected = reference.exact(a, b, *([c] if operator.adds_c else []))
    reference.assert_exact(function(*operands), expected)
    guarded = cases.Guarded("odd_pitch", expected.shape, dtype=dtype, device=device)
    assert function(*operands, out=guarded.view) is guarded.view
    reference.assert_guarded(guarded, expected)


@EVERY
def test_repeated_calls_give_the_same_bits(device, types):
    a, b = types.operands("NN", 200, 190, 300, device=device)
    for out_dtype in types.outs:
        options = types.options | {"out_dtype": out_dtype}
        first = tcgemm.mm(a, b, **options)
        for _ in range(4):
            assert torch.equal(tcgemm.mm(a, b, **options), first)
