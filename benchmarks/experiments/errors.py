"""The set errors: the error of f32 products that keep all bits (precision="highest"), and torch's.

    a, b of patterns.py --> C64, |A||B| in float64
    tcgemm, torch.mm    --> max and rms of |C - C64| / (|A||B|) in units of 2^-24

A row has the errors of both, and how many elements no f32 sum can give, in its facts. The bound of
its error is torch's error: a row is wrong if an element is wrong or tcgemm errs by more, max or
rms. Its time is that of one call, from Python. On a GPU the baseline is torch.mm with TF32
forbidden. On the CPU it is a bound: the CPU's result is defined as a chain of f32 FMAs
(tcgemm/measure/errors.py).

How an element is judged:

    Inf or NaN of an operand reaches it    it must be the Inf or NaN of the float64 result
    |A||B| is 0                            it must be 0
    |A||B| fits into f32                   its error is measured; the unit is at least half the
                                           smallest subnormal, the rounding of a tiny result
    |A||B| does not fit                    an error within the bound is right; so is Inf if the
                                           terms of its sign overflow alone, and NaN if terms of
                                           both signs overflow
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

import tcgemm
from benchmarks.experiments import patterns
from tcgemm.measure import baseline, errors, kernel_name, machine, results
from tcgemm.measure.operands import in_layout
from tcgemm.measure.results import Aims, Row
from tcgemm.measure.run import Conditions
from tcgemm.typing import Layout

SET = "errors"
DEPTHS = tuple(2**i for i in range(14))
LAYOUTS: tuple[Layout, ...] = ("TN", "NN")
SIZE, SMALL = 512, 64  # M = N of every row; on the CPU it is small
LARGE, LARGE_DEPTHS = 1024, (256, 1024, 4096, 8192)
# Measured, but not compared: their sums have few terms, so that torch hardly rounds.
NOT_COMPARED = ("one-hot", "sparse")
UNIT = errors.UNIT_ROUNDOFF[torch.float32]
LARGEST = torch.finfo(torch.float32).max
SMALLEST_NORMAL = torch.finfo(torch.float32).smallest_normal
SAFE = LARGEST * (1 - 2.0**-10)  # room for the roundings of 2^13 sums
Gemm = Callable[[Tensor, Tensor], Tensor]
NAMES = ("max", "rms")


class Reference:
    """a @ b in float64, and the errors of results against it."""

    def __init__(self, a: Tensor, b: Tensor) -> None:
        self.tolerance = errors.f32_tolerance(a.device, a.shape[-1])
        a, b = a.double(), b.double()
        self.value, self.size = a @ b, a.abs() @ b.abs()
        self.zero = self.size == 0
        self.special = ~self.value.isfinite()  # f32 products do not overflow in float64
        self.fits = self.size <= SAFE
        self.unit = self.size.clamp(min=SMALLEST_NORMAL) * UNIT

    @property
    def measured(self) -> Tensor:
        """The elements whose errors are measured."""
        return self.fits & ~self.zero

    def errors(self, out: Tensor) -> Row:
        """{max, rms, wrong}: the errors of the measured elements in units, None if not finite, and
        the number of elements that no f32 sum can give.
        """
        out = out.double()
        error = (out - self.value).abs() / self.unit
        same = torch.where(self.value.isnan(), out.isnan(), out == self.value)
        is_right = torch.where(self.fits, out.isfinite(), self._beyond(out, error))
        is_right = torch.where(self.special | self.zero, same, is_right)
        found = error[self.measured]
        largest = found.max().item() if found.numel() else 0.0
        mean = found.square().mean().sqrt().item() if found.numel() else 0.0
        return {"max": _kept(largest), "rms": _kept(mean), "wrong": int((~is_right).sum())}

    def _beyond(self, out: Tensor, error: Tensor) -> Tensor:
        """Is each element right, if its |A||B| does not fit into f32?"""
        up, down = (self.size + self.value) / 2 > SAFE, (self.size - self.value) / 2 > SAFE
        infinite = torch.where(out > 0, up, down)
        number = torch.where(out.isfinite(), error <= self.tolerance, infinite)
        return torch.where(out.isnan(), up & down, number)


def _kept(value: float) -> float | None:
    """The value with the digits that the file has. None if it is not finite."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def tcgemm_mm(a: Tensor, b: Tensor) -> Tensor:
    """tcgemm.mm into NaN, because new memory may hold an old result."""
    out = torch.full((a.shape[0], b.shape[1]), math.nan, device=a.device)
    return tcgemm.mm(a, b, precision="highest", out=out)


def torch_mm(a: Tensor, b: Tensor) -> Tensor:
    """torch.mm with TF32 forbidden."""
    with baseline.tf32_allowed(False):
        return torch.mm(a, b)


def bound(device: torch.device | str, k: int) -> Row:
    """The bound of the CPU's result, in the form of a baseline's errors."""
    largest = errors.f32_tolerance(device, k)
    return {"max": largest, "rms": largest / 3, "wrong": 0}


def excess(row: Row) -> dict[str, float]:
    """{"max": , "rms": } of tcgemm's error over the baseline's; inf if tcgemm's is not finite.

    float64 itself errs by at most k * 2^-53 of |A||B|, so a difference of that size is ignored.
    """
    own, other = row["facts"]["errors"], row["facts"]["baseline_errors"]
    ratios = {}
    for name in NAMES:
        error, limit = (math.inf if x[name] is None else x[name] for x in (own, other))
        limit += row["k"] * 2.0**-29
        ratios[name] = error if error in (0.0, math.inf) else error / limit
    return ratios


def is_good(row: Row) -> bool:
    """Is every element one that f32 can give, and are both errors at most the baseline's?"""
    return not row["facts"]["errors"]["wrong"] and max(excess(row).values()) <= 1


class Errors(NamedTuple):
    """The job of one row."""

    data: str
    layout: Layout
    m: int
    n: int
    k: int

    @property
    def name(self) -> str:
        """The job in a few words."""
        return f"{SET} {self.data} {self.layout} {self.m}x{self.n}x{self.k}"

    def cases(self, device: torch.device) -> list[Row]:
        """The case of its row."""
        first = {"set": SET, "function": "mm", "dtype": "f32", "accumulation": "f32"}
        return [first | results.DEFAULTS | self._asdict()]

    def measure(self, conditions: Conditions, aims: Aims, earlier: Row | None) -> list[Row]:
        """Its row."""
        is_gpu = conditions.device.type == "cuda"
        return [self.row(conditions.device, torch_gemm=torch_mm if is_gpu else None)]

    def row(
        self, device: torch.device | str, *, gemm: Gemm = tcgemm_mm, torch_gemm: Gemm | None
    ) -> Row:
        """The row of a product beside the baseline. torch_gemm None: beside the CPU's bound."""
        a, b = patterns.operands(*self, device)
        reference = Reference(a, b)
        start = time.perf_counter()
        out = gemm(a, b)
        if a.is_cuda:
            torch.cuda.synchronize(a.device)
        us = round((time.perf_counter() - start) * 1e6, 1)
        own = reference.errors(out)
        other = reference.errors(torch_gemm(a, b)) if torch_gemm else bound(device, self.k)
        kernel = kernel_name(a, b, precision="highest") if a.is_cuda else "cpu"
        row = self.cases(a.device)[0] | results.EMPTY
        row |= {"kernel": kernel, "us": us, "iqr_us": 0.0, "date": machine.now()}
        row["facts"] = {"errors": own, "baseline_errors": other}
        if self.data not in NOT_COMPARED:
            largest = max(excess(row).values())
            row["max_error_ratio"] = round(largest, 4) if math.isfinite(largest) else None
            row["exact"] = False if own["wrong"] or largest == math.inf else None
        return row

    def plan(self, gpu: str) -> str:
        """The kernel that the planner takes on a GPU."""
        a, b = (torch.empty(shape, device="meta") for shape in ((self.m, self.k), (self.k, self.n)))
        return kernel_name(*in_layout(self.layout, a, b), precision="highest", device=gpu)


def jobs(options: argparse.Namespace) -> list[Errors]:
    """The jobs of the set."""
    most, size = (options.max_size, SMALL) if options.max_size else (DEPTHS[-1], SIZE)
    layouts: Sequence[Layout] = options.layout or LAYOUTS
    places = [(layout, size, k) for layout in layouts for k in DEPTHS if k <= most]
    if not options.max_size:
        places += [("TN", LARGE, k) for k in LARGE_DEPTHS]
    return [
        Errors(data, layout, size, size, k)
        for data in patterns.PATTERNS
        for layout, size, k in places
    ]
