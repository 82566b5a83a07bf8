"""Whole numbers, whose products and sums are exact: there is one right result, bit by bit.

Each element of a or b that is lost, read twice, shifted or multiplied with the wrong partner
changes a sum by at least 1, so nothing that a rounding bound would forgive gets through.
"""

import pytest
import torch

import tcgemm

from support import cases, reference
from support.cases import F16, F32, F64


@pytest.mark.parametrize(("device", "types"), cases.DEVICE_TYPES)
def test_mm(device, types):
    options = {"out_dtype": types.out, "acc_dtype": types.accumulator}
    for index, (m, n, k) in enumerate(cases.SHAPES):
        if types.accumulator == F16 and k > 2048:
            continue
        a, b = cases.operands(
            cases.LAYOUTS[index % 4],
            *(m, n, k),
            dtype=types.input,
            device=device,
            largest=cases.largest_exact(types, k),
        )
        reference.assert_exact(tcgemm.mm(a, b, **options), reference.exact(a, b, **options))


@pytest.mark.parametrize("layout", cases.LAYOUTS)
@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_against_int64(device, dtype, layout):
    """The independent witness: an integer product, no floating point in it."""
    a, b = cases.operands(layout, 130, 190, 321, dtype=dtype, device=device, largest=7)
    expected = (a.cpu().long() @ b.cpu().long()).to(F32)
    out_dtype = F64 if dtype == F64 else F32
    reference.assert_exact(tcgemm.mm(a, b, out_dtype=out_dtype).cpu(), expected.to(out_dtype))


@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
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
@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_identity_copies(device, dtype, layout):
    """a @ 1 = a for any values, also those that are no integers; so is 1 @ b."""
    n = 200
    a, b = cases.operands(layout, n, n, n, dtype=dtype, device=device)
    one = torch.eye(n, dtype=dtype, device=device)
    reference.assert_exact(tcgemm.mm(a, one), a)
    reference.assert_exact(tcgemm.mm(one, b), b)


@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_permutation_moves_rows(device, dtype):
    a = cases.make("contiguous", 300, 257, dtype=dtype, device=device)
    order = torch.randperm(300)
    permutation = torch.eye(300)[order].to(dtype).to(device)
    reference.assert_exact(tcgemm.mm(permutation, a), a[order.to(device)])


@pytest.mark.parametrize("layout", cases.LAYOUTS)
@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_batched(device, dtype, layout):
    for batch, m, n, k in (((5,), 65, 33, 100), ((2, 3), 16, 130, 64), ((2, 1, 2), 7, 9, 33)):
        options = {"dtype": dtype, "device": device, "batch": batch, "largest": 5}
        a, b = cases.operands(layout, m, n, k, **options)
        expected = reference.exact(a, b)
        reference.assert_exact(tcgemm.matmul(a, b), expected)
        flat_a, flat_b = a.reshape(-1, m, k), b.reshape(-1, k, n)
        reference.assert_exact(tcgemm.bmm(flat_a, flat_b), expected.reshape(-1, m, n))
        out = tcgemm.matmul(a, b[(0,) * len(batch)])
        reference.assert_exact(out, reference.exact(a, b[(0,) * len(batch)]))


@pytest.mark.parametrize("operator", ("mm", "bmm", "matmul", "addmm", "linear"))
@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_out_is_what_is_returned(device, dtype, operator):
    """Every operator writes into a given tensor the bits that it returns without one."""
    options = {"dtype": dtype, "device": device, "largest": 5}
    batch = (3,) if operator in ("bmm", "matmul") else ()
    a, b = cases.operands("NN", 65, 42, 70, batch=batch, **options)
    c = cases.make("contiguous", 65, 42, **options)
    given = {"addmm": (c, a, b), "linear": (a, b.mT)}.get(operator, (a, b))
    function = getattr(tcgemm, operator)
    expected = reference.exact(a, b, *([c] if operator == "addmm" else []))
    reference.assert_exact(function(*given), expected)
    guarded = cases.Guarded("odd_pitch", expected.shape, dtype=dtype, device=device)
    assert function(*given, out=guarded.view) is guarded.view
    reference.assert_exact(guarded.view, expected)
    assert guarded.untouched()


@pytest.mark.parametrize(("device", "types"), cases.DEVICE_TYPES)
def test_repeated_calls_give_the_same_bits(device, types):
    options = {"out_dtype": types.out, "acc_dtype": types.accumulator}
    a, b = cases.operands("NN", 200, 190, 300, dtype=types.input, device=device)
    first = tcgemm.mm(a, b, **options)
    for _ in range(4):
        assert torch.equal(tcgemm.mm(a, b, **options), first)
