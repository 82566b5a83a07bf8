"""The error of a product against float64, in units of what rounding alone can explain.

For operands drawn from a normal distribution, with L products a rounding of the accumulator,

    |C - C64|  <=  (K/L + 2) u_acc * 4 sqrt((A*A) @ (B*B))  +  u_out |C64|        elementwise

holds with room to spare: right results reach 0.04-0.21 of the right side, while a zeroed tile is
at 6 or more and one dropped k-step is seen. (The classic bound (K + 2) u |A| @ |B| is so wide on
such data that wrong results fit under it.) `error_ratio` returns the largest quotient of the two
sides, and NaN where anything was left unwritten. `is_exact` is the second check: small whole
numbers, bit by bit.
"""

import math

import numpy
import torch
import torch.nn.functional as F

from tcgemm.bench import operands

UNIT = {
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
LONG_DOUBLE_ROWS = 32  # numpy multiplies them without BLAS


def rounding(device, accumulation):
    """(L, u_acc): products that are added between two roundings, and the unit of what is lost.

    The CPU rounds after every product (after 16 of them in f16); a tensor core adds 16 at once, 8
    before Hopper, and cuts off what f32 does not hold.
    """
    unit = UNIT[operands.DTYPES[accumulation]]
    if torch.device(device).type == "cpu":
        return (16 if accumulation == "f16" else 1), unit
    products = 16 if torch.cuda.get_device_capability(device) >= (9, 0) else 8
    return products, 2 * unit if accumulation == "f32" else unit


def sample_rows(m, flops, budget):
    """All rows of a result, or an even sample of at least 256 when float64 would take too long."""
    count = m if flops <= budget else max(256, int(m * budget / flops))
    if count >= m:
        return torch.arange(m)
    return torch.linspace(0, m - 1, count, dtype=torch.float64).round().long()


def _product64(a, b):
    """a @ b beyond the precision of a and b, and the matrix sqrt((a*a) @ (b*b)), in float64."""
    wide_a, wide_b = a.double(), b.double()
    spread = torch.matmul(wide_a * wide_a, wide_b * wide_b).sqrt_()
    return torch.matmul(wide_a, wide_b), spread


def error_ratio(out, a, b, *, accumulation, budget=None, bias=None, activation=None, residual=None):
    """The largest |out - reference| over its bound; above 1 the result is wrong, NaN is worse.

    out: the result of act(a @ b + bias) + residual, (M, N) or (batch, M, N), on the device that
    made it, which decides the rounding rule. `budget` caps the floating-point operations of the
    float64 product by taking an even sample of the rows of a.
    """
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    if 0 in (*out.shape, k):
        return 0.0
    flops = 4.0 * m * n * k * math.prod(a.shape[:-2])  # two products: the result's and the bound's
    rows = sample_rows(m, flops, budget or flops)
    if a.dtype == torch.float64:
        rows = rows[:: max(1, math.ceil(len(rows) / LONG_DOUBLE_ROWS))]
    a, out = a[..., rows.to(a.device), :], out[..., rows.to(out.device), :]
    residual = None if residual is None else residual[..., rows.to(residual.device), :]
    reference, spread = _product64(a, b)
    products, unit = rounding(out.device, accumulation)
    bound = (math.ceil(k / products) + 2) * unit * 4.0 * spread
    if a.dtype == torch.float64:
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
    """The largest operand whose sums stay exact up to K = 2^16: below 2^24 in f32, 2^11 in f16."""
    return 1 if accumulation == "f16" else 4


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
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[out.element_size()]
    return torch.equal(out[..., rows, :].contiguous().view(bits), expected.contiguous().view(bits))
