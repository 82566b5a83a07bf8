"""The products in float64, and how far from them a right result may be.

    value = act(alpha * scale_a * scale_b * ((a - zero_a) @ (b - zero_b)) + beta * c + bias)
            + residual
    out = value * scale_out

The bound follows the formula from the inside to the outside, elementwise. With u the unit of a
type's rounding, L products a rounding of the accumulator, and acc, epilogue and out the three types
that round (the epilogue works in f32, in f64 for f64):

    product     (K/L + 2) u_acc 4 sqrt((A*A) @ (B*B))       statistical: normal data
                (K + 2) u_acc |A| @ |B|                     classic: adversarial data
                0                                           integers
    addends     |scales alpha| * product + 6 u_epi (|scales alpha AB| + |beta C| + |bias|)
    activation  slope * addends + 8 u_epi |x|               slope: the steepest of the activation
                slope * addends + 4.2e-6 |x|                on a GPU, for results of 16 or 8 bits
    residual    activation + 2 u_epi (|act| + |residual|)
    out         residual + u_out |out| + half the smallest subnormal

A and B are what the tensor cores multiply: f32 operands rounded as the precision says, fp8 times
its scales of blocks. fp8 sums in tensor cores keep 13 bits of fraction (u_acc 2^-13); promoted ones
over 128 of k at most, so that K there is no more than 128.

Right results stand at 0.04 to 0.5 of the statistical bound, and results with a zeroed tile or a
dropped k-step far above 1 (ops/test_faults.py); on normal data the classic bound is too wide to see
either. `error_ratio` is the largest error over its bound: above 1 the result is wrong.

The second tier is exact: on small integers, times powers of two, every sum is exact, so `exact` has
one right answer, and `assert_exact` compares every element.
"""

import math

import numpy
import torch

from tcgemm.emulate.rounding import round_to_tf32
from tcgemm.measure.errors import (
    UNIT_ROUNDOFF,
    accumulation_error,
    accumulator_roundoff,
    expand_scale,
)
from tcgemm.ops.activations import ACTIVATIONS, activate

from support.cases import BF16, E4M3, E5M2, F16, F32, F64, FP8, INT8, NAMES, S8, S32

HALF_SMALLEST = {F16: 2.0**-25, BF16: 2.0**-134, F32: 2.0**-150, E4M3: 2.0**-10, E5M2: 2.0**-17}
HALF_SMALLEST |= {S8: 0.5}
# The error of an activation by tanh.approx, in units of |x|: csrc/tile/activation.cuh.
NARROW_ACTIVATION = 4.2e-6
# Where results of 8 bits saturate.
LIMITS = {E4M3: (-448, 448), E5M2: (-57344, 57344), S8: (-128, 127)}


def accumulation(a, accumulator, precision):
    """The accumulation of a GEMM, by its name in tcgemm.measure.errors."""
    if a.dtype in FP8:
        return "fast" if precision == "fast" else "promoted"
    return NAMES[accumulator]


def multiplied(operand, precision):
    """An operand as the tensor cores take it, in float64."""
    if operand.dtype == F32 and precision == "high":
        operand = round_to_tf32(operand)
    if operand.dtype == F32 and precision == "medium":
        operand = operand.to(BF16)
    return operand.double()


def matmul64(a, b, wide):
    """a @ b in float64, or rounded to it from the 80 bits of numpy's longdouble."""
    if not wide:
        return torch.matmul(a, b)
    arrays = [t.detach().cpu().numpy().astype(numpy.longdouble) for t in (a, b)]
    return torch.from_numpy(numpy.asarray(numpy.matmul(*arrays), numpy.float64)).to(a.device)


def product(a, b, scale_a, scale_b, zero_a, zero_b, *, acc_dtype, precision, classic, whole):
    """(scale_a scale_b ((a - zero_a) @ (b - zero_b)), bound), both float64."""
    depth = a.shape[-1]
    accumulator = acc_dtype or (F64 if a.dtype == F64 else F32)
    left, right = multiplied(a, precision), multiplied(b, precision)
    left = left if zero_a is None else left - zero_a.double()
    right = right if zero_b is None else right - zero_b.double()
    factors = []
    if scale_a is not None:
        scale = expand_scale(scale_a, a.shape[-2], depth)
        if scale.dim() >= 2 and scale.shape[-1] != 1:
            left = left * scale
        else:
            factors.append(scale)
    if scale_b is not None:
        scale = expand_scale(scale_b, depth, b.shape[-1])
        if scale.dim() >= 2 and scale.shape[-2] != 1:
            right = right * scale
        else:
            factors.append(scale)
    value = matmul64(left, right, a.dtype == F64 and not whole)
    bound = torch.zeros_like(value)
    if not whole and a.dtype not in INT8:
        kind = accumulation(a, accumulator, precision)
        if classic:
            unit = accumulator_roundoff(a.device, kind)
            bound = (depth + 2) * unit * torch.matmul(left.abs(), right.abs())
        else:
            dtype = "tf32" if a.dtype == F32 and precision == "high" else NAMES[a.dtype]
            roundings = accumulation_error(a.device, kind, depth, dtype=dtype)
            bound = roundings * 4 * torch.matmul(left * left, right * right).sqrt()
    for factor in factors:
        factor = factor.reshape(()) if factor.numel() == 1 else factor
        value, bound = value * factor, bound * factor.abs()
    return value, bound


def before_scale_out(
    a,
    b,
    c=None,
    bias=None,
    residual=None,
    *,
    activation=None,
    alpha=1.0,
    beta=1.0,
    scale_a=None,
    scale_b=None,
    zero_a=None,
    zero_b=None,
    acc_dtype=None,
    precision=None,
    classic=False,
    whole=False,
    out_dtype=None,
):
    """(value, bound), whose largest is amax."""
    value, bound = product(
        a,
        b,
        scale_a,
        scale_b,
        zero_a,
        zero_b,
        acc_dtype=acc_dtype,
        precision=precision,
        classic=classic,
        whole=whole,
    )
    u_epi = UNIT_ROUNDOFF[F64 if a.dtype == F64 else F32]
    value, bound = alpha * value, abs(alpha) * bound
    size = value.abs()
    for factor, addend in ((beta, c), (1.0, bias)):
        if addend is not None and factor != 0:
            value = value + factor * addend.double()
            size = size + abs(factor) * addend.double().abs()
    terms = (c, bias, scale_a, scale_b)
    if alpha != 1.0 or a.dtype in INT8 or any(term is not None for term in terms):
        bound = bound + 6 * u_epi * size
    if activation is not None:
        narrow = (out_dtype or default_out(a.dtype)).itemsize <= 2
        approximate = narrow and a.is_cuda and activation != "relu"
        unit = NARROW_ACTIVATION if approximate else 8 * u_epi
        bound = ACTIVATIONS[activation].max_slope * bound + unit * value.abs()
        value = activate(value, activation)
    if residual is not None:
        bound = bound + 2 * u_epi * (value.abs() + residual.double().abs())
        value = value + residual.double()
    return value, bound


def default_out(dtype):
    return BF16 if dtype in FP8 else S32 if dtype in INT8 else dtype


def evaluate(a, b, c=None, bias=None, residual=None, *, scale_out=None, out_dtype=None, **options):
    """(reference, bound) of a product with its epilogue, both float64.

    a and b are what torch.matmul takes; c, bias and residual broadcast to its result.
    """
    out_dtype = out_dtype or default_out(a.dtype)
    value, bound = before_scale_out(a, b, c, bias, residual, out_dtype=out_dtype, **options)
    if out_dtype == S32:
        return value, torch.zeros_like(value)
    if scale_out is not None:
        factor = scale_out.double().reshape(())
        value, bound = value * factor, bound * factor.abs()
        bound = bound + UNIT_ROUNDOFF[F64 if a.dtype == F64 else F32] * value.abs()
    bound = (
        bound + UNIT_ROUNDOFF.get(out_dtype, 0.0) * value.abs() + HALF_SMALLEST.get(out_dtype, 0.0)
    )
    return value.clamp(
        *LIMITS.get(out_dtype, (None, None))
    ) if out_dtype in LIMITS else value, bound


def narrow(value, dtype):
    """float64 as a result's type: rounded to nearest even, saturated, or modulo 2^32."""
    if dtype == S32:
        return ((value.long() + 2**31) % 2**32 - 2**31).to(S32)
    if dtype in LIMITS:
        value = value.clamp(*LIMITS[dtype])
    if dtype == S8:
        return value.round().to(S8)
    return value.float().to(dtype) if dtype in FP8 else value.to(dtype)


def error_ratio(out, a, b, *addends, **options):
    """The largest |out - reference| / bound; infinite where NaN, Inf or the shape is another."""
    options.setdefault("out_dtype", out.dtype)
    value, bound = evaluate(a, b, *addends, **options)
    if out.shape != value.shape:
        return math.inf
    return largest_ratio(out, value, bound)


def largest_ratio(out, value, bound):
    """max(|out - value| / bound), where both alike, NaN and Inf too, counts as 0."""
    rounded, wide = narrow(value, out.dtype).double(), out.double()
    alike = (wide == rounded) | (wide.isnan() & rounded.isnan())
    ratio = torch.where(alike, 0.0, (wide - value).abs() / bound)
    return float(ratio.nan_to_num(nan=math.inf, posinf=math.inf).max()) if ratio.numel() else 0.0


def exact(a, b, c=None, bias=None, residual=None, *, out_dtype=None, scale_out=None, **options):
    """The one right result for small integers: float64, where all is exact, rounded once.

    Only for activations that keep integers (relu), whole alpha and beta, and powers of two as
    scales.
    """
    value, _ = before_scale_out(a, b, c, bias, residual, whole=True, **options)
    if scale_out is not None:
        value = value * scale_out.double().reshape(())
    return narrow(value, out_dtype or default_out(a.dtype))


def assert_exact(out, expected):
    """Equal in shape, dtype and every bit, but that +0 and -0 are one number."""
    assert out.shape == expected.shape
    assert out.dtype == expected.dtype
    if torch.equal(out, expected):
        return
    wrong = (out != expected).nonzero()
    first = tuple(wrong[0].tolist())
    raise AssertionError(
        f"{len(wrong)} of {out.numel()} elements differ, in rows {extent(wrong, -2)} and columns "
        f"{extent(wrong, -1)}; the first at {first}: {out[first].item()!r}, not "
        f"{expected[first].item()!r}"
    )


def assert_guarded(guarded, expected):
    """The view of a cases.Guarded is exact, and nothing beside it was written."""
    assert_exact(guarded.view, expected)
    assert guarded.untouched()


def extent(indices, dim):
    """From the first to the last index along a dimension of the result."""
    if indices.shape[1] < -dim:
        return "-"
    return f"{int(indices[:, dim].min())}..{int(indices[:, dim].max())}"


def assert_close(out, *operands, limit=1.0, **options):
    """error_ratio is at most `limit`."""
    ratio = error_ratio(out, *operands, **options)
    assert ratio <= limit, f"an error of {ratio:.3g} times the bound"
    return ratio


def assert_amax(amax, *operands, **options):
    """The largest magnitude of the value before scale_out and rounding, whichever element has
    it."""
    value, bound = before_scale_out(*operands, **options)
    assert amax.dtype == F32 and amax.shape == ()
    size = value.abs()
    low, high = float((size - bound).max()), float((size + bound).max())
    rounding = 1 + UNIT_ROUNDOFF[F32]
    assert low / rounding <= float(amax) <= high * rounding, f"{float(amax)}, not {low} to {high}"


def same_bits(x, y):
    """Equal bit by bit: of two NaN, and of 0 and -0, too."""
    assert x.dtype == y.dtype and x.shape == y.shape
    words = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    return torch.equal(x.contiguous().view(words), y.contiguous().view(words))
