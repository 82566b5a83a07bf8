"""The error of f32 GEMMs that keep all bits (precision="highest"), beside torch's.

    python -m benchmarks errors              all patterns, K and layouts -> table, PASS or MISS
    python -m benchmarks errors --pattern rows,special --depth 1,64,4096

    a, b of patterns.py --> C64, |A||B| in float64
    tcgemm, torch.mm    --> max and rms of |C - C64| / (|A||B|) in units of 2^-24
    PASS                    no element is wrong, and tcgemm's errors are at most torch's

On a GPU the baseline is torch.mm with TF32 forbidden. On the CPU it is a bound: the CPU's result is
defined as a chain of f32 FMAs (tcgemm/measure/errors.py).

How an element is judged:

    Inf or NaN of an operand reaches it    it must be the Inf or NaN of the float64 result
    |A||B| is 0                            it must be 0
    |A||B| fits into f32                   its error is measured; the unit is at least half the
                                           smallest subnormal, the rounding of a tiny result
    |A||B| does not fit                    an error within the bound is right; so is Inf if the
                                           terms of its sign overflow alone, and NaN if terms of
                                           both signs overflow

The latest table of a GPU is benchmarks/results/errors/<gpu>.json, one row per line.
"""

import math
from pathlib import Path

import torch

import tcgemm
from benchmarks.fp32_errors import patterns, table
from tcgemm.measure import (
    baseline,
    command_line,
    errors,
    kernel_name,
    machine,
    results_file,
    telemetry,
)

DEPTHS = table.DEPTHS
LAYOUTS = ("TN", "NN")
SIZE = {"cuda": 512, "cpu": 64}  # M = N of every row; on a GPU some more have 1024
LARGE, LARGE_DEPTHS = 1024, (256, 1024, 4096, 8192)
UNIT = errors.UNIT_ROUNDOFF[torch.float32]
LARGEST = torch.finfo(torch.float32).max
SMALLEST_NORMAL = torch.finfo(torch.float32).smallest_normal
SAFE = LARGEST * (1 - 2.0**-10)  # room for the roundings of 2^13 sums
DIGITS = 6  # significant digits in the table
METHOD = "max and rms of |C - C64| / (|A||B|) in units of 2^-24, torch.mm on the same operands"


class Reference:
    """a @ b in float64, and the errors of results against it."""

    def __init__(self, a, b):
        self.tolerance = errors.f32_tolerance(a.device, a.shape[-1])
        a, b = a.double(), b.double()
        self.value, self.size = a @ b, a.abs() @ b.abs()
        self.zero = self.size == 0
        self.special = ~self.value.isfinite()  # f32 products do not overflow in float64
        self.fits = self.size <= SAFE
        self.unit = self.size.clamp(min=SMALLEST_NORMAL) * UNIT

    @property
    def measured(self):
        return self.fits & ~self.zero

    def errors(self, out):
        """{max, rms, wrong}: the errors of the measured elements, and the number of elements that
        no f32 sum can give.
        """
        out = out.double()
        error = (out - self.value).abs() / self.unit
        same = torch.where(self.value.isnan(), out.isnan(), out == self.value)
        is_right = torch.where(self.fits, out.isfinite(), self._beyond(out, error))
        is_right = torch.where(self.special | self.zero, same, is_right)
        errors = error[self.measured]
        if errors.numel() == 0:
            largest, mean = 0.0, 0.0
        else:
            largest, mean = errors.max().item(), errors.square().mean().sqrt().item()
        return {"max": _kept(largest), "rms": _kept(mean), "wrong": int((~is_right).sum())}

    def _beyond(self, out, error):
        """Is each element right, if its |A||B| does not fit into f32?"""
        up, down = (self.size + self.value) / 2 > SAFE, (self.size - self.value) / 2 > SAFE
        finite = torch.where(
            out > 0, up, down
        )  # the rule for Inf; the next lines are for finite values and NaN
        finite = torch.where(out.isfinite(), error <= self.tolerance, finite)
        return torch.where(out.isnan(), up & down, finite)


def _kept(value):
    """The value as the file has it, so that both are judged alike. None if it is not finite."""
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def tcgemm_mm(a, b):
    """tcgemm.mm into NaN, because new memory may hold an old result."""
    out = torch.full((a.shape[0], b.shape[1]), math.nan, device=a.device)
    return tcgemm.mm(a, b, precision="highest", out=out)


def torch_mm(a, b):
    with baseline.tf32_allowed(False):
        return torch.mm(a, b)


def bound(device, k):
    """The bound of the CPU's result, in the form of a baseline's errors."""
    largest = errors.f32_tolerance(device, k)
    return {"max": largest, "rms": largest / 3, "wrong": 0}


def measure(pattern, layout, m, n, k, device, *, gemm=tcgemm_mm, torch_gemm=torch_mm):
    """The row of one pattern, size and layout. torch_gemm: the baseline; None: the CPU's bound."""
    a, b = patterns.operands(pattern, layout, m, n, k, device)
    reference = Reference(a, b)
    share = reference.measured.double().mean().item()
    row = {"kind": pattern, "layout": layout, "m": m, "n": n, "k": k}
    row["kernel"] = "cpu"
    if a.is_cuda:
        row["kernel"] = kernel_name(a, b, precision="highest")
    row["measured"] = _kept(share)
    row["errors"] = reference.errors(gemm(a, b))
    row["baseline"] = "bound" if torch_gemm is None else "torch.mm"
    row["baseline_errors"] = (
        bound(device, k) if torch_gemm is None else reference.errors(torch_gemm(a, b))
    )
    return row


def plan(device, names=tuple(patterns.PATTERNS), depths=DEPTHS, size=None):
    """(pattern, layout, m, n, k) of every row of the table."""
    sizes = [(size or SIZE[device], layout, depths) for layout in LAYOUTS]
    if device == "cuda" and size is None:
        sizes.append((LARGE, "TN", [k for k in depths if k in LARGE_DEPTHS]))
    return [(name, layout, m, m, k) for name in names for m, layout, ks in sizes for k in ks]


def parse(argv):
    parser = command_line.parser("benchmarks errors", __doc__)
    names = ",".join(patterns.PATTERNS)
    parser.add_argument("--pattern", default=names, help="input patterns (all)")
    parser.add_argument("--depth", default=",".join(map(str, DEPTHS)), help="values of K")
    parser.add_argument("--size", type=int, help="M = N (cuda: 512, and some 1024; cpu: 64)")
    parser.add_argument(
        "--out", type=Path, help="file; without it, a part of the table is not written"
    )
    parser.add_argument("--device", help="cuda or cpu (cuda where there is one)")
    parser.add_argument("--commit", help="the measured commit, if git does not know it")
    options = parser.parse_args(argv)
    options.device = options.device or command_line.default_device()
    options.pattern = options.pattern.split(",")
    options.depth = [int(k) for k in options.depth.split(",")]
    every = ([*patterns.PATTERNS], [*DEPTHS], None)
    options.whole = (options.pattern, options.depth, options.size) == every
    for name in options.pattern:
        if name not in patterns.PATTERNS:
            parser.error(f"--pattern {name}: there are {', '.join(patterns.PATTERNS)}.")
    return options


def main(argv=None):
    options = parse(argv)
    gpu = machine.gpu_name(options.device)
    rows, torch_gemm = [], torch_mm if options.device == "cuda" else None
    sampler = telemetry.Sampler(telemetry.open_reader(options.device))
    with sampler:
        for case in plan(options.device, options.pattern, options.depth, options.size):
            rows.append(measure(*case, options.device, gemm=tcgemm_mm, torch_gemm=torch_gemm))
    header = machine.facts(options.device) | {
        "method": METHOD,
        "commit": options.commit or results_file.commit(),
        "clock_mhz": sampler.clock_mhz,
        "power_w": sampler.power_w,
    }
    path = options.out or (table.path_of(gpu) if options.whole else None)
    if path:
        table.save(path, header, rows)
    print(f"{gpu}, torch {torch.__version__}, commit {header['commit']} -> {path}")
    baseline = rows[0]["baseline"]
    print(f"error in units of 2^-24 |A||B|, the largest of all K; in brackets {baseline}'s")
    print("\n".join(table.lines(rows)))
    selection = table.compared(rows)
    count = len(table.good(selection))
    print(f"right, and at most {baseline}'s: {count} of {len(selection)} rows")
    return 0 if count == len(selection) else 1
