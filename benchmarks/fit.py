"""The planner's estimates and choices beside the recorded time of every kernel. Needs no GPU.

    python -m benchmarks fit                        the recordings in tests/data/rows
    python -m benchmarks fit rows.json --worst 20   more of the problems with the worst choices
    python -m benchmarks fit --search kFill,kStore  proposes values of these constants

The first table says how much longer than the fastest row the planner's choice takes. The others
compare the measured times of rows with their estimates. "all" is the mean of measured over
estimated; "of the problem" is the same relative to the mean of the problem, which alone decides the
choice: above 1, the planner prefers these rows too much.

--search changes one constant of csrc/plan/sm90.cpp after another, rebuilds the library with
--build, and keeps the values that lower the score of the fitted half. It prints them, puts the file
back and builds again. The build is one for the CPU, so run it in a checkout of its own. The other
half is not looked at: test_choice.py tests it. A kernel that is chosen with a cluster size that was
not measured counts with the time of its other one; measure it afterwards with `rows --resume`.
"""

import json
import math
import operator
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from benchmarks import recording
from benchmarks.recording import Problem, Recording
from tcgemm.measure import command_line
from tcgemm.measure.results import CHECKOUT

CLOSE, WITHIN, SHARE = 0.03, 0.08, 0.9  # the choice: CLOSE on this share, WITHIN always
NOT_MEASURED = 0.10  # the loss in a search of a choice whose kernel has no time
NEAR = 1.3  # rows whose time is this many times the best one decide the choice
SOURCE = CHECKOUT / "csrc/plan/sm90.cpp"
CONSTANT = r"(constexpr double {} = )([0-9.e+-]+)(;)"
STEPS = (0.15, 0.05)
BUILD = f"TCGEMM_CUDA=0 {sys.executable} setup.py -q build_ext --inplace"


def halves(data: Recording) -> dict[str, list[Problem]]:
    """The problems that constants are fitted to, and the others."""
    return {
        "fitted": [problem for problem in data.problems if not problem.is_held_out],
        "held out": [problem for problem in data.problems if problem.is_held_out],
    }


def quality(part: list[Problem]) -> str:
    """How good the planner's choices are, in one line."""
    losses = [problem.loss for problem in part if problem.loss is not None]
    if not losses:
        return "nothing measured"
    close = sum(loss <= CLOSE for loss in losses)
    return (
        f"{len(part)} problems: within {100 * CLOSE:.0f} % of the fastest on {close} "
        f"({100 * close / len(part):.0f} %), at most {100 * max(losses):.1f} %, mean "
        f"{100 * statistics.fmean(losses):.2f} %, {len(part) - len(losses)} not measured"
    )


def score(part: list[Problem]) -> float:
    """What a search lowers: the mean loss, and a tenth of the largest one."""
    losses = [estimated_loss(problem) for problem in part]
    return statistics.fmean(losses) + max(losses) / 10


def estimated_loss(problem: Problem) -> float:
    """The loss of the choice, or of its kernel with another number of CTAs in a cluster."""
    if problem.loss is not None:
        return problem.loss
    kernel = recording.kernel_of(problem.choice)
    times = problem.times
    kernel_times = [us for launch, us in times.items() if recording.kernel_of(launch) == kernel]
    return min(kernel_times) / min(times.values()) - 1 if kernel_times else NOT_MEASURED


def worst(part: list[Problem], count: int) -> list[str]:
    """The worst choices, those without a time first."""
    order = sorted(part, key=lambda p: -math.inf if p.loss is None else -p.loss)
    text = []
    for problem in order[:count]:
        best, us = min(problem.times.items(), key=operator.itemgetter(1))
        words = "not measured" if problem.loss is None else f"+{100 * problem.loss:.1f} %"
        text.append(f"  {problem!s:48} {words:>12}  {problem.choice}")
        text.append(f"  {'':48} {us:9.2f} us  {best}")
    return text


class Residual(NamedTuple):
    """Measured over estimated time of one row of one problem, and relative to its problem."""

    problem: Problem
    launch: str
    ratio: float
    relative: float


def residuals(problems: Iterable[Problem]) -> list[Residual]:
    """Of the rows that come near the fastest one of their problem."""
    result = []
    for problem in problems:
        times, estimates = problem.times, problem.estimates()
        limit = NEAR * min(times.values())
        near = [launch for launch in times if launch in estimates and times[launch] <= limit]
        ratios = {launch: times[launch] / estimates[launch] for launch in near}
        mean = statistics.geometric_mean(ratios.values()) if ratios else 1.0
        result += [Residual(problem, *one, one[1] / mean) for one in ratios.items()]
    return result


def _octave(size: int) -> str:
    power = int(math.log2(size))
    return f"{2**power:5}..{2 ** (power + 1)}"


def _without_layout(launch: str) -> str:
    layout = recording.catalog()[recording.kernel_of(launch)]["layout"].lower()
    return launch.replace(f"_{layout}", "")


# How residuals are grouped: the part of the model that each points to.
GROUPINGS: dict[str, Callable[[Residual], str]] = {
    "kernel and cluster": lambda r: _without_layout(r.launch),
    "layout": lambda r: f"{r.problem.dtype} {r.problem.layout}",
    "epilogue": lambda r: f"{r.problem.dtype} {r.problem.epilogue or 'none'}",
    "K": lambda r: _octave(r.problem.k),
    "size of the result": lambda r: _octave(math.isqrt(r.problem.m * r.problem.n)),
}


def tables(rows: list[Residual]) -> list[str]:
    """A table for each grouping."""
    text = []
    for name, key in GROUPINGS.items():
        groups: dict[str, list[Residual]] = {}
        for row in rows:
            groups.setdefault(key(row), []).append(row)
        text += ["", f"  {name:52} rows    all  of the problem"]
        for group, members in sorted(groups.items()):
            every = statistics.geometric_mean(row.ratio for row in members)
            relative = statistics.geometric_mean(row.relative for row in members)
            text.append(f"  {group:52} {len(members):4}  {every:5.3f}  {relative:5.3f}")
    return text


def constant(text: str, name: str) -> float:
    """The value of a constant in the planner's source."""
    match = re.search(CONSTANT.format(re.escape(name)), text)
    if not match:
        raise SystemExit(f"{SOURCE} has no line 'constexpr double {name} = ...;'.")
    return float(match[2])


def with_constant(text: str, name: str, value: float) -> str:
    """The source with another value of a constant."""
    return re.sub(CONSTANT.format(re.escape(name)), rf"\g<1>{value:.4g}\g<3>", text, count=1)


def search(names: list[str], score_of: Callable[[str], float], text: str) -> tuple[str, float]:
    """(the source with better constants, its score).

    score_of: the score of a source. One constant after another is multiplied by a step, as long as
    the score falls.
    """
    best = score_of(text)
    print(f"score {best:.5f}")
    for step in STEPS:
        for name in names:
            for factor in (1 + step, 1 / (1 + step)):
                while True:
                    trial = with_constant(text, name, constant(text, name) * factor)
                    result = score_of(trial)
                    print(
                        f"  {name} = {constant(trial, name):<10.4g} score {result:.5f}", flush=True
                    )
                    if not result < best:
                        break
                    text, best = trial, result
    return text, best


def built_score(build: str, paths: list[Path]) -> Callable[[str], float]:
    """A function that builds the library with a source and asks another process for the score."""
    command = [sys.executable, "-m", "benchmarks", "fit", *map(str, paths), "--score"]

    def score_of(text: str) -> float:
        SOURCE.write_text(text)
        subprocess.run(build, shell=True, check=True, cwd=CHECKOUT, stdout=subprocess.DEVNULL)
        process = subprocess.run(command, check=True, cwd=CHECKOUT, capture_output=True, text=True)
        return float(json.loads(process.stdout))

    return score_of


def propose(names: list[str], build: str, paths: list[Path]) -> None:
    """Searches, prints the proposed constants, and puts the source and the library back."""
    original, score_of = SOURCE.read_text(), built_score(build, paths)
    try:
        text, _ = search(names, score_of, original)
        for name in names:
            print(f"{name}: {constant(original, name):g} -> {constant(text, name):g}")
    finally:
        score_of(original)


def report(data: Recording, count: int) -> list[str]:
    """The text about one recording."""
    text = [f"{data.header['device']}, seed {data.header['seed']}"]
    for name, part in halves(data).items():
        text += [f"{name}: {quality(part)}", *worst(part, count)]
    return text + tables(residuals(halves(data)["fitted"]))


def main(argv=None):
    parser = command_line.parser("benchmarks fit", __doc__)
    parser.add_argument("files", type=Path, nargs="*", help="recordings")
    parser.add_argument("--worst", type=int, default=5, help="problems to list (%(default)s)")
    parser.add_argument("--search", help="names of constants, with commas between them")
    parser.add_argument("--build", default=BUILD, help="rebuilds the library (%(default)s)")
    parser.add_argument("--score", action="store_true", help="print the score alone")
    options = parser.parse_args(argv)
    paths = options.files or sorted(recording.FOLDER.glob("*.json"))
    recordings = [recording.load(path) for path in paths]
    if not any(data.problems for data in recordings):
        parser.error("there is no recording; measure one with python -m benchmarks rows.")
    if options.search:
        propose(options.search.split(","), options.build, [path.resolve() for path in paths])
    elif options.score:
        print(json.dumps(statistics.fmean(score(halves(data)["fitted"]) for data in recordings)))
    else:
        print("\n".join(line for data in recordings for line in report(data, options.worst)))
    return 0
