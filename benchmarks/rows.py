"""Measures every kernel on problems that a seed draws, for the planner's constants and tests.

    python -m benchmarks rows --minutes 8 --resume      what is missing, for eight minutes
    python -m benchmarks rows --shard 1/3 --out a.json  the first of three parts of the problems
    python -m benchmarks rows --dry-run --gpu H100      problems, rows and choices; needs no GPU

Each row that computes the problem without copies is measured for 0.1 s, with the cluster and the
slices of k that the planner takes; the fastest four kernels also with the other clusters. Then the
three fastest rows and the planner's choice are measured for 1 s, in alternating order. recording.py
has the format.

The file is written after each problem, so a run that is killed loses one. --resume measures what
the file lacks, whatever commit it was measured at: new problems, new kernels, another number of
CTAs in a cluster, another choice. Without it a problem is measured anew.
"""

import argparse
import time
from pathlib import Path

from benchmarks import recording
from benchmarks.recording import Problem, Recording, Row
from tcgemm.measure import command_line, machine, results_file, timing
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
    parser.add_argument("--out", type=Path, help="the file; without it results/rows/<gpu>.json")
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


def time_rows(problem: Problem, rows: list[Row], ms: float) -> dict[Row, float]:
    """{row: microseconds}. A kernel that raises is left out and named."""
    if not rows:
        return {}
    work = Workload(recording.case_of(problem), "cuda")
    calls = {}
    for row in rows:

        def call(index: int, kernel: str = row.request) -> None:
            work.call_kernel(kernel, index)

        try:
            call(0)
        except RuntimeError as error:
            print(f"  {row}: {error}".split("\n")[0])
        else:
            calls[row] = call
    by_name = {str(row): row for row in calls}
    timings = timing.measure(
        {name: calls[row] for name, row in by_name.items()}, work.sets, device="cuda", min_ms=ms
    )
    return {by_name[name]: round(sample.us, 3) for name, sample in timings.items()}


def missing_rows(device: str, problem: Problem) -> list[Row]:
    """The rows that were not measured yet."""
    measured_rows = recording.rows_of(problem)
    return [row for row in recording.runnable(device, problem) if row not in measured_rows]


def missing_clusters(device: str, problem: Problem) -> list[Row]:
    """The rows of the fastest kernels with clusters that were not measured yet."""
    measured_rows = recording.rows_of(problem)
    order = recording.fastest(problem, len(measured_rows))
    kernels = list(dict.fromkeys(row.kernel for row in order))[:KERNELS]
    rows = [row for kernel in kernels for row in recording.clusters(device, problem, kernel)]
    return [row for row in rows if row not in measured_rows]


def wanted_fine(device: str, problem: Problem) -> list[Row]:
    """The fastest rows and the planner's choice, if one of them lacks its fine time."""
    rows = recording.rows_of(problem)
    candidates = dict.fromkeys([*recording.fastest(problem), recording.choice(device, problem)])
    selection = [row for row in candidates if row in rows]
    return [] if all(rows[row]["fine_us"] for row in selection) else selection


def measure(device: str, problem: Problem, commit: str) -> Problem:
    """The problem with the rows and fine times that it lacked."""
    measured_rows = {row: dict(fields) for row, fields in recording.rows_of(problem).items()}
    for missing in (missing_rows, missing_clusters):
        for row, us in time_rows(problem, missing(device, problem), ROUGH_MS).items():
            measured_rows[row] = {**row._asdict(), "rough_us": us, "fine_us": None}
        problem = {**problem, "rows": list(measured_rows.values())}
    if fine_rows := wanted_fine(device, problem):
        # Times of another day are not comparable within 1 %, so they are dropped.
        for row in measured_rows:
            measured_rows[row] = {**measured_rows[row], "fine_us": None}
        for row, us in time_rows(problem, fine_rows, FINE_MS).items():
            measured_rows[row] = {**measured_rows[row], "fine_us": us}
    commits = list(dict.fromkeys([*problem["commits"], commit]))
    return {**problem, "commits": commits, "rows": list(measured_rows.values())}


def is_done(device: str, problem: Problem) -> bool:
    """Has the problem all rows and fine times?"""
    parts = (missing_rows, missing_clusters, wanted_fine)
    return not any(part(device, problem) for part in parts)


def line(device: str, problem: Problem) -> str:
    """The problem, its fastest row, and the loss of the planner's choice."""
    times, choice = recording.times(problem), recording.choice(device, problem)
    best = min(times, key=times.__getitem__)
    loss = recording.loss(problem, choice)
    text = f"{recording.name_of(problem):50} {times[best]:9.2f} us {best}"
    if choice != best:
        share = "not measured" if loss is None else f"+{100 * loss:.1f} %"
        text += f"; choice {share}: {choice}"
    return text


def print_plans(device: str, problems: list[Problem]) -> None:
    """The number of rows of each problem, and the planner's choice."""
    for problem in problems:
        rows, choice = recording.runnable(device, problem), recording.choice(device, problem)
        words = f"{len(rows):3} rows, choice {choice}"
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
    commit = options.commit or results_file.commit()
    header = {**machine.facts("cuda"), "device": device, "seed": options.seed}
    problems = {problem["index"]: problem for problem in recorded["problems"]}
    selection = recorded["problems"][part - 1 :: parts]
    if options.resume:
        selection = [problem for problem in selection if not is_done(device, problem)]
        selection.sort(key=lambda problem: bool(problem["rows"]))
    else:
        selection = [{**problem, "rows": [], "commits": []} for problem in selection]
    stop, count = time.monotonic() + 60 * options.minutes, 0
    for problem in selection:
        if time.monotonic() > stop:
            print(f"{options.minutes:g} minutes are over; --resume goes on.")
            break
        problems[problem["index"]] = outcome = measure(device, problem, commit)
        results = [problem for problem in problems.values() if problem["rows"]]
        recording.save({"header": header, "problems": results}, path)
        print(line(device, outcome), flush=True)
        count += 1
    print(f"{count} of {len(selection)} problems measured -> {path}")
    return 0
