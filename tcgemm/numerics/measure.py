"""error_report: the errors of a product by each way to add, emulated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tcgemm import dtypes, emulate, explain, info
from tcgemm.emulate import rounding
from tcgemm.emulate.product import architecture
from tcgemm.emulate.sums import Kernel
from tcgemm.measure import baseline
from tcgemm.measure.errors import UNIT_ROUNDOFF, apply_scale, exact_difference
from tcgemm.numerics import bounds, problem
from tcgemm.numerics.formats import FORMATS
from tcgemm.numerics.report import ErrorReport, Way

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
        words = []
        if self.precision is not None:
            words.append(f'precision="{self.precision}"')
        if self.acc_dtype is not None:
            words.append(f"acc_dtype={str(self.acc_dtype).removeprefix('torch.')}")
        return ", ".join(words) or f"{accumulator} sums"


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
        device: a GPU of tcgemm.info.devices(); None is the GPU of a, or the H200.

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
        question, data = problem.of_tensors(a, b, scale_a, scale_b), "data of the caller"
    else:
        if b is not None or scale_a is not None or scale_b is not None:
            raise TypeError("b, scale_a and scale_b need a matrix a; here a is a shape.")
        question = problem.of_shape(a, dtype, data, layout, seed)
    gpu = _gpu(question.a, device)
    words = Words(precision, acc_dtype)
    ways = _ways(question, words, out_dtype, gpu)
    out_dtype = out_dtype or dtypes.result(question.a.dtype)
    facts = {"m": question.a.shape[0], "n": question.b.shape[1], "k": question.a.shape[1]}
    facts |= {"dtype": dtypes.short_name(question.a.dtype), "gpu": gpu, "data": data}
    facts |= {"out_dtype": dtypes.short_name(out_dtype)}
    facts |= {"rows": len(question.row), "columns": len(question.column)}
    roundoff = UNIT_ROUNDOFF.get(out_dtype, 0.5)
    return ErrorReport(ways, _of_torch(question, out_dtype), roundoff, facts)


def _gpu(a: Tensor, device: str | None) -> str:
    """The name of the GPU as the table has it."""
    names = [row["name"] for row in info.devices()]
    choice = device
    if choice is None and a.is_cuda:
        own = torch.cuda.get_device_name(a.device)
        choice = next((name for name in names if name in own), own)
    choice = choice or names[0]
    match = next((name for name in names if name.lower() == choice.lower()), None)
    if match is None:
        raise ValueError(f"device is {choice!r}; expected one of {', '.join(names)}.")
    return match


def _ways(question: Problem, call: Words, out_dtype: torch.dtype | None, gpu: str) -> list[Way]:
    """The way of the call, and the ways of other words that can be planned."""

    def kernel_of(words: Words) -> str | None:
        scales = {"scale_a": question.scale_a, "scale_b": question.scale_b}
        options = {**scales, **words._asdict(), "out_dtype": out_dtype, "device": gpu}
        return explain(question.a, question.b, **options).kernel

    planned = kernel_of(call)
    ways, kernels = [], set()
    for words in (*CHOICES.get(question.a.dtype, ()), call):
        try:
            kernel = kernel_of(words)
        except RuntimeError:
            continue  # the scales or the result exclude these words
        if kernel in kernels or kernel is None:
            continue
        kernels.add(kernel)
        ways.append(_way(question, words, kernel, kernel == planned, out_dtype, gpu))
    if not ways:
        raise ValueError("The product has no elements, so there is nothing to report.")
    return ways


def _way(
    question: Problem,
    words: Words,
    kernel: str,
    is_planned: bool,
    out_dtype: torch.dtype | None,
    gpu: str,
) -> Way:
    """The emulated errors of the sample with a kernel."""
    scale_a, scale_b = question.sampled_scales()
    a, b = apply_scale(question.rows, scale_a), apply_scale(question.columns, scale_b)
    exact = a @ b  # of the result
    reference = exact  # of the sums

    def emulated(**options: Any) -> Tensor:
        scales = {"scale_a": scale_a, "scale_b": scale_b}
        options = {**scales, **words._asdict(), "kernel": kernel, "device": gpu, **options}
        return emulate.mm(question.rows, question.columns, amax=False, **options)

    if question.a.dtype.is_floating_point:
        sums = emulated(before_activation=True)
        result = rounding.to(sums, out_dtype or dtypes.result(question.a.dtype))
        difference = _error(question, sums, exact, a, b)
    else:  # the sums are int32, before any scale
        sums, result = emulated(scale_a=None, scale_b=None), emulated(out_dtype=out_dtype)
        a, b = question.rows.double(), question.columns.double()
        reference = a @ b
        difference = (sums.double() - reference).abs()
    size = a.abs() @ b.abs()
    units = _divide(difference, size) / UNIT
    row = next(row for row in info.catalog() if row["name"] == kernel)
    kind, (_, k) = Kernel(row, architecture(gpu), False), question.a.shape
    bound = _divide(bounds.normal_data(kind, question.a.dtype, a, b), size) / UNIT
    magnitude = reference.abs()
    return Way(
        name=words.text(row["accumulator"]),
        kernel=kernel,
        is_planned=is_planned,
        largest=units.max().item(),
        mean=_rms(units),
        any_data=bounds.any_data(kind, question.a.dtype, k) / UNIT,
        normal_data=bound.max().item(),
        relative=_divide(difference.square().mean(), magnitude.square().mean()).sqrt().item(),
        drift=_divide((sums.double().abs() - magnitude).mean(), magnitude.mean()).item(),
        last_place=last_places(result, exact, _error(question, result, exact, a, b)),
    )


def _error(question: Problem, result: Tensor, exact: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """|found - a @ b|; of float64 operands from exact sums, as `exact` is rounded like found."""
    if question.a.dtype is torch.float64:
        return exact_difference(result.double(), a, b)
    return (result.double() - exact).abs()


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
            row = FORMATS[name]
            fraction, lowest = row.fraction_bits, 1 - row.bias
        exponent = exact.abs().frexp().exponent - 1
        exponent = exponent.clamp(min=lowest).where(exact != 0, torch.full_like(exponent, lowest))
        difference = torch.ldexp(difference, fraction - exponent)
    return difference.max().item()


def _of_torch(question: Problem, out_dtype: torch.dtype) -> float | None:
    """The largest error of torch's product on the GPU of a, in units of the last place."""
    a, b = question.a, question.b
    if not a.is_cuda or question.scale_a is not None or question.scale_b is not None:
        return None
    scale = torch.ones((), device=a.device)
    try:
        result = baseline.product(a, b, scales=(scale, scale))
    except RuntimeError:  # torch has no such product of these shapes
        return None
    if result.dtype is not out_dtype:
        return None
    rows, columns, sample = question.rows.double(), question.columns.double(), question.pick(result)
    exact = rows @ columns
    return last_places(sample, exact, _error(question, sample, exact, rows, columns))
