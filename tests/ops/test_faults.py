"""The checks of reference.py can fail: typical wrong results are made of right ones and shown them.

A right result must stand well below the bound, and each fault above it, on normal data and for
every type; and on whole numbers the exact check must see each as well.
"""

import math

import pytest
import torch

import tcgemm

from support import cases, reference
from support.cases import BF16, F16, F32, F64
from support.faults import FAULTS, K, M, N, drop_k_step

NAN = float("nan")


def product(device, types, *, largest=None):
    a, b = cases.operands("TN", M, N, K, dtype=types.input, device=device, largest=largest)
    options = {"out_dtype": types.out, "acc_dtype": types.accumulator}
    return a, b, tcgemm.mm(a, b, **options), options


@pytest.mark.parametrize(("device", "types"), cases.DEVICE_TYPES)
def test_bound_sees_every_fault(device, types):
    a, b, out, options = product(device, types)
    value, bound = reference.evaluate(a, b, **options)
    right = reference.largest_ratio(out, value, bound)
    # A result that is rounded to nearest reaches u_out |C|, which is most of the bound of 16 bits.
    assert right < (0.5 if types.out in (F32, F64) else 1.0)
    for fault in FAULTS:
        wrong = out.clone()
        fault(wrong, a, b)
        assert reference.largest_ratio(wrong, value, bound) > 1, fault.__name__
    assert reference.largest_ratio(torch.zeros_like(out), value, bound) > 4


@pytest.mark.parametrize(("device", "types"), cases.DEVICE_TYPES)
def test_exact_sees_every_fault(device, types):
    a, b, out, options = product(device, types, largest=cases.largest_exact(types, K))
    expected = reference.exact(a, b, **options)
    reference.assert_exact(out, expected)
    for fault in FAULTS:
        wrong = out.clone()
        fault(wrong, a, b)
        with pytest.raises(AssertionError, match="elements differ"):
            reference.assert_exact(wrong, expected)


def lose_one_bias(out, value, bias, residual):
    out[:, 5] -= bias[5]


def lose_one_residual(out, value, bias, residual):
    out[7, 7] -= residual[7, 7]


def skip_activation(out, value, bias, residual):
    """Any other number where relu gave 0."""
    out[value == residual] -= 0.5


EPILOGUE_FAULTS = (lose_one_bias, lose_one_residual, skip_activation)


@pytest.mark.parametrize(("device", "types"), cases.DEVICE_TYPES)
def test_bound_sees_faults_of_the_epilogue(device, types):
    a, b, _, options = product(device, types)
    bias = 8 + torch.zeros(N, dtype=types.input, device=device)
    residual = 8 + cases.make("contiguous", M, N, dtype=types.input, device=device)
    options |= {"activation": "relu"}
    out = tcgemm.mm(a, b, bias=bias, residual=residual, **options)
    value, bound = reference.evaluate(a, b, None, bias, residual, **options)
    assert reference.largest_ratio(out, value, bound) <= 1
    for fault in EPILOGUE_FAULTS:
        wrong = out.clone()
        fault(wrong, value, bias, residual)
        assert reference.largest_ratio(wrong, value, bound) > 1, fault.__name__


@pytest.mark.parametrize(("device", "dtype"), cases.DEVICE_DTYPES)
def test_bound_sees_a_narrower_accumulator(device, dtype):
    """Sums kept in the next smaller type, where the result is wide enough to show it."""
    wide, narrow = (F64, F32) if dtype == F64 else (F32, F16)
    a, b, out, options = product(device, cases.Types(dtype, wide, wide))
    assert reference.error_ratio(out.to(narrow).to(wide), a, b, **options) > 1


@pytest.mark.parametrize("device", cases.DEVICES)
def test_classic_bound_sees_faults_of_cancelling_data(device):
    """Sums of zero: the statistical bound would do, but does not hold for such data."""
    a, b = cases.operands("TN", M, N, K, dtype=BF16, device=device)
    a[:, K // 2 :] = a[:, : K // 2]
    b[K // 2 :] = -b[: K // 2]
    options = {"out_dtype": F32, "classic": True}
    out = tcgemm.mm(a, b, out_dtype=F32)
    reference.assert_close(out, a, b, **options)
    drop_k_step(out, a, b)
    assert reference.error_ratio(out, a, b, **options) > 1


def test_ratio_of_what_is_no_number():
    value = torch.tensor([1.0, math.inf, NAN, 7e4], dtype=F64)
    bound = torch.full_like(value, 1e-3)
    assert reference.largest_ratio(value.to(F16), value, bound) == 0
    for index, wrong in ((0, NAN), (0, math.inf), (1, 6e4), (1, -math.inf), (2, 0.0), (3, NAN)):
        out = value.to(F16)
        out[index] = wrong
        assert reference.largest_ratio(out, value, bound) == math.inf
    zero = torch.zeros(3, dtype=F64)
    assert reference.largest_ratio(zero.float(), zero, zero) == 0
    assert reference.largest_ratio(zero.float() + 1e-30, zero, zero) == math.inf
    assert reference.largest_ratio(zero[:0].float(), zero[:0], zero[:0]) == 0
    one = torch.ones(2, 3)
    assert reference.error_ratio(one, one, one.t()) == math.inf  # another shape


def test_exact_compares_shape_and_dtype():
    one = torch.ones(2, 3)
    reference.assert_exact(one, one.clone())
    reference.assert_exact(-torch.zeros(2), torch.zeros(2))
    for wrong in (one.double(), one[:, :2], one[0], one * NAN):
        with pytest.raises(AssertionError):
            reference.assert_exact(wrong, one)


def test_guard_sees_a_write_beside_the_result():
    for strides in cases.OUT_STRIDES:
        guarded = cases.Guarded(strides, (6, 10), dtype=F16)
        guarded.view.fill_(1.0)
        assert guarded.untouched()
        rest = guarded.buffer.isnan().nonzero()[:, 0]
        for index in (rest[0], rest[len(rest) // 2], rest[-1]):
            guarded.buffer[index] = 0.0
            assert not guarded.untouched()
            guarded.buffer[index] = NAN
