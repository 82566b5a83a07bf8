"""Measures sets of cases against torch and keeps the latest result of each case.

    --set squares,llm --dtype f16 --layout TN,NN
    --set squares --kernel sm80                   only kernels of that name
    --set all --out results --minutes 8 --resume  what is missing, for eight minutes
    --set all --shard 2/5 --out two.json          the second of five parts of the cases
    --set drawn --seed 77                         cases that the seed 77 draws
    --set llm --dry-run                           the plans on an H200; needs no GPU
    --set all --max-size 64                       small cases, for the CPU

The groups are dense (16-bit dtypes), dtypes (other dtypes), sparse, all (these three) and drawn.

`python -m tcgemm bench` stores what it measures in --out. In a checkout, `python -m benchmarks run`
does the same with benchmarks/results as the default, and counts the targets that are met.

All cases have their first repetition before any has its second. Each repetition is written as soon
as it is measured, so a run that is killed loses one. --resume continues with those that this commit
lacks. If a case fails, its row has the error; the next one runs, unless the GPU itself is lost.

    case -> operands past the cache -> check against float64 -> time, candidates alternating -> row
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from tcgemm.measure import (
    baseline,
    cases,
    command_line,
    drawn,
    machine,
    operands,
    protocol,
    results_file,
    telemetry,
    timing,
)
from tcgemm.measure.case import PASSES, Case
from tcgemm.measure.protocol import Aims, Detail
from tcgemm.measure.results_file import Results, Row
from tcgemm.measure.sparse_passes import Pass
from tcgemm.measure.telemetry import Reader
from tcgemm.measure.timing import Timing
from tcgemm.measure.training import Training
from tcgemm.measure.work import Work, as_row
from tcgemm.measure.workloads import Workload

Checks = tuple[float | None, bool | None]  # max_error_ratio, exact


class Target(Protocol):
    """A target for a whole set of cases."""

    def is_about(self, row: Mapping[str, Any]) -> bool:
        """Does the target apply to a case with these fields?"""
        ...


class Targets(Protocol):
    """The module that knows the targets of whole sets: benchmarks/targets.py."""

    TARGETS: Iterable[Target]

    def aims(self, row: Mapping[str, Any]) -> Aims:
        """The targets of each ratio of a case with these fields."""
        ...

    def listing(self, sets: Sequence[str]) -> Sequence[str]:
        """A line for each target of these sets."""
        ...

    def summary_lines(self, results: Results) -> tuple[Sequence[str], int, int]:
        """(lines to print, targets that are met, targets that were measured)."""
        ...


METHOD = (
    "normal data, operand sets past twice the L2, CUDA graphs, candidates in alternating turns of "
    "one process, up to three repetitions spread over the run, medians; graph false: host time of "
    "a call (CPU: wall clock)"
)
DIFFERENT = 0.02  # a relative Frobenius norm; rounding to 8 bits causes less
COLUMNS = (("case", -46), ("kernel", -45), ("us", 9), ("TFLOPS", 7), ("GB/s", 6))
COLUMNS += (("x torch", 7), ("error", 5))


def columns(values: Iterable[str]) -> str:
    """One line of the output; a negative width aligns to the left."""
    pairs = zip(values, COLUMNS, strict=True)
    return " | ".join(f"{v:{'<' if width < 0 else '>'}{abs(width)}}" for v, (_, width) in pairs)


def shard(text: str) -> tuple[int, int]:
    """ "2/5" -> (2, 5)."""
    part, _, parts = text.partition("/")
    if not (part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} is no part of a whole such as 2/5")
    return int(part), int(parts)


def comma(text: str) -> tuple[str, ...]:
    """The words of a list that commas separate."""
    return tuple(word.strip() for word in text.split(","))


def parse(
    argv: Sequence[str] | None, command: str = "tcgemm bench", more: Sequence[str] = ()
) -> argparse.Namespace:
    """The options of a command line; argv None: the process's own.

    `more` are sets that the caller measures itself; they are named in the help and in errors.
    """
    parser = command_line.parser(command, __doc__)
    sets = (*cases.GROUPS, *cases.NAMES)
    parser.add_argument("--set", type=comma, required=True, help=", ".join((*sets, *more)))
    parser.add_argument("--dtype", type=comma, help=f"of {', '.join(operands.DTYPES)}")
    parser.add_argument("--layout", type=comma, help=f"of {', '.join(operands.LAYOUTS)}")
    parser.add_argument("--kernel", default="", help="only kernels whose name contains this")
    parser.add_argument("--minutes", type=float, default=8.0, help="stop after so many (8)")
    parser.add_argument(
        "--resume", action="store_true", help="skip what was measured at this commit"
    )
    parser.add_argument("--out", type=Path, help="file, or folder for <gpu>.json")
    seconds = f"time of a candidate where its ratio is close ({protocol.MS:g})"
    parser.add_argument("--ms", type=float, default=protocol.MS, help=seconds)
    text = f"of a case whose ratio is close ({protocol.REPETITIONS})"
    parser.add_argument("--repetitions", type=int, default=protocol.REPETITIONS, help=text)
    parser.add_argument("--seed", type=int, default=drawn.SEED, help="of drawn sets (%(default)s)")
    parser.add_argument("--shard", type=shard, default=(1, 1), help="2/5: the second of five parts")
    parser.add_argument("--device", help="cuda or cpu (cuda where there is one)")
    parser.add_argument("--no-baseline", action="store_true", help="time tcgemm alone")
    parser.add_argument("--targets", action="store_true", help="only cases that have a target")
    parser.add_argument("--max-size", type=int, help="limit M, N and K; results go to --out only")
    parser.add_argument("--dry-run", action="store_true", help="print the plans, measure nothing")
    parser.add_argument("--gpu", default="H200", help="the GPU of --dry-run (H200)")
    parser.add_argument("--commit", help="the measured commit, where there is no git")
    options = parser.parse_args(argv)
    options.device = options.device or command_line.default_device()
    for choices, names, option in (
        (options.set, sets, "--set"),
        (options.dtype or (), operands.DTYPES, "--dtype"),
        (options.layout or (), operands.LAYOUTS, "--layout"),
    ):
        for name in choices:
            if name not in names:
                words = ", ".join((*names, *more) if option == "--set" else names)
                parser.error(f"{option} {name}: there are {words}.")
    large = [name for name in chosen_sets(options) if name in cases.GROUPS["sparse"]]
    if large and options.device == "cpu" and not (options.max_size or options.dry_run):
        parser.error(
            f"--set {','.join(options.set)} needs a GPU (for {', '.join(large)}), but this is the "
            "CPU; take --set smoke-sparse, --max-size 64 or --dry-run."
        )
    return options


def chosen_sets(options: argparse.Namespace) -> list[str]:
    """The names of the sets that --set gives, with groups expanded."""
    names = [name for group in options.set for name in cases.GROUPS.get(group, (group,))]
    return list(dict.fromkeys(names))


def chosen_cases(options: argparse.Namespace, targets: Targets | None = None) -> list[Case]:
    """The cases of the options."""
    selection = [
        case
        for name in chosen_sets(options)
        for case in cases.cases(
            name, options.dtype, options.layout, options.kernel, seed=options.seed
        )
        if not options.targets or has_target(case, targets)
    ]
    if options.max_size:
        selection = list(dict.fromkeys(case.limited(options.max_size) for case in selection))
    part, parts = options.shard
    return selection[part - 1 :: parts]


def has_target(case: Case, targets: Targets | None) -> bool:
    """Has the case a target, of its own or of its set?"""
    fields = asdict(case)
    set_targets = targets.TARGETS if targets else ()
    return bool(case.target) or any(target.is_about(fields) for target in set_targets)


def workload(case: Case, device: torch.device | str) -> Work:
    """The runnable form of a case."""
    if case.op in PASSES:
        return Pass(case, device)
    return Training(case, device) if case.op == "train" else Workload(case, device)


def aims_of(case: Case, targets: Targets | None) -> Aims:
    """The targets of each ratio of a case: its own, and the targets of its set."""
    fields = targets.aims(asdict(case)) if targets else {}
    aims = {name: list(values) for name, values in fields.items()}
    if case.target:
        aims.setdefault("ratio", []).append(case.target)
    return aims


def measure_case(
    case: Case,
    options: argparse.Namespace,
    gpu: str,
    commit: str,
    reader: Reader | None,
    aims: Aims,
    checks: Checks | None = None,
) -> tuple[Row, Detail]:
    """Measures one case: (row, detail). It is checked first, unless `checks` has what an earlier
    repetition found. `aims` are the targets near which a short look is not enough."""
    if options.no_baseline:
        case = replace(case, baseline=False, self_baseline="")
    work = workload(case, options.device)
    checks = checks or work.check()
    candidates = work.candidates()
    refusals: dict[str, str] = {}
    for name in ("baseline", "dense", "fused"):
        if name in candidates and (reason := baseline.refusal(candidates[name])):
            refusals[name] = reason
            del candidates[name]
    sampler = telemetry.Sampler(reader)
    if case.graph:

        def is_clear(timings: Mapping[str, Timing]) -> bool:
            return protocol.is_clear(protocol.ratios_of(timings), aims)

        common = {"device": options.device, "min_ms": options.ms, "sampler": sampler}
        common |= {"refusals": refusals, "enough": is_clear}
        timings = timing.measure(candidates, work.sets, **common)
    else:
        with sampler:
            timings = timing.host_time(candidates, work.sets, device=options.device)
    row = work.row(timings, checks, gpu=gpu, commit=commit, sampler=sampler)
    detail = {"date": machine.now(), "sets": work.sets, "bytes": work.bytes} | work.detail(timings)
    if "baseline" in refusals:
        detail["refused"] = refusals["baseline"]
    detail["ms"] = round(timings["tcgemm"].total_ms)
    for name, sample in timings.items():
        detail[f"{name}_iqr_us"] = round(sample.iqr_us, 3)
        detail[f"{name}_samples"] = sample.samples
    if row["max_error_ratio"] is None:
        detail["error"] = "an element of the result is NaN, infinite or was never written."
    return row, detail


def name_of(case: Case) -> str:
    """The case in one column: set, op, dtype, layout, size, and other options."""
    name = f"{case.set} {case.op} {case.dtype} {case.layout} {case.size}"
    name += f" {case.accumulation}" if case.accumulation in ("f16", "fast") else ""
    return name + ("" if case.epilogue == "none" else f" {case.epilogue}")


def line(case: Case, row: Row, detail: Detail) -> str:
    """The line of one case: its name and `kernel | us | TFLOPS | GB/s | x torch | error`.

    "x torch" is tcgemm's speed divided by torch's.
    """
    if row["us"] is None:
        return f"{name_of(case):46} | {detail['error']}"
    rate, traffic = "host", ""
    if case.graph:
        rate = "" if row["tflops"] is None else f"{row['tflops']:.1f}"
        traffic = f"{detail['bytes'] / row['us'] / 1e3:.0f}"
    ratio = f"{row['ratio']:.3f}" if row["ratio"] else ""
    error = "NaN" if row["max_error_ratio"] is None else f"{row['max_error_ratio']:.2f}"
    spread = 100 * detail["tcgemm_iqr_us"] / row["us"]
    us = f"{row['us']:.2f}"
    text = columns((name_of(case), row["kernel"], us, rate, traffic, ratio, error))
    text += f"  +-{spread:.1f} %" + ("" if row["exact"] in (True, None) else "  NOT EXACT")
    if row["clock_mhz"]:
        text += f"  {row['clock_mhz']:.0f} MHz {row['power_w']:.0f} W"
    for name in protocol.OTHERS:
        if name in detail:
            text += f"  {detail[f'{name}_ratio']:.3f} x {detail[name]}"
    if "kept" in detail:
        text += f"  keeps {detail['kept']:.5f} of |w|, torch {detail.get('baseline_kept', '-')}"
    if detail.get("baseline_apart", 0.0) > DIFFERENT:
        text += f"  torch's result differs (norm of the difference: {detail['baseline_apart']:.2g})"
    if "refused" in detail:
        text += f"  torch refuses: {detail['refused'][:80]}"
    return text + spread_of(row, detail) + outcome(case, row, detail)


def spread_of(row: Row, detail: Detail) -> str:
    """The range of the ratio, where there are several repetitions."""
    span, count = protocol.span(row, detail), len(protocol.repetitions(row, detail))
    return f"  {span[0]:.3f}..{span[1]:.3f} in {count}" if span and count > 1 else ""


def outcome(case: Case, row: Row, detail: Detail) -> str:
    """PASS, MISS or UNCLEAR, and the target, for a case that has one."""
    span = protocol.span(row, detail)
    return (
        f"  {protocol.claim(span, case.target)} ({case.target:g})" if case.target and span else ""
    )


def is_wrong(row: Row) -> bool:
    """Did the case fail, or one of its checks?"""
    error = row["max_error_ratio"]
    return row["us"] is None or error is None or error > 1 or row["exact"] is False


def failed(case: Case, gpu: str, commit: str, error: BaseException) -> tuple[Row, Detail]:
    """(row, detail) of a case that raised an error."""
    detail = {"date": machine.now(), "error": f"{type(error).__name__}: {error}".split("\n")[0]}
    return as_row(case, gpu, {"commit": commit}), detail


def gpu_is_lost(device: str) -> bool:
    """Does the GPU answer no more? After an illegal access, every later call fails too."""
    if device != "cuda":
        return False
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except RuntimeError:
        return True
    return False


class Run:
    """One run: the results so far, and the counts of its last line.

    `folder` has the stored results that --resume reads, and gets the new ones if --out is missing.
    """

    options: argparse.Namespace
    targets: Targets | None
    gpu: str
    commit: str
    reader: Reader | None
    path: Path | None
    results: Results
    pairs: dict[str, tuple[Row, Detail]]  # the cases of this commit, measured now or before

    def __init__(
        self, options: argparse.Namespace, folder: Path | None, targets: Targets | None = None
    ) -> None:
        self.options, self.targets = options, targets
        self.gpu = machine.gpu_name(options.device)
        self.commit = options.commit or results_file.commit()
        # Cases of --max-size are no results of their sets, so only --out stores them.
        out: Path | None = options.out or (None if options.max_size else folder)
        self.path = None if out is None else self._file(out)
        self.results = results_file.load(self.path) if self.path else results_file.empty()
        self.pairs = self._measured(folder) if options.resume else {}
        self.results["header"] = machine.facts(options.device) | {"method": METHOD}
        self.reader = telemetry.open_reader(options.device)

    def _file(self, path: Path) -> Path:
        return path if path.suffix == ".json" else path / results_file.file_name(self.gpu)

    def _measured(self, folder: Path | None) -> dict[str, tuple[Row, Detail]]:
        """{key: (row, detail)} of this commit, in the folder or in the file of this run."""
        folder_results = results_file.load(self._file(folder)) if folder else results_file.empty()
        rows: dict[str, tuple[Row, Detail]] = {}
        for results in (folder_results, self.results):
            for row in results["rows"]:
                name = results_file.key(row)
                if row["commit"] == self.commit and row["us"]:
                    pair = row, results["details"].get(name, {})
                    rows[name] = protocol.merged(rows.get(name), pair)
        return rows

    def result_of(self, case: Case) -> tuple[Row, Detail] | None:
        """(row, detail) of a case, if --resume found it or this run has measured it."""
        return self.pairs.get(results_file.key(as_row(case, self.gpu, {})))

    def repetitions_left(self, case: Case) -> int:
        """How many repetitions a case still needs. A case that failed in this run needs none."""
        result = self.result_of(case)
        if result is None:
            return self.options.repetitions
        if result[0]["us"] is None:
            return 0
        return protocol.repetitions_left(
            *result, aims_of(case, self.targets), self.options.repetitions
        )

    def count(self, case: Case) -> int:
        """How many repetitions a case has."""
        result = self.result_of(case)
        return 0 if result is None else len(protocol.repetitions(*result))

    def case(self, case: Case) -> None:
        """Measures one repetition of a case, and stores the case with the earlier ones."""
        row, detail = self._measure(case)
        earlier = self.result_of(case)
        if row["us"] is not None:
            before = protocol.repetitions(*earlier) if earlier else []
            row, detail = protocol.combined(
                row, detail, [*before, protocol.repetition(row, detail)]
            )
        name = results_file.key(row)
        self.pairs[name] = row, detail
        if row["us"] is not None or earlier is None:
            results_file.put(self.results, row, detail)
            if self.path:
                results_file.save(self.results, self.path)
        print(line(case, row, detail), flush=True)

    def _measure(self, case: Case) -> tuple[Row, Detail]:
        earlier = self.result_of(case)
        checks = (earlier[0]["max_error_ratio"], earlier[0]["exact"]) if earlier else None
        aims = aims_of(case, self.targets)
        common = (self.options, self.gpu, self.commit, self.reader)
        try:
            return measure_case(case, *common, aims, checks)
        except Exception as error:  # the other cases are measured nevertheless
            return failed(case, self.gpu, self.commit, error)

    def all(self, cases: Sequence[Case]) -> None:
        """Measures what is missing of the cases, until the minutes are over."""
        stop = time.monotonic() + 60 * self.options.minutes
        for repetition in range(self.options.repetitions):
            for case in cases:
                if self.count(case) > repetition or not self.repetitions_left(case):
                    continue
                if time.monotonic() > stop:
                    print(f"{self.options.minutes:g} minutes are over; --resume goes on.")
                    return
                self.case(case)
                if gpu_is_lost(self.options.device):
                    print("The GPU no longer answers (see the error above): nothing more can be")
                    print("measured.")
                    return

    def summary(self, cases: Sequence[Case]) -> tuple[list[str], int]:
        """(the last lines, how many cases failed or are wrong)."""
        results = [(case, self.result_of(case)) for case in cases]
        rows = [(case, *result) for case, result in results if result is not None]
        failures = sum(is_wrong(row) for _, row, _ in rows)
        counts = [self.repetitions_left(case) for case in cases]
        text = [f"{counts.count(0)} of {len(cases)} cases done, {failures} failed or wrong."]
        if sum(counts):
            text.append(f"At most {sum(counts)} repetitions are missing.")
        targeted = [(case, row, detail) for case, row, detail in rows if case.target]
        words = [outcome(*result) for result in targeted]
        passes, count, lines = sum("PASS" in word for word in words), len(targeted), []
        if self.targets:
            session = results_file.empty()
            for _, row, detail in rows:
                results_file.put(session, row, detail)
            lines, target_passes, target_count = self.targets.summary_lines(session)
            passes, count = passes + target_passes, count + target_count
        return text + ([f"targets: {passes} of {count} met.", *lines] if count else []), failures


def print_plans(cases: Iterable[Case], options: argparse.Namespace) -> None:
    """Prints the kernel that each case would run on the GPU that the options name."""
    for case in cases:
        kernel = workload(case, "meta").plan_on(options.gpu).kernel
        print(f"{name_of(case):60} {kernel}")


def main(
    argv: Sequence[str] | None = None,
    *,
    folder: Path | None = None,
    targets: Targets | None = None,
    command: str = "tcgemm bench",
    more: Sequence[str] = (),
) -> int:
    """Measures the cases of a command line; returns 1 if a case failed or was wrong, else 0.

    Arguments:
        argv: the arguments; None: the arguments of the process.
        folder (Path): gets the results where --out is missing; None stores nothing.
        targets: the module that knows the targets of whole sets, or None.
        command (str): the name of the command in its help.
        more: sets that the caller measures itself.
    """
    options = parse(argv, command, more)
    selection = chosen_cases(options, targets)
    if options.dry_run:
        print_plans(selection, options)
        if options.targets and targets:
            print("\n".join(targets.listing(chosen_sets(options))))
        return 0
    run = Run(options, folder, targets)
    print(
        f"{run.gpu}, torch {torch.__version__}, commit {run.commit} -> {run.path or 'not stored'}"
    )
    print(columns(name for name, _ in COLUMNS))
    run.all(selection)
    text, failures = run.summary(selection)
    print("\n".join(text))
    return 1 if failures else 0
