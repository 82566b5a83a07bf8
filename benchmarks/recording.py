"""Measures the kernels on problems that a seed draws, for the planner's constants and tests.

    python -m benchmarks rows --minutes 8 --resume      what is missing, for eight minutes

The candidates of tcgemm.tune whose estimates are up to three times the best one are measured as
there: each is checked against float64 and runs for 0.1 s; then the three fastest launches and the
planner's choice run for 1 s, in alternating order. tests/data/rows/<device>.json has both times:

    {"header":   {"gpu": ..., "device": "H200", "seed": 1, ...}
     "problems": [{"index": 0, "dtype": "bf16", "layout": "TN", "m": ..., "n": ..., "k": ...,
                   "epilogue": "bias", "commits": [...],
                   "us": {"kernel@2/1": [41.2, 40.9], "kernel@1/1": [55.3, null]}}]}

A launch is a kernel with the CTAs of its cluster and the slices of k: "kernel@2/4", with a "c"
behind it if the cluster adds the slices. Problems with an even index are for fitting the planner's
constants. The others test its choices, without a GPU (tests/plan/test_choice.py).

The file is written after each problem, so a run that is killed loses one. --resume measures what
the file lacks, whatever commit it was measured at: new problems, new kernels, another choice.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import operator
import random
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import RESULTS
from tcgemm.measure import command_line, drawn, machine, name_of, results
from tcgemm.measure.case import Case
from tcgemm.measure.operands import LAYOUTS
from tcgemm.measure.tune import measure as tuning
from tcgemm.measure.workloads import Workload
from tcgemm.typing import Layout

FOLDER = RESULTS.parents[1] / "tests/data/rows"
SEED, PROBLEMS = 1, 120
SMALLEST, LARGEST = 64, 16384
DTYPES = ("bf16", "bf16", "f16", "e4m3")  # each is drawn as often as it is here
EPILOGUES = ("", "", "bias", "bias+gelu_tanh")
NEAR = 3.0  # launches whose estimate is more times the least one are left out
ROUGH_MS, FINE_MS = 100.0, 1000.0  # of one launch


@dataclasses.dataclass
class Problem:
    """A drawn problem on a GPU: its recorded times, and what the planner says of it today."""

    device: str  # the planner's name of the GPU; it is in the header of a file
    index: int
    dtype: str
    layout: Layout
    m: int
    n: int
    k: int
    epilogue: str
    commits: list[str] = dataclasses.field(default_factory=list)
    us: dict[str, list[Any]] = dataclasses.field(default_factory=dict)  # {launch: [rough, fine]}

    def __str__(self) -> str:
        size = f"{self.m}x{self.n}x{self.k}"
        return f"{self.index} {self.dtype} {self.layout} {size} {self.epilogue}".rstrip()

    @property
    def case(self) -> Case:
        """The problem as a case of the benchmarks; e4m3 has fast sums and a scale a tensor."""
        is_float8 = self.dtype == "e4m3"
        terms = ["tensor-scales", self.epilogue] if is_float8 else [self.epilogue or "none"]
        options = {"accumulation": "fast" if is_float8 else "", "epilogue": "+".join(terms)}
        return Case("mm", self.dtype, self.layout, self.m, self.n, self.k, **options)

    @functools.cached_property
    def work(self) -> Workload:
        """The problem without memory, to be planned."""
        return Workload(self.case, "meta")

    @functools.cached_property
    def choice(self) -> str:
        """The launch that the planner chooses."""
        return name_of(tuning.ask(self.work, device=self.device))

    @functools.cached_property
    def launches(self) -> list[str]:
        """The planner's choice, and its candidates."""
        plan = tuning.ask(self.work, device=self.device)
        return [self.choice, *tuning.candidates(self.work, plan, self.device, NEAR)]

    def estimate(self, launch: str) -> float | None:
        """The planner's estimate of a launch in us; None if this build has no such kernel."""
        try:
            return tuning.ask(self.work, launch, self.device).microseconds
        except RuntimeError:
            return None

    @property
    def times(self) -> dict[str, float]:
        """The best known time of each launch in us: the fine one, or else the rough one.

        Rough times are scaled by what the fine ones of this problem are above theirs.
        """
        scales = [fine / rough for rough, fine in self.us.values() if fine]
        scale = statistics.median(scales) if scales else 1.0
        return {launch: fine or scale * rough for launch, (rough, fine) in self.us.items()}

    @property
    def loss(self) -> float | None:
        """The time of the planner's choice divided by the best time, less 1; None if not known."""
        known = self.times
        return known[self.choice] / min(known.values()) - 1 if self.choice in known else None

    @property
    def line(self) -> str:
        """The problem, its fastest launch, and the loss of the planner's choice."""
        us, best = min((us, launch) for launch, us in self.times.items())
        share = "not measured" if self.loss is None else f"+{100 * self.loss:.1f} %"
        choice = "" if self.choice == best else f"; choice {share}: {self.choice}"
        return f"{self!s:48} {us:9.2f} us {best}{choice}"


class Recording(NamedTuple):
    """A file: the machine and the seed, and the problems."""

    header: dict[str, Any]
    problems: list[Problem]


def draw(device: str, seed: int = SEED) -> list[Problem]:
    """The problems of a seed, without times."""
    source, problems = random.Random(f"rows {seed}"), []
    for index in range(PROBLEMS):
        dtype, epilogue = source.choice(DTYPES), source.choice(EPILOGUES)
        layout = "TN" if dtype == "e4m3" else source.choice(LAYOUTS)
        sizes = drawn.shape(source, SMALLEST, LARGEST, drawn.STEPS.get(dtype, drawn.STEP))
        problems.append(Problem(device, index, dtype, layout, *sizes, epilogue))
    return problems


def path_of(device: str) -> Path:
    """The file of a GPU."""
    return FOLDER / f"{device.lower()}.json"


def load(path: Path) -> Recording:
    """The recording of a file, or an empty one if there is no such file."""
    if not path.exists():
        return Recording({}, [])
    content = json.loads(path.read_text())
    device = content["header"]["device"]
    return Recording(content["header"], [Problem(device, **f) for f in content["problems"]])


def save(recording: Recording, path: Path) -> None:
    """Writes a file with one problem per line."""
    problems = [dataclasses.asdict(problem) for problem in recording.problems]
    problems.sort(key=operator.itemgetter("index"))
    for fields in problems:
        del fields["device"]
    results.write(path, {"header": recording.header, "problems": problems})


def is_done(problem: Problem) -> bool:
    """Has the problem all times?"""
    return set(problem.launches) <= problem.us.keys() and problem.us[problem.choice][1] is not None


def measure(problem: Problem, commit: str) -> Problem:
    """The problem with the times that it lacked, and all fine ones anew: two days differ by 1 %."""
    known = {launch: us for launch, (us, _) in problem.us.items()}
    missing = [launch for launch in problem.launches if launch not in known]
    work, choice = Workload(problem.case, "cuda"), problem.choice
    rough, fine, wrong = tuning.check_and_time(work, choice, missing, (ROUGH_MS, FINE_MS), known)
    for launch, reason in wrong.items():
        print(f"  {launch}: {reason}")
    commits = list(dict.fromkeys([*problem.commits, commit]))
    us = {launch: [us, fine.get(launch)] for launch, us in rough.items()}
    return dataclasses.replace(problem, commits=commits, us=us)


def main(argv=None):
    parser = command_line.parser("python -m benchmarks rows", __doc__)
    parser.add_argument("--seed", type=int, default=SEED, help="of the problems (1)")
    parser.add_argument("--minutes", type=float, default=8.0, help="stop after so many (8)")
    parser.add_argument("--resume", action="store_true", help="measure what the file lacks")
    parser.add_argument("--out", type=Path, help="the file; without it tests/data/rows/<gpu>.json")
    parser.add_argument("--commit", help="the measured commit, where there is no git")
    options = parser.parse_args(argv)
    gpu = machine.known_gpu("cuda")
    if gpu is None:
        name = machine.gpu_name("cuda")
        raise SystemExit(f"The planner does not know this GPU ({name}): docs/dev/devices.md.")
    selection = draw(gpu["name"], options.seed)
    path = options.out or path_of(gpu["name"])
    recorded = load(path)
    seed = recorded.header.get("seed", options.seed)
    if seed != options.seed:
        raise SystemExit(f"{path} has the problems of seed {seed}; pass --seed {seed}, or --out.")
    measured = {problem.index: problem for problem in recorded.problems}
    if options.resume:
        known = [measured.get(problem.index, problem) for problem in selection]
        selection = [problem for problem in known if not is_done(problem)]
        selection.sort(key=lambda problem: problem.loss is not None)
    commit = options.commit or results.commit()
    header = {**machine.facts("cuda"), "device": gpu["name"], "seed": options.seed}
    stop = time.monotonic() + 60 * options.minutes
    print(f"{len(selection)} problems of seed {options.seed} -> {path}")
    for problem in selection:
        if time.monotonic() > stop:
            print(f"{options.minutes:g} minutes are over; --resume goes on.")
            break
        measured[problem.index] = outcome = measure(problem, commit)
        save(Recording(header, list(measured.values())), path)
        print(outcome.line, flush=True)
    return 0
