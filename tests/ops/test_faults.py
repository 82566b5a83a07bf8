"""The checks of reference.py can fail, for every dtype: they are shown typical wrong results
(support/faults.py), and those that only scales, zero points and the 14 bits of fp8 sums have.

A right result must stand well below the bound, and each fault above it, on normal data; and on
whole numbers the exact check must see each as well.
"""

import math

import pytest
import torch

import tcgemm

from support import cases, reference
from support.cases import BF16, E4M3, F16, F32, F64, HALVES, REAL, S8, S32, U8
from support.dtype_matrix import EVERY, GemmTypes, parameters, scale_a, scale_b, zero_points
from support.faults import FAULTS, K, M, N, drop_k_step

NAN = float("nan")
FLOATING = parameters(lambda types: not types.integer)
# Sums in the dtype of a f16, bf16, f32 or f64 result or wider, all bits of the operands counted.
WIDE = parameters(lambda types: types.accumulator != F16 and types.keeps_all_bits)
BLOCKS = parameters(lambda types: types.fp8 and types.precision is None)
INTEGERS = parameters(lambda types: types.integer)


def scalar(types, out):
    """Brings sums of integers into the range of every result."""
    return {"alpha": 2.0**-13} if types.integer and out != S32 else {}


def spoil(fault, out, a, b, factor=1.0):
    """A result with this fault, in its own type."""
    wide = out.double() / factor
    fault(wide, a.double(), b.double())
    wide = (wide * factor).nan_to_num(nan=cases.poison(out.dtype))
    return reference.narrow(wide, out.dtype)


@FLOATING
def test_bound_sees_every_fault(device, types):
    a, b = types.operands("TN", M, N, K, device=device)
    for out_dtype in types.outs:
        options = types.options | {"out_dtype": out_dtype}
        out = tcgemm.mm(a, b, **options)
        value, bound = reference.evaluate(a, b, **options)
        ratio = reference.largest_ratio(out, value, bound)
        # Rounding to nearest alone reaches u_out |C|, most of the bound of 16 and 8 bits.
        near = 0.5 if types.a in (*HALVES, F64) or (types.a == F32 and device == "cpu") else 0.7
        assert ratio < (near if out_dtype in (F32, F64) else 1.0)
        for fault in FAULTS:
            wrong = spoil(fault, out, a, b)
            assert reference.largest_ratio(wrong, value, bound) > 1, (fault.__name__, out_dtype)
        if out_dtype in REAL:
            assert reference.largest_ratio(torch.zeros_like(out), value, bound) > 4


@EVERY
def test_exact_sees_every_fault(device, types):
    a, b = types.operands("TN", M, N, K, device=device, whole=True)
    for out_dtype in types.outs:
        if types.a == types.b == U8 and out_dtype == S8:
            continue  # their sums are all positive, and saturate
        options = types.options | {"out_dtype": out_dtype} | scalar(types, out_dtype)
        out = tcgemm.mm(a, b, **options)
        expected = reference.exact(a, b, **options)
        reference.assert_exact(out, expected)
        for fault in FAULTS:
            wrong = spoil(fault, out, a, b, options.get("alpha", 1.0))
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


@FLOATING
def test_bound_sees_faults_of_the_epilogue(device, types):
    a, b = types.operands("TN", M, N, K, device=device)
    addend = types.a if types.a in REAL else F32
    bias = 8 + torch.zeros(N, dtype=addend, device=device)
    residual = 8 + cases.make("contiguous", M, N, dtype=addend, device=device)
    for out_dtype in (out for out in types.outs if out in REAL):
        options = types.options | {"out_dtype": out_dtype, "activation": "relu"}
        out = tcgemm.mm(a, b, bias=bias, residual=residual, **options)
        value, bound = reference.evaluate(a, b, None, bias, residual, **options)
        assert reference.largest_ratio(out, value, bound) <= 1
        for fault in EPILOGUE_FAULTS:
            wrong = out.clone()
            fault(wrong, value, bias, residual)
            assert reference.largest_ratio(wrong, value, bound) > 1, (fault.__name__, out_dtype)


@WIDE
def test_bound_sees_a_narrower_accumulator(device, types):
    """Sums kept in the next smaller type, where the result is wide enough to show it."""
    wide, narrow = (F64, F32) if types.a == F64 else (F32, F16)
    a, b = types.operands("TN", M, N, K, device=device)
    options = types.options | {"out_dtype": wide}
    out = tcgemm.mm(a, b, **options)
    assert reference.error_ratio(out.to(narrow).to(wide), a, b, **options) > 1


# A part of the result computed with something else.


def other_block(scale, rows):
    """One block of 128 of k is given the scale of the block beside it."""
    wrong = scale.clone()
    wrong[..., :rows, 0] = scale[..., :rows, 1]
    return wrong


def other_row(scale, rows):
    wrong = scale.clone()
    wrong[..., rows - 1, :] = scale[..., rows, :]
    return wrong


def last_of_blocks(scale, rows):
    """The end of k, less than a block, goes without its scale."""
    wrong = scale.clone()
    wrong[..., :rows, -1] = 1.0
    return wrong


def in_either_scale(wrong, scales, rows):
    """The arguments that a wrong scale changes: first the scale of a, then the scale of b."""
    yield {"scale_a": wrong(scales["scale_a"], rows)}
    yield {"scale_b": wrong(scales["scale_b"].mT, rows).mT}


def assert_seen(result, wrong, a, b, terms, changes, options, powers):
    """The checks accept `result` and refuse the product with the `changes` of `wrong`."""
    value, bound = reference.evaluate(a, b, **terms, **options)
    expected = reference.exact(a, b, **terms, **options)
    if powers:
        reference.assert_exact(result, expected)
    assert reference.largest_ratio(result, value, bound) <= 1
    other = tcgemm.mm(a, b, **(terms | changes), **options)
    assert not torch.equal(other, result), wrong.__name__
    assert reference.largest_ratio(other, value, bound) > 1, wrong.__name__
    if powers:
        with pytest.raises(AssertionError, match="elements differ"):
            reference.assert_exact(other, expected)


@BLOCKS
def test_a_wrong_block_of_scales_is_seen(device, types):
    m, n, k = 200, 140, 300
    for powers in (True, False):
        a, b = types.operands("TN", m, n, k, device=device, whole=powers)
        for of_a in ("1x128", "128x128"):
            scales = {
                "scale_a": scale_a(of_a, m, k, device=device, powers=powers),
                "scale_b": scale_b("128x128", n, k, device=device, powers=powers),
            }
            for scale in (scales["scale_a"], scales["scale_b"].mT):
                scale[..., 0], scale[..., 1], scale[..., 2] = 4.0, 0.5, 2.0
            options = types.options | {"out_dtype": F32}
            result = tcgemm.mm(a, b, **scales, **options)
            for wrong in (other_block, last_of_blocks):
                for changes in in_either_scale(wrong, scales, 1):
                    assert_seen(result, wrong, a, b, scales, changes, options, powers)


@EVERY
def test_a_wrong_scale_of_a_row_is_seen(device, types):
    m, n, k = 130, 70, 96
    for powers in (True, False):
        a, b = types.operands("TN", m, n, k, device=device, whole=powers)
        scales = {
            "scale_a": scale_a("row", m, k, device=device, powers=powers),
            "scale_b": scale_b("row", n, k, device=device, powers=powers),
        }
        scales["scale_a"][64], scales["scale_b"][0, 64] = 4.0, 4.0
        options = types.options | {"out_dtype": F64 if types.a == F64 else F32}
        result = tcgemm.mm(a, b, **scales, **options)
        for changes in in_either_scale(other_row, scales, 64):
            assert_seen(result, other_row, a, b, scales, changes, options, powers)


@INTEGERS
def test_a_wrong_zero_point_is_seen(device, types):
    m, n, k = 130, 70, 96
    a, b = types.operands("TN", m, n, k, device=device)
    zeros = {"zero_a": zero_points(m, 1, device=device), "zero_b": zero_points(1, n, device=device)}
    zeros["zero_a"][64], zeros["zero_b"][0, 64] = 99, 99
    for out_dtype in (S32, F32):
        options = types.options | {"out_dtype": out_dtype}
        result = tcgemm.mm(a, b, **zeros, **options)
        for name in zeros:
            wrong = zeros[name].clone()
            wrong.view(-1)[64] += 1
            assert_seen(result, test_exact_sees_every_fault, a, b, zeros, {name: wrong}, options, 1)


@EVERY
def test_a_lost_maximum_is_seen(device, types):
    """amax of all but the last row, and of a result without its bias."""
    a, b = types.operands("TN", 130, 70, 96, device=device, whole=True)
    out = F64 if types.a == F64 else F32
    bias = torch.zeros(130, 1, device=device)
    bias[-1] = 2.0**24
    options = types.options | {"bias": bias}
    _, amax = tcgemm.mm(a, b, **options, out_dtype=out, amax=True)
    reference.assert_amax(amax, a, b, None, bias, **types.options)
    for wrong in (
        tcgemm.mm(a[:-1], b, bias=bias[:-1], **types.options, out_dtype=out, amax=True)[1],
        tcgemm.mm(a, b, **types.options, out_dtype=out, amax=True)[1],
        torch.full((), float("nan"), device=device),
        torch.zeros((), device=device),
    ):
        with pytest.raises(AssertionError):
            reference.assert_amax(wrong, a, b, None, bias, **types.options)


@pytest.mark.gpu
@pytest.mark.sm90
@pytest.mark.parametrize("size", (64, 2048))
def test_the_bound_of_promoted_sums_sees_what_is_not_promoted(size):
    """14 bits over a deep k: within the bound of "fast", beyond the bound of "promoted"."""
    k = 8192
    a, b = GemmTypes(E4M3, E4M3, F32).operands("TN", size, 256, k, device="cuda")
    fast = tcgemm.mm(a, b, precision="fast", out_dtype=F32)
    reference.assert_close(fast, a, b, precision="fast")
    assert reference.error_ratio(fast, a, b, precision="promoted") > 1
    reference.assert_close(tcgemm.mm(a, b, out_dtype=F32), a, b, limit=0.7)


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
