"""Measures every kernel on problems that a seed draws, for the planner's constants and tests.

    python -m benchmarks rows --minutes 8 --resume      what is missing, for eight minutes
    python -m benchmarks rows --shard 1/3 --out a.json  the first of three parts of the problems
    python -m benchmarks rows --dry-run --gpu H100      problems, rows and choices; needs no GPU

Each launch that computes the problem without copies is checked against float64 and measured for
0.1 s, with the cluster and the slices of k that the planner takes; the fastest four kernels also
with the other clusters. Then the three fastest launches and the planner's choice are measured for
1 s, in alternating order.
recording.py has the format.

The file is written after each problem, so a run that is killed loses one. --resume measures what
the file lacks, whatever commit it was measured at: new problems, new kernels, another number of
CTAs in a cluster, another choice. Without it a problem is measured anew.
"""

import dataclasses
import operator
import time
from pathlib import Path

from benchmarks import recording
from benchmarks.recording import Problem, Recording
from tcgemm.measure import command_line, machine, results
from tcgemm.measure.run import shard
from tcgemm.measure.tune.measure import GpuBench
from tcgemm.measure.workloads import Workload

ROUGH_MS, FINE_MS = 100.0, 1000.0  # of one candidate
KERNELS = 4  # that are measured with every cluster


def parse(argv=None):
    """The options of a command line."""
    parser = command_line.parser("benchmarks rows", __doc__)
    parser.add_argument("--seed", type=int, default=recording.SEED, help="(%(default)s)")
    parser.add_argument("--problems", type=int, default=recording.PROBLEMS, help="(%(default)s)")
    parser.add_argument("--shard", type=shard, default=(1, 1), help="2/5: the second of five parts")
    parser.add_argument("--minutes", type=float, default=8.0, help="stop after so many (8)")
    parser.add_argument("--resume", action="store_true", help="measure what the file lacks")
    parser.add_argument("--out", type=Path, help="the file; without it tests/data/rows/<gpu>.json")
    parser.add_argument("--commit", help="the measured commit, where there is no git")
    parser.add_argument("--dry-run", action="store_true", help="measure nothing")
    parser.add_argument("--gpu", default="H200", help="the GPU of --dry-run (%(default)s)")
    return parser.parse_args(argv)


def known_gpu() -> str:
    """The name by which the planner knows the GPU of this machine."""
    row = machine.known_gpu("cuda")
    if row is None:
        gpu = machine.gpu_name("cuda")
        raise SystemExit(f"The planner does not know this GPU ({gpu}): docs/dev/devices.md.")
    return row["name"]


def time_launches(problem: Problem, launches: list[str], ms: float) -> dict[str, float]:
    """{launch: microseconds}. A kernel that raises, or whose result is wrong, is named instead."""
    if not launches:
        return {}
    bench = GpuBench(Workload(problem.case, "cuda"))
    reasons = {launch: bench.why_wrong(launch) for launch in launches}
    for launch, reason in reasons.items():
        if reason:
            print(f"  {launch}: {reason}")
    times = bench.times([launch for launch, reason in reasons.items() if not reason], ms)
    return {launch: round(us, 3) for launch, us in times.items()}


def missing_launches(problem: Problem) -> list[str]:
    """The launches that were not measured yet."""
    return [launch for launch in problem.estimates() if launch not in problem.us]


def missing_clusters(problem: Problem) -> list[str]:
    """The launches of the fastest kernels with clusters that were not measured yet."""
    order = problem.fastest(len(problem.us))
    kernels = list(dict.fromkeys(map(recording.kernel_of, order)))[:KERNELS]
    launches = [launch for kernel in kernels for launch in problem.clusters(kernel)]
    return [launch for launch in launches if launch not in problem.us]


def wanted_fine(problem: Problem) -> list[str]:
    """The fastest launches and the planner's choice, if one of them lacks its fine time."""
    candidates = dict.fromkeys([*problem.fastest(), problem.choice])
    known = [launch for launch in candidates if launch in problem.us]
    return [] if all(problem.us[launch][1] for launch in known) else known


def measure(problem: Problem, commit: str) -> Problem:
    """The problem with the times that it lacked."""
    commits = list(dict.fromkeys([*problem.commits, commit]))
    problem = dataclasses.replace(problem, commits=commits, us=dict(problem.us))
    for missing in (missing_launches, missing_clusters):
        rough = time_launches(problem, missing(problem), ROUGH_MS)
        problem.us |= {launch: [us, None] for launch, us in rough.items()}
    if launches := wanted_fine(problem):
        # Fine times of another day are not comparable within 1 %, so they are dropped.
        fine = time_launches(problem, launches, FINE_MS)
        problem.us = {launch: [us, fine.get(launch)] for launch, (us, _) in problem.us.items()}
    return problem


def is_done(problem: Problem) -> bool:
    """Has the problem all times?"""
    parts = (missing_launches, missing_clusters, wanted_fine)
    return not any(part(problem) for part in parts)


def line(problem: Problem) -> str:
    """The problem, its fastest launch, and the loss of the planner's choice."""
    best, us = min(problem.times.items(), key=operator.itemgetter(1))
    text = f"{problem!s:50} {us:9.2f} us {best}"
    if problem.choice != best:
        share = "not measured" if problem.loss is None else f"+{100 * problem.loss:.1f} %"
        text += f"; choice {share}: {problem.choice}"
    return text


def main(argv=None):
    options = parse(argv)
    part, parts = options.shard
    print(f"seed {options.seed}, {options.problems} problems, part {part} of {parts}")
    device = options.gpu if options.dry_run else known_gpu()
    drawing = recording.draw(device, options.seed, options.problems)[part - 1 :: parts]
    if options.dry_run:
        for problem in drawing:
            count = len(problem.estimates())
            print(f"{problem!s:50} {count:3} launches, choice {problem.choice}")
        return 0
    path = options.out or recording.path_of(device)
    recorded = recording.load(path)
    seed = recorded.header.get("seed", options.seed)
    if seed != options.seed:
        raise SystemExit(f"{path} has the problems of seed {seed}; pass --seed {seed}, or --out.")
    measured = {problem.index: problem for problem in recorded.problems}
    selection = drawing
    if options.resume:
        known = [measured.get(problem.index, problem) for problem in drawing]
        selection = [problem for problem in known if not is_done(problem)]
        selection.sort(key=lambda problem: bool(problem.us))
    commit = options.commit or results.commit()
    header = {**machine.facts("cuda"), "device": device, "seed": options.seed}
    stop, count = time.monotonic() + 60 * options.minutes, 0
    for problem in selection:
        if time.monotonic() > stop:
            print(f"{options.minutes:g} minutes are over; --resume goes on.")
            break
        measured[problem.index] = outcome = measure(problem, commit)
        recording.save(Recording(header, list(measured.values())), path)
        print(line(outcome), flush=True)
        count += 1
    print(f"{count} of {len(selection)} problems measured -> {path}")
    return 0
