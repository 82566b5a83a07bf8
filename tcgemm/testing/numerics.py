"""The error of a product against float64, in units of what rounding alone can explain.

For operands drawn from a normal distribution, with L products a rounding of the accumulator,

    |C - C64|  <=  (K/L + 2) u_acc * 4 sqrt((A*A) @ (B*B))  +  u_out |C64|        elementwise

holds with room to spare: right results reach 0.04-0.21 of the right side, while a zeroed tile is
at 6 or more and one dropped k-step is seen. (The classic bound (K + 2) u |A| @ |B| is so wide on
such data that wrong results fit under it.) `error_ratio` returns the largest quotient of the two
sides, and NaN where anything was left unwritten. `is_exact` is the second check: small whole
numbers, bit by bit.

A product of f32 operands that keeps all their bits is held to less, on any data:

    |C - C64|  <=  tolerance(K) 2^-24 |A| @ |B|  +  u_out |C64|

    accumulation   what rounds on a GPU, and how much
    f32, f16, f64  the sums, after L products
    fast           float8: all sums, after 32 products, to the 14 bits that tensor cores keep
    promoted       float8: so only within each 128 of k; these sums are added in f32
    s32            nothing; an integer result has to be the very one

Operands that are rounded or scaled on their way come here as what is multiplied: `wide` makes it.
"""

import math

import numpy
import torch
import torch.nn.functional as F

from tcgemm.bench import operands

UNIT = {
    torch.float8_e5m2: 2.0**-3,
    torch.float8_e4m3fn: 2.0**-4,
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
    torch.float32: 2.0**-24,
    torch.float64: 2.0**-53,
}
ACTIVATIONS = {
    None: lambda x: x,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}
STEEPEST = 1.13  # the largest slope of an activation above (gelu; silu has 1.10)
LONG_DOUBLES = (32, 256)  # rows and columns: numpy multiplies them without BLAS
BLOCK = 128  # neighbours along K (and N) that share a scale; sums that are promoted together
TENSOR_CORE_FP8 = 2.0**-13  # sum and addends lose what is below their 14th bit


def growth(device, accumulation, k, *, dtype="bf16"):
    """(K/L + 2) u_acc: the part of sqrt((A*A) @ (B*B)) that roundings may make up.

    The CPU rounds after every product (after 16 of them in f16). A tensor core adds 16 at once (8
    before Hopper; of tf32 half as many, of fp8 twice) and cuts off what the accumulator does not
    hold.
    """
    if accumulation == "s32":
        return 0.0
    if torch.device(device).type == "cpu":
        kind = {"fast": "f32", "promoted": "f32"}.get(accumulation, accumulation)
        return (math.ceil(k / (16 if kind == "f16" else 1)) + 2) * UNIT[operands.DTYPES[kind]]
    if accumulation == "fast":
        return (math.ceil(k / 32) + 2) * TENSOR_CORE_FP8
    if accumulation == "promoted":
        # Blocks err independently: their errors add up like the products' own size does.
        return (BLOCK / 32 + 2) * TENSOR_CORE_FP8 + growth("cpu", "f32", math.ceil(k / BLOCK))
    products = 16 if torch.cuda.get_device_capability(device) >= (9, 0) else 8
    products = products // 2 if dtype == "tf32" else products
    unit = UNIT[operands.DTYPES[accumulation]]
    return (math.ceil(k / products) + 2) * (2 * unit if accumulation == "f32" else unit)


def tolerance(device, k):
    """The largest |C - C64| of a right f32 product, in units of 2^-24 |A| @ |B|.

    The CPU rounds after every product: a random walk, 1.1 sqrt(k) where all products have one sign,
    and never more than k. A GPU adds at least 32 of them in tensor cores, which cut off (up to 7
    units, where all have one sign), and rounds the sum of these sums.
    """
    if torch.device(device).type == "cpu":
        return 1.0 + min(k, 3.0 * math.sqrt(k))
    return 8.0 + 2.0 * math.sqrt(k / 32)


def tf32(x):
    """float32 with the 10 bits after the point that tf32 has, rounded to nearest even."""
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def wide(values, scale=None):
    """values * scale in float64, for a matrix and a scale of any shape that tcgemm.mm takes."""
    values = values.double()
    if scale is None:
        return values
    for dim, size in ((-2, values.shape[-2]), (-1, values.shape[-1])):
        if scale.dim() == 2 and scale.shape[dim] not in (1, size):
            scale = scale.repeat_interleave(BLOCK, dim).narrow(dim, 0, size)
    return values * scale


def sample_rows(m, flops, budget):
    """All rows of a result, or an even sample of at least 256 when float64 would take too long."""
    count = m if flops <= budget else max(256, int(m * budget / flops))
    if count >= m:
        return torch.arange(m)
    return torch.linspace(0, m - 1, count, dtype=torch.float64).round().long()


def error_ratio(
    out,
    a,
    b,
    *,
    accumulation,
    dtype="bf16",
    budget=None,
    bias=None,
    activation=None,
    residual=None,
):
    """The largest |out - reference| over its bound; above 1 the result is wrong, NaN is worse.

    out: the result of act(a @ b + bias) + residual, (M, N) or (batch, M, N), on the device that
    made it, which decides the rounding rule; so does `dtype`, the operands' name. `budget` caps the
    floating-point operations of the float64 product by taking an even sample of the rows of a.
    """
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    if 0 in (*out.shape, k):
        return 0.0
    flops = 4.0 * m * n * k * math.prod(a.shape[:-2])  # two products: the result's and the bound's
    rows = sample_rows(m, flops, budget or flops)
    if accumulation == "f64":
        rows = rows[:: max(1, math.ceil(len(rows) / LONG_DOUBLES[0]))]
        columns = slice(None, None, max(1, n // LONG_DOUBLES[1]))
        b, out = b[..., columns], out[..., columns]
    a, out = a[..., rows.to(a.device), :].double(), out[..., rows.to(out.device), :]
    b, residual = b.double(), None if residual is None else residual[..., rows.to(out.device), :]
    reference = torch.matmul(a, b)
    if not out.is_floating_point():
        return _largest((out.double() - reference).abs(), torch.full_like(reference, 0.5))
    if dtype == "f32":
        bound = tolerance(out.device, k) * UNIT[torch.float32] * torch.matmul(a.abs(), b.abs())
    else:
        bound = growth(out.device, accumulation, k, dtype=dtype) * 4.0
        bound = bound * torch.matmul(a * a, b * b).sqrt_()
    unit = 2 * UNIT[torch.float32]  # of the epilogue; f64 has none here
    if accumulation == "s32":
        bound = bound + 4.0 * unit * reference.abs()
    if accumulation == "f64":
        difference = _long_double_difference(out, a, b)
    else:
        if bias is not None:
            reference = reference + bias.double()
        if activation is not None:
            bound = STEEPEST * bound + 4.0 * unit * reference.abs()
            reference = ACTIVATIONS[activation](reference)
        if residual is not None:
            reference = reference + residual.double()
            bound = bound + unit * reference.abs()
        difference = (out.double() - reference).abs()
    bound = bound + UNIT[out.dtype] * reference.abs()
    return _largest(difference, bound)


def _largest(difference, bound):
    """max(difference / bound), where 0 / 0 counts as 0; NaN stays NaN."""
    ratio = torch.where(difference == 0, torch.zeros_like(bound), difference / bound)
    return float("nan") if bool(ratio.isnan().any()) else float(ratio.max())


def _long_double_difference(out, a, b):
    """|out - a @ b| of float64 operands: a float64 reference would be as wrong as the result."""
    wide = [t.detach().cpu().numpy().astype(numpy.longdouble) for t in (out, a, b)]
    difference = numpy.abs(wide[0] - wide[1] @ wide[2]).astype(numpy.float64)
    return torch.from_numpy(difference).to(out.device)


def exact_integers(accumulation):
    """The largest operand whose sums stay exact up to K = 2^16: below 2^24 in f32, 2^11 in f16.

    The 14 bits of "fast" hold sums of ones: of that many they reach a few thousand.
    """
    return 1 if accumulation in ("f16", "fast") else 4


def is_exact(out, a, b, *, budget=None, finish=None):
    """Bit for bit the rounded exact product? For whole-number operands (Operands.integers) only.

    finish: what follows the product, on float64, where that is exact as well (a bias, relu); it
    gets the rows that are looked at too.
    """
    m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
    flops = 2.0 * m * n * k * math.prod(a.shape[:-2])
    rows = sample_rows(m, flops, budget or flops).to(a.device)
    expected = torch.matmul(a[..., rows, :].double(), b.double())
    expected = (finish(expected, rows) if finish else expected).to(out.dtype)
    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[out.element_size()]
    return torch.equal(out[..., rows, :].contiguous().view(bits), expected.contiguous().view(bits))
