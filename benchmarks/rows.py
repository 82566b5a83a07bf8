"""Measures the kernels on problems that a seed draws, for the planner's constants and tests.

    python -m benchmarks rows --minutes 8 --resume      what is missing, for eight minutes

tcgemm.tune's candidates whose estimates are up to three times the best one are measured as there:
each is checked against float64 and runs for 0.1 s; then the three fastest launches and the
planner's choice run for 1 s, in alternating order. recording.py has the format.

The file is written after each problem, so a run that is killed loses one. --resume measures what
the file lacks, whatever commit it was measured at: new problems, new kernels, another choice.
Without it a problem is measured anew.
"""

import time
from dataclasses import replace
from pathlib import Path

from benchmarks import recording
from benchmarks.recording import Problem, Recording
from tcgemm.measure import command_line, machine, results
from tcgemm.measure.tune.measure import check_and_time
from tcgemm.measure.workloads import Workload

ROUGH_MS, FINE_MS = 100.0, 1000.0  # of one candidate


def parse(argv=None):
    """The options of a command line."""
    parser = command_line.parser("benchmarks rows", __doc__)
    parser.add_argument("--seed", type=int, default=recording.SEED, help="(%(default)s)")
    parser.add_argument("--minutes", type=float, default=8.0, help="stop after so many (8)")
    parser.add_argument("--resume", action="store_true", help="measure what the file lacks")
    parser.add_argument("--out", type=Path, help="the file; without it tests/data/rows/<gpu>.json")
    parser.add_argument("--commit", help="the measured commit, where there is no git")
    return parser.parse_args(argv)


def is_done(problem: Problem) -> bool:
    """Has the problem all times?"""
    return set(problem.launches) <= problem.us.keys() and problem.us[problem.choice][1] is not None


def measure(problem: Problem, commit: str) -> Problem:
    """The problem with the times that it lacked.

    The fine ones are all new, since those of another day are not comparable within 1 %.
    """
    known = {launch: us for launch, (us, _) in problem.us.items()}
    missing = [launch for launch in problem.launches if launch not in known]
    work, choice = Workload(problem.case, "cuda"), problem.choice
    rough, fine, wrong = check_and_time(work, choice, missing, ROUGH_MS, FINE_MS, known)
    for launch, reason in wrong.items():
        print(f"  {launch}: {reason}")
    commits = list(dict.fromkeys([*problem.commits, commit]))
    us = {launch: [us, fine.get(launch)] for launch, us in rough.items()}
    return replace(problem, commits=commits, us=us)


def main(argv=None):
    options = parse(argv)
    gpu = machine.known_gpu("cuda")
    if gpu is None:
        name = machine.gpu_name("cuda")
        raise SystemExit(f"The planner does not know this GPU ({name}): docs/dev/devices.md.")
    device = gpu["name"]
    selection = recording.draw(device, options.seed)
    path = options.out or recording.path_of(device)
    recorded = recording.load(path)
    seed = recorded.header.get("seed", options.seed)
    if seed != options.seed:
        raise SystemExit(f"{path} has the problems of seed {seed}; pass --seed {seed}, or --out.")
    measured = {problem.index: problem for problem in recorded.problems}
    if options.resume:
        known = [measured.get(problem.index, problem) for problem in selection]
        selection = [problem for problem in known if not is_done(problem)]
        selection.sort(key=lambda problem: problem.loss is not None)
    commit = options.commit or results.commit()
    header = {**machine.facts("cuda"), "device": device, "seed": options.seed}
    stop = time.monotonic() + 60 * options.minutes
    print(f"{len(selection)} problems of seed {options.seed} -> {path}")
    for problem in selection:
        if time.monotonic() > stop:
            print(f"{options.minutes:g} minutes are over; --resume goes on.")
            break
        measured[problem.index] = outcome = measure(problem, commit)
        recording.save(Recording(header, list(measured.values())), path)
        print(outcome.line, flush=True)
    return 0
