"""error_report: the errors of a product by each way to add, emulated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tcgemm import dtypes, emulate, explain, info
from tcgemm.emulate import rounding
from tcgemm.emulate.product import architecture
from tcgemm.emulate.sums import BLOCK, Kernel
from tcgemm.numerics import bounds, problem
from tcgemm.numerics.formats import FORMATS
from tcgemm.numerics.report import ErrorReport, Way
from tcgemm.testing import baseline
from tcgemm.testing.numerics import UNIT_ROUNDOFF, apply_scale, long_double_difference

if TYPE_CHECKING:
    from torch import Tensor

    from tcgemm.numerics.problem import Problem
    from tcgemm.typing import Layout, Precision

UNIT = 2.0**-24


class Words(NamedTuple):
    """The words of a call that choose its sums."""

    precision: Precision | None = None
    acc_dtype: torch.dtype | None = None

    def text(self, accumulator: str) -> str:
        """As a user writes them; without words, the sums by their dtype."""
        found = []
        if self.precision is not None:
            found.append(f'precision="{self.precision}"')
        if self.acc_dtype is not None:
            found.append(f"acc_dtype={str(self.acc_dtype).removeprefix('torch.')}")
        return ", ".join(found) or f"{accumulator} sums"


_FP8 = (Words("promoted"), Words("fast"))
# The ways to add products of a dtype, if there is more than one.
CHOICES: dict[torch.dtype, tuple[Words, ...]] = {
    torch.float16: (Words(acc_dtype=torch.float32), Words(acc_dtype=torch.float16)),
    torch.float32: (Words("highest"), Words("high"), Words("medium")),
    torch.float8_e4m3fn: _FP8,
    torch.float8_e5m2: _FP8,
}


def error_report(
    a: Tensor | tuple[int, int, int],
    b: Tensor | None = None,
    *,
    precision: Precision | None = None,
    acc_dtype: torch.dtype | None = None,
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    dtype: torch.dtype = torch.bfloat16,
    data: str = "normal",
    layout: Layout = "TN",
    seed: int = 0,
    device: str | None = None,
) -> ErrorReport:
    """Says what the sums of tcgemm.mm(a, b, ...) lose on a GPU, and what others would.

    Example:
        >>> from tcgemm.numerics import error_report
        >>> report = error_report((4096, 4096, 16384), dtype=torch.float8_e4m3fn, data="uniform")
        >>> [way.name for way in report.ways], report.planned.name
        (['precision="promoted"', 'precision="fast"'], 'precision="promoted"')
        >>> fast = report.ways[1]
        >>> fast.drift < -0.01  # the tensor cores' 14 bits lose more than 1 % of every sum
        True

    The sums of 48 rows and 48 columns are emulated, bit for bit, and compared with float64. It
    needs no GPU. Operands may be matrices or a distribution.

    Arguments:
        a: (M, K), float16, bfloat16, float32, float64, float8 or int8; or the sizes (M, N, K).
        b: (K, N). None if a has the sizes.
        precision, acc_dtype, scale_a, scale_b, out_dtype: as for tcgemm.mm.
        dtype: of operands that are drawn.
        data: their distribution: "normal", "uniform" in [0, 1), or "spread", normal numbers times
            2^-6 to 2^6.
        layout: their layout: "TN", "NN", "TT" or "NT".
        seed: of their random numbers.
        device: a GPU of tcgemm.info.devices(); None is that of a, or the H200.

    Returns:
        An ErrorReport. It prints as a table.

    Raises:
        ValueError: a shape, a distribution or a GPU is not known.
        TypeError, RuntimeError: what tcgemm.mm raises for these arguments.
        ImportError: The library of the emulator is not there.
    """
    if isinstance(a, torch.Tensor):
        if b is None:
            raise TypeError("b is missing: error_report takes a and b, or the sizes (M, N, K).")
        asked, data = problem.of_tensors(a, b, scale_a, scale_b), "data of the caller"
    else:
        if b is not None or scale_a is not None or scale_b is not None:
            raise TypeError("b, scale_a and scale_b need a matrix a; here a is a shape.")
        asked = problem.of_shape(a, dtype, data, layout, seed)
    gpu = _gpu(asked.a, device)
    given = Words(precision, acc_dtype)
    ways = _ways(asked, given, out_dtype, gpu)
    out_dtype = out_dtype or dtypes.result(asked.a.dtype)
    facts = {"m": asked.a.shape[0], "n": asked.b.shape[1], "k": asked.a.shape[1]}
    facts |= {"dtype": dtypes.short_name(asked.a.dtype), "gpu": gpu, "data": data}
    facts |= {"out_dtype": dtypes.short_name(out_dtype)}
    facts |= {"rows": len(asked.row), "columns": len(asked.column)}
    roundoff = UNIT_ROUNDOFF.get(out_dtype, 0.5)
    return ErrorReport(ways, _of_torch(asked, out_dtype), roundoff, facts)


def _gpu(a: Tensor, device: str | None) -> str:
    """The name of the GPU as the table has it."""
    names = [row["name"] for row in info.devices()]
    wanted = device
    if wanted is None and a.is_cuda:
        own = torch.cuda.get_device_name(a.device)
        wanted = next((name for name in names if name in own), own)
    wanted = wanted or names[0]
    found = next((name for name in names if name.lower() == wanted.lower()), None)
    if found is None:
        raise ValueError(f"device is {wanted!r}; expected one of {', '.join(names)}.")
    return found


def _ways(asked: Problem, given: Words, out_dtype: torch.dtype | None, gpu: str) -> list[Way]:
    """The way of the call, and those of other words that can be planned."""

    def kernel_of(words: Words) -> str | None:
        scales = {"scale_a": asked.scale_a, "scale_b": asked.scale_b}
        options = {**scales, **words._asdict(), "out_dtype": out_dtype, "device": gpu}
        return explain(asked.a, asked.b, **options).kernel

    planned = kernel_of(given)
    ways, seen = [], set()
    for words in (*CHOICES.get(asked.a.dtype, ()), given):
        try:
            kernel = kernel_of(words)
        except RuntimeError:
            continue  # the scales or the result exclude these words
        if kernel in seen or kernel is None:
            continue
        seen.add(kernel)
        ways.append(_way(asked, words, kernel, kernel == planned, out_dtype, gpu))
    if not ways:
        raise ValueError("The product has no elements, so there is nothing to report.")
    return ways


def _sums(kernel: str, gpu: str, operand: torch.dtype) -> bounds.Sums:
    """How a kernel of the catalog adds products of operands of a dtype on a GPU."""
    row = next(row for row in info.catalog() if row["name"] == kernel)
    found = None
    if row["terms"] == 1 and row["accumulator"] in ("f32", "f16"):
        found = Kernel(row, architecture(gpu), False).instruction()
    promoted = BLOCK if row["promoted"] else 0
    unit = 0.0
    if operand is torch.float32 and row["terms"] == 1:
        # Operands are rounded to tf32 or bfloat16, or float64 sums to float32.
        unit = UNIT if row["accumulator"] == "f64" else 2 * FORMATS[row["input"]].unit_roundoff
    return bounds.Sums(found, promoted, row["terms"], row["accumulator"], unit)


def _way(
    asked: Problem,
    words: Words,
    kernel: str,
    is_planned: bool,
    out_dtype: torch.dtype | None,
    gpu: str,
) -> Way:
    """The emulated errors of the sample with a kernel."""
    scale_a, scale_b = asked.sampled_scales()
    a, b = apply_scale(asked.rows, scale_a), apply_scale(asked.columns, scale_b)
    exact = a @ b  # of the result
    reference = exact  # of the sums

    def emulated(**options: Any) -> Tensor:
        scales = {"scale_a": scale_a, "scale_b": scale_b}
        options = {**scales, **words._asdict(), "kernel": kernel, "device": gpu, **options}
        return emulate.mm(asked.rows, asked.columns, amax=False, **options)

    if asked.a.dtype.is_floating_point:
        sums = emulated(before_activation=True)
        result = rounding.to(sums, out_dtype or dtypes.result(asked.a.dtype))
        difference = _error(asked, sums, exact, a, b)
    else:  # the sums are int32, before any scale
        sums, result = emulated(scale_a=None, scale_b=None), emulated(out_dtype=out_dtype)
        a, b = asked.rows.double(), asked.columns.double()
        reference = a @ b
        difference = (sums.double() - reference).abs()
    size = a.abs() @ b.abs()
    units = _divide(difference, size) / UNIT
    added = _sums(kernel, gpu, asked.a.dtype)
    k = asked.a.shape[1]
    allowed = _divide(bounds.normal_data(added, a, b), size) / UNIT
    magnitude = reference.abs()
    return Way(
        name=words.text(added.accumulator),
        kernel=kernel,
        is_planned=is_planned,
        largest=units.max().item(),
        mean=_rms(units),
        any_data=bounds.any_data(added, k) / UNIT,
        normal_data=allowed.max().item(),
        relative=_divide(difference.square().mean(), magnitude.square().mean()).sqrt().item(),
        drift=_divide((sums.double().abs() - magnitude).mean(), magnitude.mean()).item(),
        last_place=last_places(result, exact, _error(asked, result, exact, a, b)),
    )


def _error(asked: Problem, found: Tensor, exact: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """|found - a @ b|; of float64 operands in long double, as `exact` is rounded like found."""
    if asked.a.dtype is torch.float64:
        return long_double_difference(found.double(), a, b)
    return (found.double() - exact).abs()


def _rms(x: Tensor) -> float:
    return x.square().mean().sqrt().item()


def _divide(x: Tensor, y: Tensor) -> Tensor:
    """x / y, and 0 where both are 0."""
    return torch.where(x == 0, torch.zeros_like(x), x / y)


def last_places(result: Tensor, exact: Tensor, difference: Tensor | None = None) -> float:
    """The largest |result - exact|, or `difference`, in units of the last place of the result."""
    if difference is None:
        difference = (result.double() - exact).abs()
    if result.is_floating_point():
        fraction, lowest = 52, -1022
        name = dtypes.short_name(result.dtype)
        if name in FORMATS:
            known = FORMATS[name]
            fraction, lowest = known.fraction_bits, 1 - known.bias
        exponent = exact.abs().frexp().exponent - 1
        exponent = exponent.clamp(min=lowest).where(exact != 0, torch.full_like(exponent, lowest))
        difference = torch.ldexp(difference, fraction - exponent)
    return difference.max().item()


def _of_torch(asked: Problem, out_dtype: torch.dtype) -> float | None:
    """The largest error of torch's product on the GPU of a, in units of the last place."""
    a, b = asked.a, asked.b
    if not a.is_cuda or asked.scale_a is not None or asked.scale_b is not None:
        return None
    one = torch.ones((), device=a.device)
    try:
        found = baseline.product(a, b, scales=(one, one))
    except RuntimeError:  # torch has no such product of these shapes
        return None
    if found.dtype is not out_dtype:
        return None
    rows, columns, sample = asked.rows.double(), asked.columns.double(), asked.pick(found)
    exact = rows @ columns
    return last_places(sample, exact, _error(asked, sample, exact, rows, columns))
