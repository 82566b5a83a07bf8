"""Measures every kernel on problems that a seed draws, for the planner's constants and tests.

    python -m benchmarks rows --minutes 8 --resume      what is missing, for eight minutes
    python -m benchmarks rows --shard 1/3 --out a.json  the first of three parts of the problems
    python -m benchmarks rows --dry-run --gpu H100      problems, rows and choices; needs no GPU

Each launch that computes the problem without copies is measured for 0.1 s, with the cluster and the
slices of k that the planner takes; the fastest four kernels also with the other clusters. Then the
three fastest launches and the planner's choice are measured for 1 s, in alternating order.
recording.py has the format.

The file is written after each problem, so a run that is killed loses one. --resume measures what
the file lacks, whatever commit it was measured at: new problems, new kernels, another number of
CTAs in a cluster, another choice. Without it a problem is measured anew.
"""

import argparse
import functools
import time
from pathlib import Path

from benchmarks import recording
from benchmarks.recording import Problem, Recording
from tcgemm.measure import command_line, machine, results, timing
from tcgemm.measure.run import shard
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
    """{launch: microseconds}. A kernel that raises is left out and named."""
    if not launches:
        return {}
    work = Workload(recording.case_of(problem), "cuda")
    calls = {}
    for launch in launches:
        try:
            work.call_kernel(launch, 0)
        except RuntimeError as error:
            print(f"  {launch}: {error}".split("\n")[0])
        else:
            calls[launch] = functools.partial(work.call_kernel, launch)
    timings = timing.measure(calls, work.sets, device="cuda", min_ms=ms)
    return {launch: round(sample.us, 3) for launch, sample in timings.items()}


def missing_launches(device: str, problem: Problem) -> list[str]:
    """The launches that were not measured yet."""
    return [launch for launch in recording.runnable(device, problem) if launch not in problem["us"]]


def missing_clusters(device: str, problem: Problem) -> list[str]:
    """The launches of the fastest kernels with clusters that were not measured yet."""
    order = recording.fastest(problem, len(problem["us"]))
    kernels = list(dict.fromkeys(map(recording.kernel_of, order)))[:KERNELS]
    launches = [name for kernel in kernels for name in recording.clusters(device, problem, kernel)]
    return [launch for launch in launches if launch not in problem["us"]]


def wanted_fine(device: str, problem: Problem) -> list[str]:
    """The fastest launches and the planner's choice, if one of them lacks its fine time."""
    candidates = dict.fromkeys([*recording.fastest(problem), recording.choice(device, problem)])
    known = [launch for launch in candidates if launch in problem["us"]]
    return [] if all(problem["us"][launch][1] for launch in known) else known


def measure(device: str, problem: Problem, commit: str) -> Problem:
    """The problem with the times that it lacked."""
    commits = list(dict.fromkeys([*problem["commits"], commit]))
    problem = problem | {"commits": commits, "us": dict(problem["us"])}
    for missing in (missing_launches, missing_clusters):
        rough = time_launches(problem, missing(device, problem), ROUGH_MS)
        problem["us"] |= {launch: [us, None] for launch, us in rough.items()}
    if launches := wanted_fine(device, problem):
        # Fine times of another day are not comparable within 1 %, so they are dropped.
        fine = time_launches(problem, launches, FINE_MS)
        rough = {launch: us for launch, (us, _) in problem["us"].items()}
        problem["us"] = {launch: [us, fine.get(launch)] for launch, us in rough.items()}
    return problem


def is_done(device: str, problem: Problem) -> bool:
    """Has the problem all times?"""
    parts = (missing_launches, missing_clusters, wanted_fine)
    return not any(part(device, problem) for part in parts)


def line(device: str, problem: Problem) -> str:
    """The problem, its fastest launch, and the loss of the planner's choice."""
    times, choice = recording.times(problem), recording.choice(device, problem)
    best = min(times, key=times.__getitem__)
    loss = recording.loss(problem, choice)
    text = f"{recording.name_of(problem):50} {times[best]:9.2f} us {best}"
    if choice != best:
        share = "not measured" if loss is None else f"+{100 * loss:.1f} %"
        text += f"; choice {share}: {choice}"
    return text


def print_plans(device: str, problems: list[Problem]) -> None:
    """The number of launches of each problem, and the planner's choice."""
    for problem in problems:
        launches, choice = recording.runnable(device, problem), recording.choice(device, problem)
        words = f"{len(launches):3} launches, choice {choice}"
        print(f"{recording.name_of(problem):50} {words}")


def open_recording(path: Path, options: argparse.Namespace) -> Recording:
    """The recording of a file with all drawn problems, measured or not."""
    recorded = recording.load(path)
    seed = recorded["header"].get("seed", options.seed)
    if seed != options.seed:
        raise SystemExit(f"{path} has the problems of seed {seed}; pass --seed {seed}, or --out.")
    problems_of_file = {problem["index"]: problem for problem in recorded["problems"]}
    drawing = recording.draw(options.seed, options.problems)
    problems = [problems_of_file.get(problem["index"], problem) for problem in drawing]
    return {"header": recorded["header"], "problems": problems}


def main(argv=None):
    options = parse(argv)
    part, parts = options.shard
    print(f"seed {options.seed}, {options.problems} problems, part {part} of {parts}")
    if options.dry_run:
        selection = recording.draw(options.seed, options.problems)[part - 1 :: parts]
        print_plans(options.gpu, selection)
        return 0
    device = known_gpu()
    path = options.out or recording.path_of(device)
    recorded = open_recording(path, options)
    commit = options.commit or results.commit()
    header = {**machine.facts("cuda"), "device": device, "seed": options.seed}
    problems = {problem["index"]: problem for problem in recorded["problems"]}
    selection = recorded["problems"][part - 1 :: parts]
    if options.resume:
        selection = [problem for problem in selection if not is_done(device, problem)]
        selection.sort(key=lambda problem: bool(problem["us"]))
    else:
        selection = [{**problem, "us": {}, "commits": []} for problem in selection]
    stop, count = time.monotonic() + 60 * options.minutes, 0
    for problem in selection:
        if time.monotonic() > stop:
            print(f"{options.minutes:g} minutes are over; --resume goes on.")
            break
        problems[problem["index"]] = outcome = measure(device, problem, commit)
        measured = [problem for problem in problems.values() if problem["us"]]
        recording.save({"header": header, "problems": measured}, path)
        print(line(device, outcome), flush=True)
        count += 1
    print(f"{count} of {len(selection)} problems measured -> {path}")
    return 0
