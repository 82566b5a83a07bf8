"""Recordings of the planner's problems: the times of the kernels on drawn problems.

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
from tcgemm.measure import drawn, name_of, results
from tcgemm.measure.case import Case
from tcgemm.measure.operands import LAYOUTS
from tcgemm.measure.tune import measure
from tcgemm.measure.workloads import Workload
from tcgemm.typing import Layout

FOLDER = RESULTS.parents[1] / "tests/data/rows"
SEED, PROBLEMS = 1, 120
SMALLEST, LARGEST = 64, 16384
DTYPES = ("bf16", "bf16", "f16", "e4m3")  # each is drawn as often as it is here
EPILOGUES = ("", "", "bias", "bias+gelu_tanh")
NEAR = 3.0  # launches whose estimate is more times the least one are left out


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
        terms = filter(None, ("tensor-scales" if is_float8 else "", self.epilogue))
        options = {"accumulation": "fast" if is_float8 else "", "epilogue": "+".join(terms)}
        return Case("mm", self.dtype, self.layout, self.m, self.n, self.k, **options)

    @functools.cached_property
    def work(self) -> Workload:
        """The problem without memory, to be planned."""
        return Workload(self.case, "meta")

    @functools.cached_property
    def choice(self) -> str:
        """The launch that the planner chooses."""
        return name_of(measure.ask(self.work, device=self.device))

    @functools.cached_property
    def launches(self) -> list[str]:
        """The planner's choice, and its candidates."""
        plan = measure.ask(self.work, device=self.device)
        return [self.choice, *measure.candidates(self.work, plan, self.device, NEAR)]

    def estimate(self, launch: str) -> float:
        """The planner's estimate of a launch in us."""
        return measure.ask(self.work, launch, self.device).microseconds or 0.0

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
        text = f"{self!s:48} {us:9.2f} us {best}"
        if self.choice == best:
            return text
        share = "not measured" if self.loss is None else f"+{100 * self.loss:.1f} %"
        return f"{text}; choice {share}: {self.choice}"


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
    problems = [
        dataclasses.asdict(problem)
        for problem in sorted(recording.problems, key=lambda problem: problem.index)
    ]
    for fields in problems:
        del fields["device"]
    results.write(path, {"header": recording.header, "problems": problems})
