"""The planner's estimates and choices beside the recorded times of the kernels. Needs no GPU.

    python -m benchmarks fit                        the recordings in tests/data/rows
    python -m benchmarks fit rows.json --worst 20   more of the problems with the worst choices
    python -m benchmarks fit --search kFill,kStore  proposes values of these constants

The first lines say how much longer than the fastest launch the choice takes. In the tables "all" is
the mean of measured over estimated time; "of the problem" is the same relative to the mean of the
problem, which alone decides the choice: above 1, the planner prefers these launches too much.

--search changes one constant of csrc/plan/sm90_time.cpp after another, rebuilds the library, and
keeps the values that lower the score of the fitted half: the mean loss, and a tenth of the largest
one. A choice that was not measured counts with a loss of 10 %; `rows --plan` and `rows` measure it
afterwards. The values are printed, and the file and the library are put back. The build is one for
the CPU, so run it in a checkout of its own.
"""

import itertools
import math
import multiprocessing
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks import recording
from benchmarks.recording import Problem, Recording
from tcgemm.measure import command_line
from tcgemm.measure.results import CHECKOUT

CLOSE, WITHIN = 0.03, 0.08  # losses: CLOSE on most problems, WITHIN always
NOT_MEASURED = 0.10  # the loss in a search of a choice that has no time
NEAR = 1.3  # launches whose time is this many times the best one decide the choice
SOURCE = CHECKOUT / "csrc/plan/sm90_time.cpp"
CONSTANT = r"constexpr double {} = ([0-9.e+-]+);"
STEPS = (0.15, 0.05)
BUILD = f"TCGEMM_CUDA=0 {sys.executable} setup.py -q build_ext --inplace"


def halves(data: Recording) -> dict[str, list[Problem]]:
    """The problems that constants are fitted to, and the others."""
    names = enumerate(("fitted", "held out"))
    return {name: [one for one in data.problems if one.index % 2 == rest] for rest, name in names}


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


def worst(part: list[Problem], count: int) -> list[str]:
    """The worst choices, those without a time first."""
    order = sorted(part, key=lambda p: -math.inf if p.loss is None else -p.loss)
    return [f"  {problem.line}" for problem in order[:count]]


# How residuals are grouped: the part of the model that each points to.
GROUPINGS: dict[str, Callable[[Problem, str], str]] = {
    "kernel and cluster": lambda problem, launch: re.sub("_(tn|nn|tt|nt)|/.*", "", launch),
    "operands": lambda problem, launch: f"{problem.kind} {problem.layout}",
    "epilogue": lambda problem, launch: f"{problem.kind} {problem.terms or 'none'}",
    "K, at least": lambda problem, launch: f"{2 ** int(math.log2(problem.k)):5}",
}


def tables(problems: Iterable[Problem]) -> list[str]:
    """A table for each grouping of the launches that come near the fastest one of their problem."""
    groups = {name: defaultdict(list) for name in GROUPINGS}
    for problem in problems:
        times = problem.times
        near = [launch for launch in times if times[launch] <= NEAR * min(times.values())]
        estimates = {launch: problem.estimate(launch) for launch in near}
        ratios = {launch: times[launch] / us for launch, us in estimates.items() if us}
        if not ratios:
            continue
        mean = statistics.geometric_mean(ratios.values())
        for (launch, ratio), name in itertools.product(ratios.items(), GROUPINGS):
            groups[name][GROUPINGS[name](problem, launch)].append((ratio, ratio / mean))
    text = []
    for name, rows in groups.items():
        text += ["", f"  {name:52} rows    all  of the problem"]
        for group, members in sorted(rows.items()):
            every, relative = map(statistics.geometric_mean, zip(*members, strict=True))
            text.append(f"  {group:52} {len(members):4}  {every:5.3f}  {relative:5.3f}")
    return text


def score(paths: list[Path]) -> float:
    """What a search lowers: the mean loss, and a tenth of the largest one; of the fitted halves."""
    scores = []
    for path in paths:
        losses = [problem.loss for problem in halves(recording.load(path))["fitted"]]
        known = [NOT_MEASURED if loss is None else loss for loss in losses]
        scores.append(statistics.fmean(known) + max(known) / 10)
    return statistics.fmean(scores)


def constant(text: str, name: str) -> re.Match[str]:
    """The line of a constant in the planner's source, and its value."""
    match = re.search(CONSTANT.format(re.escape(name)), text)
    if not match:
        raise SystemExit(f"{SOURCE} has no line 'constexpr double {name} = ...;'.")
    return match


def search(names: list[str], score_of: Callable[[str], float], text: str) -> str:
    """The source with better constants.

    score_of: the score of a source. One constant after another is multiplied by a step, as long as
    the score falls.
    """
    best = score_of(text)
    print(f"score {best:.5f}")
    for step, name, power in itertools.product(STEPS, names, (1, -1)):
        while True:
            match = constant(text, name)
            value = float(match[1]) * (1 + step) ** power
            trial = f"{text[: match.start(1)]}{value:.4g}{text[match.end(1) :]}"
            result = score_of(trial)
            print(f"  {name} = {value:<10.4g} score {result:.5f}", flush=True)
            if result >= best:
                break
            text, best = trial, result
    return text


def propose(names: list[str], paths: list[Path]) -> None:
    """Searches, prints the proposed constants, and puts the source and the library back."""

    def score_of(text: str) -> float:
        SOURCE.write_text(text)
        subprocess.run(BUILD, shell=True, check=True, cwd=CHECKOUT, stdout=subprocess.DEVNULL)
        with multiprocessing.get_context("spawn").Pool(1) as new_process:  # loads the new library
            return new_process.apply(score, [paths])

    original = SOURCE.read_text()
    try:
        text = search(names, score_of, original)
        for name in names:
            print(f"{name}: {constant(original, name)[1]} -> {constant(text, name)[1]}")
    finally:
        score_of(original)


def main(argv=None):
    parser = command_line.parser("python -m benchmarks fit", __doc__)
    parser.add_argument("files", type=Path, nargs="*", help="recordings")
    parser.add_argument("--worst", type=int, default=5, help="problems to list (%(default)s)")
    parser.add_argument("--search", help="names of constants, with commas between them")
    options = parser.parse_args(argv)
    paths = options.files or sorted(recording.FOLDER.glob("*.json"))
    recordings = [data for data in map(recording.load, paths) if data.problems]
    if not recordings:
        parser.error("there is no recording; measure one with python -m benchmarks rows.")
    if options.search:
        propose(command_line.comma(options.search), paths)
        return 0
    for data in recordings:
        print(f"{data.header['device']}, seed {data.header['seed']}")
        for name, part in halves(data).items():
            print(f"{name}: {quality(part)}", *worst(part, options.worst), sep="\n")
        print(*tables(halves(data)["fitted"]), sep="\n")
    return 0
