"""Measures sets of cases against torch and keeps the latest result of each case.

    --set squares,llm --dtype f16 --layout TN,NN
    --set squares --kernel sm80                   only kernels of that name
    --set llm --only 4096x4096x14336              only jobs whose name contains this
    --set all --out results --minutes 8 --resume  what is missing, for eight minutes
    --set all --shard 2/5 --out two.json          the second of five parts of the cases
    --set drawn --seed 77                         cases that the seed 77 draws
    --set llm --dry-run                           the plans on an H200; needs no GPU
    --set all --max-size 64                       small cases, for the CPU

The groups are dense (16-bit dtypes), dtypes (other dtypes), sparse, all (these three) and drawn.

`tcgemm bench` stores what it measures in --out. In a checkout, `python -m benchmarks run`
does the same with benchmarks/results as the default, counts the targets that are met, and has more
sets: models, layers and passes.

All cases have their first repetition before any has its second. Each repetition is written as soon
as it is measured, so a run that is killed loses one. --resume continues with those that this commit
lacks. If a case fails, its row has the error; the next one runs, unless the GPU itself is lost.

    case -> operands past the cache -> check against float64 -> time, candidates alternating -> row
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from tcgemm.measure import cases, command_line, drawn, machine, operands, results, work
from tcgemm.measure.case import Case
from tcgemm.measure.command_line import comma
from tcgemm.measure.results import Aims, Results, Row
from tcgemm.measure.works import work_of

GPU_ONLY = cases.GROUPS["sparse"]


class Conditions(NamedTuple):
    """What the jobs of a run share."""

    device: torch.device
    ms: float  # of a candidate, where its ratio is close


class Job(Protocol):
    """What a run measures at a time: a product, or a model in several variants."""

    @property
    def name(self) -> str:
        """The job in a few words."""
        ...

    def cases(self, device: torch.device) -> list[Row]:
        """The case of each of its rows."""
        ...

    def measure(self, conditions: Conditions, aims: Aims, earlier: Row | None) -> list[Row]:
        """The rows of one repetition. `earlier` is the first row of the repetitions before."""
        ...

    def plan(self, gpu: str) -> str:
        """The kernel that the planner takes on a GPU, or what would be measured."""
        ...


class Product:
    """The job of one case of cases.py."""

    def __init__(self, case: Case) -> None:
        self.case = case

    @property
    def name(self) -> str:
        """The case in one column: set, op, dtype, layout, size, and other options."""
        case = self.case
        name = f"{case.set} {case.op} {case.dtype} {case.layout} {case.size}"
        name += f" {case.accumulation}" if case.accumulation in ("f16", "fast") else ""
        return name + ("" if case.epilogue == "none" else f" {case.epilogue}")

    def cases(self, device: torch.device) -> list[Row]:
        """The case as the fields of a row."""
        return [work.case_fields(self.case, device)]

    def measure(self, conditions: Conditions, aims: Aims, earlier: Row | None) -> list[Row]:
        """The row of one repetition; only the first one checks the result."""
        runnable = work_of(self.case, conditions.device)
        checks = (earlier["max_error_ratio"], earlier["exact"]) if earlier else None
        return [work.measure(runnable, ms=conditions.ms, checks=checks, aims=aims)]

    def plan(self, gpu: str) -> str:
        """The kernel that the planner takes on a GPU."""
        return work_of(self.case, "meta").plan_on(gpu).kernel


# The module benchmarks/targets.py: aims(case) are the targets of each ratio,
# summary_lines(results) are (lines, targets met, targets measured).
Targets = Any
Experiments = Mapping[str, Callable[[argparse.Namespace], Iterable[Job]]]


def shard(text: str) -> tuple[int, int]:
    """ "2/5" -> (2, 5)."""
    part, _, parts = text.partition("/")
    if not (part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} is no part of a whole such as 2/5")
    return int(part), int(parts)


def parse(
    argv: Sequence[str] | None, command: str = "tcgemm bench", more: Sequence[str] = ()
) -> argparse.Namespace:
    """The options of a command line; argv None: the process's own. `more` are further sets."""
    parser = command_line.parser(command, __doc__)
    sets = (*cases.GROUPS, *cases.NAMES, *more)
    parser.add_argument("--set", type=comma, required=True, help=", ".join(sets))
    parser.add_argument("--dtype", type=comma, help=f"of {', '.join(operands.DTYPES)}")
    parser.add_argument("--layout", type=comma, help=f"of {', '.join(operands.LAYOUTS)}")
    parser.add_argument("--kernel", default="", help="only kernels whose name contains this")
    parser.add_argument("--only", default="", help="only jobs whose name contains this")
    parser.add_argument("--minutes", type=float, default=8.0, help="stop after so many (8)")
    parser.add_argument("--resume", action="store_true", help="skip what this commit measured")
    parser.add_argument("--out", type=Path, help="file, or folder for <gpu>.json")
    ms, count = results.MS, results.REPETITIONS
    parser.add_argument("--ms", type=float, default=ms, help="of a candidate whose ratio is close")
    parser.add_argument("--repetitions", type=int, default=count, help="where a ratio is close")
    parser.add_argument("--seed", type=int, default=drawn.SEED, help="of drawn sets (%(default)s)")
    parser.add_argument("--shard", type=shard, default=(1, 1), help="2/5: the second of five parts")
    parser.add_argument("--device", help="cuda or cpu (cuda where there is one)")
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
                parser.error(f"{option} {name}: there are {', '.join(names)}.")
    large = [name for name in chosen_sets(options) if name in (*GPU_ONLY, *more)]
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


def chosen_jobs(
    options: argparse.Namespace, targets: Targets, experiments: Experiments
) -> list[Job]:
    """The jobs of the options."""
    names = chosen_sets(options)
    selection = [
        case
        for name in names
        if name not in experiments
        for case in cases.cases(
            name, options.dtype, options.layout, options.kernel, seed=options.seed
        )
        if not options.targets or (targets and targets.aims(work.case_fields(case, "cuda")))
    ]
    if options.max_size:
        selection = list(dict.fromkeys(case.limited(options.max_size) for case in selection))
    jobs: list[Job] = [Product(case) for case in selection]
    jobs += [job for name in names if name in experiments for job in experiments[name](options)]
    jobs = [job for job in jobs if options.only in job.name]
    part, parts = options.shard
    return jobs[part - 1 :: parts]


class Run:
    """One run: the results so far, and the counts of its last line.

    `folder` has the stored results that --resume reads, and gets the new ones if --out is missing.
    """

    path: Path | None
    results: Results
    measured: Results  # the rows of this commit, measured now or before

    def __init__(
        self, options: argparse.Namespace, folder: Path | None, targets: Targets = None
    ) -> None:
        self.options: argparse.Namespace = options
        self.targets: Targets = targets
        device = torch.device(options.device)
        self.gpu: str = machine.gpu_name(device)
        self.commit: str = options.commit or results.commit()
        # Cases of --max-size are no results of their sets, so only --out stores them.
        out: Path | None = options.out or (None if options.max_size else folder)
        self.path = None if out is None else results.path_in(out, self.gpu)
        self.results = Results.load(self.path) if self.path else Results()
        self.measured = Results()
        if options.resume:
            stored = [Results.load(results.path_in(folder, self.gpu))] if folder else []
            for known in (*stored, self.results):
                rows = [r for r in known.rows if r["commit"] == self.commit and r["us"]]
                self.measured.merge(Results.of(rows))
        self.results.header = machine.facts(device) | {"method": work.METHOD}
        self.conditions: Conditions = Conditions(device, options.ms)

    def rows_of(self, job: Job) -> list[Row | None]:
        """The rows of a job, if --resume found them or this run has measured them."""
        cases = job.cases(self.conditions.device)
        return [self.measured.by_key.get(results.key(case)) for case in cases]

    def aims(self, job: Job) -> Aims:
        """The targets of the ratios of a job."""
        case = job.cases(self.conditions.device)[0]
        return self.targets.aims(case) if self.targets else {}

    def repetitions_left(self, job: Job) -> int:
        """How many repetitions a job still needs. One that failed in this run needs none."""
        limit, aims = self.options.repetitions, self.aims(job)
        rows = [row for row in self.rows_of(job) if row is None or row["us"] is not None]
        counts = [results.repetitions_left(row, aims, limit) if row else limit for row in rows]
        return max(counts, default=0)

    def measure(self, job: Job) -> None:
        """Measures one repetition of a job, and stores its rows with the earlier ones."""
        earlier = self.rows_of(job)
        try:
            rows = job.measure(self.conditions, self.aims(job), earlier[0])
        except work.GpuLost:
            raise
        except Exception as error:  # the other cases are measured nevertheless
            rows = [work.failed(case, error) for case in job.cases(self.conditions.device)]
        for row in rows:
            name, failed = results.key(row), row["us"] is None
            old = self.measured.by_key.get(name)
            row = row | {"commit": self.commit}
            row = results.joined(old, row) if old and not failed else row
            self.measured.put(row)
            if not (failed and old):
                self.results.put(row)
            if self.path:
                self.results.save(self.path)
            print(results.line(job.name if len(rows) == 1 else name, row), flush=True)

    def all(self, jobs: Sequence[Job]) -> None:
        """Measures what is missing of the jobs, until the minutes are over."""
        stop = time.monotonic() + 60 * self.options.minutes
        for repetition, job in itertools.product(range(self.options.repetitions), jobs):
            counts = [len(results.repetitions(row)) for row in self.rows_of(job) if row]
            if (counts and min(counts) > repetition) or not self.repetitions_left(job):
                continue
            if time.monotonic() > stop:
                print(f"{self.options.minutes:g} minutes are over; --resume goes on.")
                return
            self.measure(job)

    def summary(self, jobs: Sequence[Job]) -> tuple[list[str], int]:
        """(the last lines, how many rows failed or are wrong)."""
        rows = [row for job in jobs for row in self.rows_of(job) if row is not None]
        failures = sum(row["us"] is None or results.is_wrong(row) for row in rows)
        left = [self.repetitions_left(job) for job in jobs]
        text = [f"{left.count(0)} of {len(jobs)} cases done, {failures} failed or wrong."]
        if sum(left):
            text.append(f"At most {sum(left)} repetitions are missing.")
        if self.targets:
            lines, passes, count = self.targets.summary_lines(Results.of(rows))
            text += [f"targets: {passes} of {count} met.", *lines] if count else []
        return text, failures


def main(
    argv: Sequence[str] | None = None,
    *,
    folder: Path | None = None,
    targets: Targets = None,
    command: str = "tcgemm bench",
    experiments: Experiments | None = None,
) -> int:
    """Measures the cases of a command line; returns 1 if a case failed or was wrong, else 0.

    Arguments:
        argv: the arguments; None: the arguments of the process.
        folder (Path): gets the results where --out is missing; None stores nothing.
        experiments: further sets by name, each a function of the options that returns jobs.
    """
    experiments = experiments or {}
    options = parse(argv, command, tuple(experiments))
    selection = chosen_jobs(options, targets, experiments)
    if options.dry_run:
        for job in selection:
            print(f"{job.name:60} {job.plan(options.gpu)}")
        return 0
    run = Run(options, folder, targets)
    place = run.path or "not stored"
    print(f"{run.gpu}, torch {torch.__version__}, commit {run.commit} -> {place}")
    try:
        run.all(selection)
    except work.GpuLost as error:
        print(f"Nothing more can be measured: {error}")
    except KeyboardInterrupt:
        print("\n".join(["", "Interrupted; --resume goes on.", *run.summary(selection)[0]]))
        raise
    text, failures = run.summary(selection)
    print("\n".join(text))
    return 1 if failures else 0
