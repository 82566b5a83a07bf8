"""The products in float64, and how far from them a right result may be.

    out = act(alpha * (a @ b) + beta * c + bias) + residual

The bound follows the formula from the inside to the outside, elementwise. With u the unit of a
type's rounding, L products a rounding of the accumulator, and acc, epilogue and out the three types
that round (the epilogue works in f32, in f64 for f64):

    product     (K/L + 2) u_acc 4 sqrt((A*A) @ (B*B))       statistical: normal data
                (K + 2) u_acc |A| @ |B|                     classic: adversarial data
    addends     |alpha| * product + 4 u_epi (|alpha AB| + |beta C| + |bias|)
    activation  slope * addends + 8 u_epi |x|               slope: the steepest of the activation
    residual    activation + 2 u_epi (|act| + |residual|)
    out         residual + u_out |out| + half the smallest subnormal

Right results stand at 0.04 to 0.2 of the statistical bound, and results with a zeroed tile or a
dropped k-step far above 1 (test_faults.py); on normal data the classic bound is too wide to see
either. `error_ratio` is the largest error over its bound: above 1 the result is wrong.

The second tier is exact: on small integers every sum is exact, so `exact` has one right answer, and
`assert_exact` compares every element.
"""

import math

import numpy
import torch
import torch.nn.functional as F

UNIT = {
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
    torch.float32: 2.0**-24,
    torch.float64: 2.0**-53,
}
HALF_SMALLEST = {
    torch.float16: 2.0**-25,
    torch.bfloat16: 2.0**-134,
    torch.float32: 2.0**-150,
    torch.float64: 0.0,
}
ACTIVATIONS = {
    None: lambda x: x,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}
SLOPE = {None: 1.0, "relu": 1.0, "gelu": 1.13, "gelu_tanh": 1.13, "silu": 1.1}


def accumulator_unit(device, dtype):
    """A tensor core cuts off what f32 does not hold; the CPU, and an f16 accumulator, round."""
    return 2.0**-23 if device == "cuda" and dtype == torch.float32 else UNIT[dtype]


def products_a_rounding(device, accumulator):
    """Products that are added before anything is rounded."""
    if device == "cpu":
        return 16 if accumulator == torch.float16 else 1
    return 16 if torch.cuda.get_device_capability() >= (9, 0) else 8


def matmul64(a, b):
    """a @ b in float64; of float64 operands rounded from the 80 bits of numpy's longdouble."""
    if a.dtype != torch.float64:
        return torch.matmul(a.double(), b.double())
    wide = [t.detach().cpu().numpy().astype(numpy.longdouble) for t in (a, b)]
    return torch.from_numpy(numpy.asarray(numpy.matmul(*wide), numpy.float64)).to(a.device)


def evaluate(
    a,
    b,
    c=None,
    bias=None,
    residual=None,
    *,
    activation=None,
    alpha=1.0,
    beta=1.0,
    out_dtype=None,
    acc_dtype=None,
    classic=False,
):
    """(reference, bound) of a product with its epilogue, both float64.

    a and b are what torch.matmul takes; c, bias and residual broadcast to its result.
    """
    accumulator = acc_dtype or (torch.float64 if a.dtype == torch.float64 else torch.float32)
    device, depth = a.device.type, a.shape[-1]
    u_acc = accumulator_unit(device, accumulator)
    u_epi = UNIT[torch.float64 if a.dtype == torch.float64 else torch.float32]
    out_dtype = out_dtype or a.dtype

    a64, b64 = a.double(), b.double()
    product = matmul64(a, b)
    if classic:
        bound = (depth + 2) * u_acc * torch.matmul(a64.abs(), b64.abs())
    else:
        steps = math.ceil(depth / products_a_rounding(device, accumulator))
        bound = (steps + 2) * u_acc * 4 * torch.matmul(a64 * a64, b64 * b64).sqrt()

    value = alpha * product
    size = value.abs()
    bound = abs(alpha) * bound
    for factor, addend in ((beta, c), (1.0, bias)):
        if addend is not None and factor != 0:
            value = value + factor * addend.double()
            size = size + abs(factor) * addend.double().abs()
    if alpha != 1.0 or c is not None or bias is not None:
        bound = bound + 4 * u_epi * size
    if activation is not None:
        bound = SLOPE[activation] * bound + 8 * u_epi * value.abs()
        value = ACTIVATIONS[activation](value)
    if residual is not None:
        bound = bound + 2 * u_epi * (value.abs() + residual.double().abs())
        value = value + residual.double()
    bound = bound + UNIT[out_dtype] * value.abs() + HALF_SMALLEST[out_dtype]
    return value, bound


def error_ratio(out, a, b, *addends, **options):
    """The largest |out - reference| / bound; infinite where NaN, Inf or the shape is another."""
    options.setdefault("out_dtype", out.dtype)
    value, bound = evaluate(a, b, *addends, **options)
    if out.shape != value.shape:
        return math.inf
    return largest_ratio(out, value, bound)


def largest_ratio(out, value, bound):
    """max(|out - value| / bound), where both alike, NaN and Inf too, counts as 0."""
    rounded = value.to(out.dtype)
    alike = (out == rounded) | (out.isnan() & rounded.isnan())
    ratio = torch.where(alike, 0.0, (out.double() - value).abs() / bound)
    return float(ratio.nan_to_num(nan=math.inf, posinf=math.inf).max()) if ratio.numel() else 0.0


def exact(a, b, c=None, bias=None, residual=None, *, out_dtype=None, **options):
    """The one right result for small integers: float64, where all is exact, rounded once.

    Only for activations that keep integers (relu), and whole alpha and beta.
    """
    options.pop("acc_dtype", None)
    value, _ = evaluate(a, b, c, bias, residual, **options)
    return value.to(out_dtype or a.dtype)


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
