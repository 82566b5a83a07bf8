"""The error of a GEMM against float64, relative to the error that rounding can cause.

The bound assumes operands from a normal distribution. With L products per rounding of the
accumulator, it is for each element

    |C - C64|  <=  (K/L + 2) u_acc * 4 sqrt((A*A) @ (B*B))  +  u_out |C64|

Correct results reach 0.04 to 0.21 of the right side. A result with a tile of zeros reaches 6 or
more, and one without a step along k is above 1. The classic bound (K + 2) u |A| @ |B| is too wide:
on normal data, wrong results stay below it. `error_ratio` returns the largest quotient of the two
sides, and NaN if an element was not written. `is_exact` is the second check: on small integers it
compares every bit.

An f32 GEMM that keeps all bits of its operands (precision="highest") has a tighter bound, which
holds for any data:

    |C - C64|  <=  f32_tolerance(K) 2^-24 |A| @ |B|  +  u_out |C64|

    accumulation   the roundings on a GPU
    f32, f16, f64  the sum is rounded after L products
    fast           float8: the sum is rounded after 32 products, to the 14 bits of a tensor core
    promoted       float8: the same within each 128 of k; the sums of 128 are added in f32
    s32            none; the bound is zero

For operands that are rounded to tf32 or multiplied by scales, callers pass the results of
`tcgemm.emulate.rounding.round_to_tf32` or of `apply_scale`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tcgemm.measure import operands
from tcgemm.ops.activations import ACTIVATIONS, activate
from tcgemm.typing import Activation

# Half the distance from 1 to the next larger number, for each dtype that rounds.
UNIT_ROUNDOFF = {
    torch.float8_e5m2: 2.0**-3,
    torch.float8_e4m3fn: 2.0**-4,
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
    torch.float32: 2.0**-24,
    torch.float64: 2.0**-53,
}
BLOCK = 128  # elements along K (and N) that share a scale; float8 sums are promoted every 128 of k
FP8_SUM_ROUNDOFF = 2.0**-13  # tensor cores keep 14 bits of a float8 sum and of its addends
# Rows and columns that the f64 check samples, because it takes about 25 products.
F64_SAMPLE = (32, 256)
MOST_ADDENDS = 8  # of a float64 matrix; those of normal data are 4 or 5


def products_per_rounding(
    device: torch.device | str, accumulation: str, dtype: str = "bf16"
) -> int:
    """How many products are added before the accumulator is rounded once.

    The CPU rounds after each product (in f16 after 16). A tensor core adds 16 at once on Hopper,
    and 8 on older GPUs: half as many of tf32, and twice as many of float8.
    """
    if torch.device(device).type == "cpu":
        return 16 if accumulation == "f16" else 1
    if accumulation == "f64":
        return 1
    products = 16 if torch.cuda.get_device_capability(device) >= (9, 0) else 8
    if accumulation in ("fast", "promoted"):
        return 2 * products
    return products // 2 if dtype == "tf32" else products


def accumulator_roundoff(device: torch.device | str, accumulation: str) -> float:
    """The relative error of one rounding of the accumulator.

    A tensor core truncates the sum to an f32 accumulator, which has twice the error of rounding to
    nearest. It rounds an f16 accumulator to nearest.
    """
    on_cpu = torch.device(device).type == "cpu"
    if accumulation in ("fast", "promoted"):
        return UNIT_ROUNDOFF[torch.float32] if on_cpu else FP8_SUM_ROUNDOFF
    unit = UNIT_ROUNDOFF[operands.DTYPES[accumulation]]
    return unit if on_cpu or accumulation != "f32" else 2 * unit


def accumulation_error(
    device: torch.device | str,
    accumulation: str,
    k: int,
    *,
    dtype: str = "bf16",
    products: int | None = None,
) -> float:
    """(K/L + 2) u_acc: the factor of sqrt((A*A) @ (B*B)) in the bound, without the 4."""
    if accumulation == "s32":
        return 0.0
    unit = accumulator_roundoff(device, accumulation)
    products = products or products_per_rounding(device, accumulation, dtype)
    if accumulation == "promoted" and torch.device(device).type != "cpu":
        # The errors of the blocks are independent, so they add up as the blocks do.
        blocks = math.ceil(k / BLOCK)
        inner = (math.ceil(min(k, BLOCK) / products) + 2) * unit
        return inner + accumulation_error("cpu", "f32", blocks)
    return (math.ceil(k / products) + 2) * unit


def f32_tolerance(device: torch.device | str, k: int) -> float:
    """The largest |C - C64| of a correct f32 GEMM, in units of 2^-24 |A| @ |B|.

    The CPU rounds after every product: the error is a random walk, 1.1 sqrt(k) if all products have
    one sign, and at most k. A GPU adds at least 32 products in tensor cores, which truncate (up to
    7 units if all products have one sign), and rounds the sum of these sums.
    """
    if torch.device(device).type == "cpu":
        return 1.0 + min(k, 3.0 * math.sqrt(k))
    return 8.0 + 2.0 * math.sqrt(k / 32)


def apply_scale(values: Tensor, scale: Tensor | None = None) -> Tensor:
    """values * scale in float64, for a matrix and a scale of any shape that tcgemm.mm takes."""
    if scale is None:
        return values.double()
    return values.double() * expand_scale(scale, *values.shape[-2:])


def expand_scale(scale: Tensor, rows: int, columns: int) -> Tensor:
    """A scale of blocks, expanded to a value for each row and column.

    A dimension of size 1, along which all elements share a scale, keeps this size.
    """
    for dim, size in ((-2, rows), (-1, columns)):
        if scale.dim() >= 2 and scale.shape[dim] not in (1, size):
            scale = scale.repeat_interleave(BLOCK, dim).narrow(dim, 0, size)
    return scale.double()


def sample_rows(m: int, flops: float, budget: float) -> Tensor:
    """The numbers of all m rows of a result, or an even sample of at least 256 rows if `flops`
    exceed the budget."""
    count = m if flops <= budget else max(256, int(m * budget / flops))
    if count >= m:
        return torch.arange(m, device="cpu")
    return torch.linspace(0, m - 1, count, dtype=torch.float64, device="cpu").round().long()


def error_ratio(
    out: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    accumulation: str,
    dtype: str = "bf16",
    budget: float | None = None,
    bias: Tensor | None = None,
    activation: Activation | None = None,
    residual: Tensor | None = None,
    products: int | None = None,
    operand_error: float = 0.0,
) -> float:
    """The largest |out - reference| over its bound. A result with more than 1, or NaN, is wrong.

    Example:
        >>> from tcgemm.measure import errors
        >>> a, b = torch.randn(64, 96).bfloat16(), torch.randn(96, 48).bfloat16()
        >>> errors.error_ratio(tcgemm.mm(a, b), a, b, accumulation="f32") < 1
        True

    Arguments:
        out (Tensor): act(a @ b + bias) + residual, (M, N) or (batch, M, N), on the device that
            computed it. The device selects the rounding rule.
        a, b (Tensor): the operands as they were multiplied, (..., M, K) and (..., K, N).
        accumulation (str): "f32", "f16", "f64", "fast", "promoted" or "s32".
        dtype (str): the name of the operands' dtype, as in operands.DTYPES.
        budget (float): the limit of the floating-point operations of the float64 reference. An even
            sample of the rows of a keeps it. Default: no limit.
        bias, activation, residual: the arguments of the call.
        products (int): how many products are added before the accumulator is rounded. Default:
            what this GPU's largest instruction adds.
        operand_error (float): the largest relative error of an element of b as it was multiplied,
            such as the error of a packed weight that a kernel rounds. Default: none.
    """
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    if 0 in (*out.shape, k):
        return 0.0
    flops = 4.0 * m * n * k * math.prod(a.shape[:-2])  # two GEMMs: the reference and the bound
    rows = sample_rows(m, flops, budget or flops)
    if accumulation == "f64":
        rows = rows[:: max(1, math.ceil(len(rows) / F64_SAMPLE[0]))]
        columns = slice(None, None, max(1, n // F64_SAMPLE[1]))
        b, out = b[..., columns], out[..., columns]
    a, out = a[..., rows.to(a.device), :].double(), out[..., rows.to(out.device), :]
    b, residual = b.double(), None if residual is None else residual[..., rows.to(out.device), :]
    reference = torch.matmul(a, b)
    if not out.is_floating_point():
        return _largest((out.double() - reference).abs(), torch.full_like(reference, 0.5))
    if dtype == "f32":
        bound = f32_tolerance(out.device, k) * UNIT_ROUNDOFF[torch.float32]
        bound = bound * torch.matmul(a.abs(), b.abs())
    else:
        error = accumulation_error(out.device, accumulation, k, dtype=dtype, products=products)
        bound = (error + operand_error) * 4.0
        bound = bound * torch.matmul(a * a, b * b).sqrt_()
    unit = 2 * UNIT_ROUNDOFF[torch.float32]  # the epilogue runs in f32
    if accumulation == "s32":
        bound = bound + 4.0 * unit * reference.abs()
    if accumulation == "f64":
        difference = exact_difference(out, a, b)
    else:
        if bias is not None:
            reference = reference + bias.double()
        if activation is not None:
            bound = ACTIVATIONS[activation].max_slope * bound + 4.0 * unit * reference.abs()
            reference = activate(reference, activation)
        if residual is not None:
            reference = reference + residual.double()
            bound = bound + unit * reference.abs()
        difference = (out.double() - reference).abs()
    bound = bound + UNIT_ROUNDOFF[out.dtype] * reference.abs()
    return _largest(difference, bound)


def _largest(difference: Tensor, bound: Tensor) -> float:
    """max(difference / bound), with 0 / 0 = 0. A NaN in either gives NaN."""
    ratio = torch.where(difference == 0, torch.zeros_like(bound), difference / bound)
    return float("nan") if bool(ratio.isnan().any()) else float(ratio.max())


def exact_difference(out: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """|out - a @ b| for float64 (M, N), (M, K) and (K, N), as float64 on the device of `out`.

    A float64 reference would have an error as large as the error of `out`. So the rows of `a` and
    the columns of `b` are split into addends of a few bits, whose products have exact sums (Ozaki,
    Ogita, Oishi and Rump 2012). The largest products are subtracted first.
    """
    bits = (53 - math.ceil(math.log2(max(2, a.shape[1])))) // 2
    of_a, of_b = _addends(a.detach().cpu(), bits, 1), _addends(b.detach().cpu(), bits, 0)
    difference = out.detach().cpu().double()
    for order in range(len(of_a) + len(of_b) - 1):
        for index in range(max(0, order - len(of_b) + 1), min(order + 1, len(of_a))):
            difference = difference - torch.matmul(of_a[index], of_b[order - index])
    return difference.abs().to(out.device)


def _addends(x: Tensor, bits: int, dim: int) -> list[Tensor]:
    """Tensors with the sum x; their elements are multiples of a unit that is one along `dim`, and
    have so many bits. The largest addend is the first."""
    addends: list[Tensor] = []
    while len(addends) < MOST_ADDENDS and (not addends or bool(x.any())):
        largest = x.abs().amax(dim, keepdim=True)
        mantissa = torch.frexp(largest).mantissa
        unit = torch.where(largest == 0, 1.0, largest / mantissa * 2.0**-bits)  # a power of two
        addends.append((x / unit).round() * unit)
        x = x - addends[-1]
    return addends


def largest_exact_integer(accumulation: str) -> int:
    """The largest integer in operands whose products have exact sums up to K = 2^16.

    Sums are exact below 2^24 in f32 and below 2^11 in f16. Sums of "fast" have 14 bits. With
    operands of at most 1, sums of 2^16 products reach a few thousand, which 14 bits can hold.
    """
    return 1 if accumulation in ("f16", "fast") else 4


def is_exact(
    out: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    budget: float | None = None,
    bias: Tensor | None = None,
    activation: Activation | None = None,
    residual: Tensor | None = None,
) -> bool:
    """Has `out` every bit of the exact result, rounded once? Only for integer operands.

    Example:
        >>> from tcgemm.measure import errors
        >>> a, b = (torch.randint(-4, 5, (32, 32)).bfloat16() for _ in range(2))
        >>> errors.is_exact(tcgemm.mm(a, b), a, b)
        True

    Arguments:
        out, a, b (Tensor): (M, N), (M, K) and (K, N), or batches of them.
        budget (float): as for `error_ratio`.
        bias, activation, residual: of the call; integers, and relu, so that they are exact as well.
    """
    m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
    flops = 2.0 * m * n * k * math.prod(a.shape[:-2])
    rows = sample_rows(m, flops, budget or flops).to(a.device)
    expected = torch.matmul(a[..., rows, :].double(), b.double())
    if bias is not None:
        expected = expected + bias.double()
    expected = activate(expected, activation)
    if residual is not None:
        expected = expected + residual[..., rows, :].double()
    expected = expected.to(out.dtype)
    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[out.element_size()]
    return torch.equal(out[..., rows, :].contiguous().view(bits), expected.contiguous().view(bits))
