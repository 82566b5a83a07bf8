"""Measures products against torch and keeps the latest result of each case.

    python benchmarks/dense.py --set targets,dtypes             the promised ratios, PASS or MISS
    python benchmarks/dense.py --set squares,llm --dtype f16 --layout TN,NN
    python benchmarks/dense.py --set squares --kernel sm80      only kernels of that name
    python benchmarks/dense.py --set all --minutes 8 --resume   the next shard of everything

`all` is `dense` (the 16-bit types), `dtypes` (all others) and `sparse` (2:4; benchmarks/sparse.py).

A row is written to benchmarks/results/<gpu>.json (or --out) as soon as it is measured, so a run
that is cut off loses one case. --resume skips what this commit has measured already, here or in
benchmarks/results. A case that fails is recorded with its sentence and the next one runs, unless
the GPU itself is lost.

    case -> operands past the cache -> check against float64 -> time, rivals in turns -> row
"""

import argparse
import contextlib
import platform
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # a checkout need not be installed to be measured

import promises  # noqa: E402
import shapes  # noqa: E402
import store  # noqa: E402
import torch  # noqa: E402
from passes import Pass  # noqa: E402
from workload import Workload, as_row  # noqa: E402

from tcgemm.bench import operands, rival, telemetry, timing  # noqa: E402

METHOD = (
    "normal data, operand sets past twice the L2, CUDA graphs, rivals in alternating turns of one "
    "process, medians; graph false: host time of a call (CPU: wall clock)"
)
APART = 0.02  # relative, in the Frobenius norm: more than roundings to 8 bits can do
HEAD = f"{'case':40} {'kernel':45} {'us':>9} {'TFLOP/s':>8} {'GB/s':>6} {'x torch':>8} {'error':>6}"


def parse(argv):
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)

    def comma(value):
        return tuple(value.split(","))

    known = (*shapes.GROUPS, *shapes.SETS)
    parser.add_argument("--set", type=comma, required=True, help=", ".join(known))
    parser.add_argument("--dtype", type=comma, help=f"of {', '.join(operands.DTYPES)}")
    parser.add_argument("--layout", type=comma, help=f"of {', '.join(operands.LAYOUTS)}")
    parser.add_argument("--kernel", default="", help="force catalog kernels of this name")
    parser.add_argument("--minutes", type=float, default=8.0, help="stop after (8)")
    parser.add_argument("--resume", action="store_true", help="skip what this commit measured")
    parser.add_argument("--out", type=Path, help="file, or folder for <gpu>.json")
    parser.add_argument("--ms", type=float, default=400.0, help="of timing a candidate (400)")
    parser.add_argument("--device", help="cuda or cpu (cuda where there is one)")
    parser.add_argument("--no-rival", action="store_true", help="time tcgemm alone")
    parser.add_argument("--commit", help="where the checkout does not know it")
    options = parser.parse_args(argv)
    options.device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    for given, names, what in (
        (options.set, known, "--set"),
        (options.dtype or (), operands.DTYPES, "--dtype"),
        (options.layout or (), operands.LAYOUTS, "--layout"),
    ):
        for name in given:
            if name not in names:
                parser.error(f"{what} {name}: there are {', '.join(names)}.")
    large = [name for name in chosen_sets(options) if name in shapes.GROUPS["sparse"]]
    if large and options.device == "cpu":
        parser.error(
            f"--set {','.join(options.set)} needs a GPU (for {', '.join(large)}), but this is the "
            "CPU; take --set smoke-sparse, which has small ones of all that."
        )
    return options


def chosen_sets(options):
    names = [name for given in options.set for name in shapes.GROUPS.get(given, (given,))]
    return list(dict.fromkeys(names))


def chosen_cases(options):
    return [
        case
        for name in chosen_sets(options)
        for case in shapes.cases(name, options.dtype, options.layout, options.kernel)
    ]


def gpu_name(device):
    return torch.cuda.get_device_name() if device == "cuda" else "cpu"


def header(gpu, method=METHOD):
    """What all rows of a run share and a reader needs to repeat it."""
    driver = None
    if gpu != "cpu":
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        with contextlib.suppress(OSError, subprocess.SubprocessError, IndexError):
            answer = subprocess.run(query, capture_output=True, text=True, timeout=20).stdout
            driver = answer.split()[0]
    return {
        "gpu": gpu,
        "driver": driver,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "processor": f"{platform.machine()}, {torch.get_num_threads()} threads",
        "date": _now(),
        "method": method,
    }


def _now():
    return datetime.now(UTC).isoformat(timespec="seconds")


def measure_case(case, options, gpu, commit, reader):
    """-> (row, detail) of one case."""
    if options.no_rival:
        case = replace(case, rival=False, own="")
    work = (Pass if case.op in shapes.PASSES else Workload)(case, options.device)
    checks = work.check()
    candidates = work.candidates()
    refusals = {
        name: rival.refusal(candidates[name]) for name in ("rival", "dense") if name in candidates
    }
    for name in filter(refusals.get, refusals):
        del candidates[name]
    sampler = telemetry.Sampler(reader)
    if case.graph:
        common = {"device": options.device, "min_ms": options.ms, "sampler": sampler}
        timings = _captured(candidates, refusals, work.sets, **common)
    else:
        with sampler:
            timings = timing.host_time(candidates, work.sets, device=options.device)
    row = work.row(timings, checks, gpu=gpu, commit=commit, sampler=sampler)
    detail = {"date": _now(), "sets": work.sets, "bytes": work.bytes} | work.detail(timings)
    if refusals.get("rival"):
        detail["refused"] = refusals["rival"]
    for name, found in timings.items():
        detail[f"{name}_iqr_us"] = round(found.iqr_us, 3)
        detail[f"{name}_samples"] = found.samples
    if row["max_error_ratio"] is None:
        detail["error"] = "an element of the result is NaN, infinite or was never written."
    return row, detail


def _captured(candidates, refusals, sets, **options):
    """Kernel times; without torch's call if that cannot be captured into a graph."""
    try:
        return timing.measure(candidates, sets, **options)
    except RuntimeError as error:
        if "rival" not in candidates:
            raise
        refusals["rival"] = f"(in a CUDA graph) {error}".split("\n")[0]
    candidates = {name: call for name, call in candidates.items() if name != "rival"}
    return timing.measure(candidates, sets, **options)


def line(case, row, detail):
    """`us | TFLOP/s | GB/s | x torch` of one case."""
    name = f"{case.set} {case.op} {case.dtype} {case.layout} {case.size}"
    name += f" {case.accumulation}" if case.accumulation in ("f16", "fast") else ""
    name += "" if case.epilogue == "none" else f" {case.epilogue}"
    if row["us"] is None:
        return f"{name:40} {detail['error']}"
    rate = f"{'host':>8} {'':6}"
    if case.graph:
        rate = f"{'':8}" if row["tflops"] is None else f"{row['tflops']:8.1f}"
        rate += f" {detail['bytes'] / row['us'] / 1e3:6.0f}"
    ratio = f"{row['ratio']:8.3f}" if row["ratio"] else f"{'':8}"
    error = "NaN" if row["max_error_ratio"] is None else f"{row['max_error_ratio']:.2f}"
    spread = 100 * detail["tcgemm_iqr_us"] / row["us"]
    text = f"{name:40} {row['kernel']:45} {row['us']:9.2f} {rate} {ratio} {error:>6}"
    text += f"  +-{spread:.1f} %" + ("" if row["exact"] in (True, None) else "  NOT EXACT")
    if row["clock_mhz"]:
        text += f"  {row['clock_mhz']:.0f} MHz {row['power_w']:.0f} W"
    for name in ("own", "dense"):
        if name in detail:
            text += f"  {detail[f'{name}_ratio']:.3f} x {detail[name]}"
    if "kept" in detail:
        text += f"  keeps {detail['kept']:.5f} of |w|, torch {detail.get('rival_kept', '-')}"
    if detail.get("rival_apart", 0.0) > APART:
        text += f"  torch's result is another one ({detail['rival_apart']:.2g} apart)"
    if "refused" in detail:
        text += f"  torch refuses: {detail['refused'][:80]}"
    return text + verdict(case, row)


def verdict(case, row):
    if not case.target or row["ratio"] is None:
        return ""
    return f"  {'PASS' if row['ratio'] >= case.target else 'MISS'} ({case.target:g})"


def is_wrong(row):
    error = row["max_error_ratio"]
    return row["us"] is None or error is None or error > 1 or row["exact"] is False


def failed(case, gpu, commit, error):
    """-> (row, detail) of a case that raised."""
    detail = {"date": _now(), "error": f"{type(error).__name__}: {error}".split("\n")[0]}
    return as_row(case, gpu, {"commit": commit}), detail


def gpu_is_lost(device):
    """After an illegal access every later call fails too: those would be no results."""
    if device != "cuda":
        return False
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except RuntimeError:
        return True
    return False


class Run:
    """One shard: the results so far, and what happened in it."""

    def __init__(self, options):
        self.options = options
        self.gpu = gpu_name(options.device)
        self.commit = options.commit or store.commit()
        path = options.out or store.RESULTS
        self.path = path if path.suffix == ".json" else path / store.file_name(self.gpu)
        self.results = store.load(self.path)
        self.known = self._measured() if options.resume else {}
        self.results["header"] = header(self.gpu)
        self.reader = telemetry.open_reader(options.device)
        self.done = self.bad = self.met = self.promised = 0
        self.session = store.empty()  # the cases of this call, measured now or before

    def _measured(self):
        """{key: (row, detail)} of this commit, here or in the results of the checkout."""
        checkout = store.load(store.RESULTS / self.path.name)
        return {
            store.key(row): (row, results["details"][store.key(row)])
            for results in (checkout, self.results)
            for row in results["rows"]
            if row["commit"] == self.commit and row["us"]
        }

    def case(self, case):
        """Measures one case, or takes what --resume found, and counts it."""
        name = store.key(as_row(case, self.gpu, {}))
        row, detail = self.known.get(name, (None, None))
        if row is None:
            row, detail = self._measure(case)
            store.put(self.results, row, detail)
            store.save(self.results, self.path)
            print(line(case, row, detail), flush=True)
        elif case.target:
            print(line(case, row, detail))
        store.put(self.session, row, detail)
        self.done += 1
        self.bad += is_wrong(row)
        if case.target:
            self.promised += 1
            self.met += row["ratio"] is not None and row["ratio"] >= case.target

    def is_known(self, case):
        return store.key(as_row(case, self.gpu, {})) in self.known

    def _measure(self, case):
        try:
            return measure_case(case, self.options, self.gpu, self.commit, self.reader)
        except Exception as error:  # one case must not take the others with it
            return failed(case, self.gpu, self.commit, error)


def main(argv=None):
    options = parse(argv)
    run, cases = Run(options), chosen_cases(options)
    stop = time.monotonic() + 60 * options.minutes
    print(f"{run.gpu}, torch {torch.__version__}, commit {run.commit} -> {run.path}\n{HEAD}")
    for case in cases:
        if time.monotonic() > stop and not run.is_known(case):
            print(f"{options.minutes:g} minutes are over; --resume measures the other cases.")
            break
        run.case(case)
        if gpu_is_lost(options.device):
            print("The GPU no longer answers (see the error above): nothing more can be measured.")
            break
    print(f"{run.done} of {len(cases)} cases done, {run.bad} failed or wrong.")
    text, met, promised = promises.lines(run.session)
    if run.promised + promised:
        print("\n".join([f"targets: {run.met + met} of {run.promised + promised} met.", *text]))
    return 1 if run.bad else 0


if __name__ == "__main__":
    sys.exit(main())
