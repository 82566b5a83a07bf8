"""The error of f32 products that keep all bits (precision="highest"), and torch's in the same run.

    python benchmarks/errors.py              every kind of data, K and layout -> table, PASS or MISS
    python benchmarks/errors.py --kind rows,special --depth 1,64,4096

    a, b of kinds.py --float64--> C64, |A||B| ----> max and rms of |C - C64| / (|A||B|)
           |                                        in units of 2^-24, of ours and of torch's
           `-------------> ours, torch.mm --------> PASS: no element is wrong, and ours are
                                                    at most torch's

On a GPU torch is torch.mm with TF32 forbidden. The CPU's result is defined, one fused multiply-add
after another in f32; there it is held to the bound of that (tcgemm/bench/accuracy.py).

Which elements are looked at, and how:

    an operand's Inf or NaN reaches it     the same Inf, or NaN, as in float64
    |A||B| is 0                            0
    |A||B| fits into f32                   the error; the unit is at least half the smallest
                                           subnormal, what the rounding of a tiny result may err
    |A||B| does not                        no sum is bound to be finite: an error within the bound
                                           is right, Inf of a sign whose products overflow alone,
                                           and NaN where both signs' do

The latest table of a GPU stands in benchmarks/results/errors/<gpu>.json, one line a row.
"""

import argparse
import math
import sys
from pathlib import Path

import dense
import error_table
import kinds
import store
import torch

import tcgemm
from tcgemm.bench import accuracy, kernel_name, rival, telemetry

DEPTHS = error_table.DEPTHS
LAYOUTS = ("TN", "NN")
SIZE = {"cuda": 512, "cpu": 64}  # M = N of every row; on a GPU some more have 1024
LARGE, LARGE_DEPTHS = 1024, (256, 1024, 4096, 8192)
UNIT = accuracy.UNIT[torch.float32]
LARGEST = torch.finfo(torch.float32).max
SMALLEST_NORMAL = torch.finfo(torch.float32).smallest_normal
SAFE = LARGEST * (1 - 2.0**-10)  # leaves room for the roundings of 2^13 sums
DIGITS = 6  # that are kept of a figure
METHOD = "max and rms of |C - C64| / (|A||B|) in units of 2^-24, torch.mm on the same operands"


class Reference:
    """What a @ b is in float64, and how far from it results are."""

    def __init__(self, a, b):
        self.tolerance = accuracy.tolerance(a.device, a.shape[-1])
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
        """{max, rms, wrong}: the errors where they are measured, and how many elements are none
        that a sum in f32 could give.
        """
        out = out.double()
        error = (out - self.value).abs() / self.unit
        same = torch.where(self.value.isnan(), out.isnan(), out == self.value)
        right = torch.where(self.fits, out.isfinite(), self._beyond(out, error))
        right = torch.where(self.special | self.zero, same, right)
        found = error[self.measured]
        if found.numel() == 0:
            largest, mean = 0.0, 0.0
        else:
            largest, mean = found.max().item(), found.square().mean().sqrt().item()
        return {"max": _kept(largest), "rms": _kept(mean), "wrong": int((~right).sum())}

    def _beyond(self, out, error):
        """Is each element right if |A||B| does not fit?"""
        up, down = (self.size + self.value) / 2 > SAFE, (self.size - self.value) / 2 > SAFE
        finite = torch.where(out > 0, up, down)  # of infinities, first
        finite = torch.where(out.isfinite(), error <= self.tolerance, finite)
        return torch.where(out.isnan(), up & down, finite)


def _kept(value):
    """As it stands in the file: what is judged there is what was judged here. None: not finite."""
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def exact_product(a, b):
    """tcgemm's, with all bits; into NaN, because fresh memory may hold an old result."""
    out = torch.full((a.shape[0], b.shape[1]), math.nan, device=a.device)
    return tcgemm.mm(a, b, precision="highest", out=out)


def torch_product(a, b):
    with rival.tf32_allowed(False):
        return torch.mm(a, b)


def bound(device, k):
    """What the CPU's definition may err, as if it were a rival."""
    largest = accuracy.tolerance(device, k)
    return {"max": largest, "rms": largest / 3, "wrong": 0}


def measure(kind, layout, m, n, k, device, *, ours=exact_product, theirs=torch_product):
    """The row of one kind of data, size and layout. theirs: None for the bound of a CPU."""
    a, b = kinds.operands(kind, layout, m, n, k, device)
    reference = Reference(a, b)
    share = reference.measured.double().mean().item()
    row = {"kind": kind, "layout": layout, "m": m, "n": n, "k": k}
    row["kernel"] = "cpu"
    if a.is_cuda:
        row["kernel"] = kernel_name(tcgemm.explain(a, b, precision="highest"))
    row["measured"] = _kept(share)
    row["ours"] = reference.errors(ours(a, b))
    row["rival"] = "bound" if theirs is None else "torch.mm"
    row["theirs"] = bound(device, k) if theirs is None else reference.errors(theirs(a, b))
    return row


def plan(device, chosen=tuple(kinds.KINDS), depths=DEPTHS, size=None):
    """(kind, layout, m, n, k) of every row of the table."""
    sizes = [(size or SIZE[device], layout, depths) for layout in LAYOUTS]
    if device == "cuda" and size is None:
        sizes.append((LARGE, "TN", [k for k in depths if k in LARGE_DEPTHS]))
    return [(kind, layout, m, m, k) for kind in chosen for m, layout, some in sizes for k in some]


def parse(argv):
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    parser.add_argument("--kind", default=",".join(kinds.KINDS), help="of the kinds (all)")
    parser.add_argument("--depth", default=",".join(map(str, DEPTHS)), help="values of K")
    parser.add_argument("--size", type=int, help="M = N (cuda: 512, and some 1024; cpu: 64)")
    parser.add_argument("--out", type=Path, help="file; a part of the table has none by default")
    parser.add_argument("--device", help="cuda or cpu (cuda where there is one)")
    parser.add_argument("--commit", help="where the checkout does not know it")
    options = parser.parse_args(argv)
    options.device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    options.kind = options.kind.split(",")
    options.depth = [int(k) for k in options.depth.split(",")]
    every = ([*kinds.KINDS], [*DEPTHS], None)
    options.whole = (options.kind, options.depth, options.size) == every
    for name in options.kind:
        if name not in kinds.KINDS:
            parser.error(f"--kind {name}: there are {', '.join(kinds.KINDS)}.")
    return options


def main(argv=None):
    options = parse(argv)
    gpu = dense.gpu_name(options.device)
    rows, theirs = [], torch_product if options.device == "cuda" else None
    sampler = telemetry.Sampler(telemetry.open_reader(options.device))
    with sampler:
        for case in plan(options.device, options.kind, options.depth, options.size):
            rows.append(measure(*case, options.device, ours=exact_product, theirs=theirs))
    header = dense.header(gpu, METHOD) | {
        "commit": options.commit or store.commit(),
        "clock_mhz": sampler.clock_mhz,
        "power_w": sampler.power_w,
    }
    path = options.out or (error_table.path_of(gpu) if options.whole else None)
    if path:
        error_table.save(path, header, rows)
    print(f"{gpu}, torch {torch.__version__}, commit {header['commit']} -> {path}")
    print(f"error in units of 2^-24 |A||B|, the largest of all K; in brackets {rows[0]['rival']}'s")
    print("\n".join(error_table.lines(rows)))
    promised = error_table.promised(rows)
    good = len(error_table.good(promised))
    print(f"right, and at most {rows[0]['rival']}'s: {good} of {len(promised)} promised")
    return 0 if good == len(promised) else 1


if __name__ == "__main__":
    sys.exit(main())
