"""Recordings of the planner's problems: the time of every kernel on drawn problems.

    {"header":   {"gpu": ..., "device": "H200", "seed": 1, ...}
     "problems": [{"index": 0, "dtype": "bf16", "layout": "TN", "m": ..., "n": ..., "k": ...,
                   "epilogue": "bias", "commits": [...],
                   "us": {"kernel@2/1": [41.2, 40.9], "kernel@1/1": [55.3, null]}}]}

`python -m benchmarks rows` writes tests/data/rows/<device>.json. A launch is a kernel with the CTAs
of its cluster and the slices of k, because a plan has all three: "kernel@2/4", with a "c" behind it
if the cluster adds the slices. The first time is from a tenth of a second of each launch. The
second is from a second of the fastest launches and of the planner's choice, in alternating order.

Problems with an even index are for fitting the planner's constants. The others test its choices,
without a GPU (tests/plan/test_choice.py).
"""

from __future__ import annotations

import dataclasses
import functools
import json
import random
import statistics
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import RESULTS
from tcgemm import info
from tcgemm.measure import drawn, results
from tcgemm.measure.case import Case
from tcgemm.measure.operands import LAYOUTS
from tcgemm.measure.workloads import Workload
from tcgemm.ops import query
from tcgemm.typing import Layout

FOLDER = RESULTS.parents[1] / "tests/data/rows"
SEED, PROBLEMS = 1, 120
SMALLEST, LARGEST = 64, 16384
DTYPES = ("bf16", "bf16", "f16", "e4m3")  # each is drawn as often as it is here
EPILOGUES = ("", "", "bias", "bias+gelu_tanh")
FINE = 3  # so many of the fastest launches are measured again
CLUSTERS = (1, 2, 4)  # CTAs
NEAR = 3.0  # launches whose estimate is more times the least one are left out

Facts = dict[str, Any]  # of a plan


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
    def fields(self) -> dict[str, Any]:
        """The problem as the file has it."""
        return {name: getattr(self, name) for name in FIELDS}

    @property
    def case(self) -> Case:
        """The problem as a case of the benchmarks; e4m3 has fast sums and a scale a tensor."""
        is_float8 = self.dtype == "e4m3"
        terms = filter(None, ("tensor-scales" if is_float8 else "", self.epilogue))
        options = {"accumulation": "fast" if is_float8 else "", "set": "rows"}
        epilogue = "+".join(terms) or "none"
        sizes = (self.m, self.n, self.k)
        return Case("mm", self.dtype, self.layout, *sizes, epilogue=epilogue, **options)

    @property
    def is_held_out(self) -> bool:
        """Is the problem one of the half that the constants are not fitted to?"""
        return self.index % 2 == 1

    def plan(self, kernel: str = "") -> Facts | None:
        """The plan, of all kernels or of one; None if it cannot run."""
        work = _workload(self.case)
        options = work.options | {"device": self.device, "kernel": kernel or None}
        try:
            return query.ask("explain", work.operands.a[0], work.b[0], **options)
        except RuntimeError:
            return None

    @functools.cached_property
    def choice(self) -> str:
        """The launch that the planner chooses."""
        facts = self.plan()
        assert facts is not None, f"no kernel computes {self} on {self.device}"
        return launch_of(facts)

    def plans(self) -> dict[str, Facts]:
        """{name of a kernel: the plan that asks for it} of the kernels for operands of this dtype.

        The plan has another kernel where a longer name with this one in it is preferred.
        """
        dense = [row for row in catalog().values() if not row["weight_bits"]]
        names = [row["name"] for row in dense if row["input"] == self.dtype]
        all_plans = {name: self.plan(name) for name in names}
        return {name: facts for name, facts in all_plans.items() if facts is not None}

    def estimates(self) -> dict[str, float]:
        """{launch: the planner's estimate in us} of those that compute the problem without copies.

        Those with the planner's number of slices are among them. Launches with estimates far above
        the least one are not, nor GEMV kernels unless the planner takes one.
        """
        estimates = {}
        best = self.plan()
        slices = (
            [f"/{best['slices']}", f"/{best['slices']}c"] if best and best["slices"] > 1 else []
        )
        gemv = best is not None and catalog()[best["kernel"]]["gemv"]
        for name, undivided in self.plans().items():
            if catalog()[name]["gemv"] and not gemv:
                continue
            for facts in [undivided, *(self.plan(name + division) for division in slices)]:
                if facts and facts["kernel"] == name and not facts["copies"] and not facts["split"]:
                    estimates[launch_of(facts)] = facts["microseconds"]
        least = min(estimates.values(), default=0.0)
        return {launch: us for launch, us in estimates.items() if us <= NEAR * least}

    def clusters(self, kernel: str) -> list[str]:
        """The launches of a kernel with every cluster that has no more CTAs than rows of tiles."""
        single = self.plan(f"{kernel}@1")
        if single is None:
            return []
        sizes = [size for size in CLUSTERS if size <= single["tiles_m"]]
        candidates = [self.plan(f"{kernel}@{size}") for size in sizes]
        return [launch_of(facts) for facts in candidates if facts is not None]

    def fastest(self, count: int = FINE) -> list[str]:
        """The fastest launches by their rough times."""
        return sorted(self.us, key=lambda launch: self.us[launch][0])[:count]

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


FIELDS = [field.name for field in dataclasses.fields(Problem)[1:]]


class Recording(NamedTuple):
    """A file: the machine and the seed, and the problems."""

    header: dict[str, Any]
    problems: list[Problem]


def draw(device: str, seed: int = SEED, count: int = PROBLEMS) -> list[Problem]:
    """The problems of a seed, without times."""
    source = random.Random(f"rows {seed}")
    problems: list[Problem] = []
    while len(problems) < count:
        dtype, epilogue = source.choice(DTYPES), source.choice(EPILOGUES)
        layout = "TN" if dtype == "e4m3" else source.choice(LAYOUTS)
        sizes = drawn.shape(source, SMALLEST, LARGEST, drawn.STEPS.get(dtype, drawn.STEP))
        problems.append(Problem(device, len(problems), dtype, layout, *sizes, epilogue))
    return problems


@functools.cache
def catalog() -> dict[str, dict[str, Any]]:
    """{name: row of tcgemm.info.catalog()}."""
    return {row["name"]: row for row in info.catalog()}


@functools.cache
def _workload(case: Case) -> Workload:
    return Workload(case, "meta")


def launch_of(facts: Facts) -> str:
    """The launch of a plan."""
    suffix = "c" if facts["cluster_adds"] else ""
    return f"{facts['kernel']}@{facts['cluster']}/{facts['slices']}{suffix}"


def kernel_of(launch: str) -> str:
    """The kernel of a launch."""
    return launch.partition("@")[0]


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
    problems = sorted(recording.problems, key=lambda problem: problem.index)
    content = {"header": recording.header, "problems": [problem.fields for problem in problems]}
    results.write(path, content)


def merge(target: Recording, new: Recording) -> Recording:
    """Puts the problems of `new` into `target`; a problem of both comes from `new`, if measured."""
    seeds = {data.header.get("seed") for data in (target, new) if data.problems}
    if len(seeds) > 1:
        raise ValueError("the recordings have problems of different seeds; measure one of them.")
    problems = {problem.index: problem for problem in target.problems}
    for problem in new.problems:
        old = problems.get(problem.index)
        if old is None or len(problem.us) >= len(old.us):
            problems[problem.index] = problem
    return Recording(new.header or target.header, list(problems.values()))
