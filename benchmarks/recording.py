"""Measures the kernels on problems that a seed draws, for the planner's constants and tests.

    python -m benchmarks rows --plan H200     anywhere: draws problems, and lists their launches
    python -m benchmarks rows --minutes 8     on the GPU: measures what has no time yet

A launch is a kernel with the CTAs of its cluster and the slices of k, as tcgemm.measure.name_of
writes it. Of each problem these are measured: the planner's choice, the NEAREST other launches by
estimate, and DRAWN of the others. Each runs for twice ROUGH_MS, in two orders; the FINALISTS
fastest, the choice and torch then for FINE_MS. tests/data/rows/<gpu>.json has both times:

    {"header":   {"gpu": ..., "device": "H200", "seed": 1, ..., "launches": ["kernel@2/1", ...]}
     "problems": [{"index": 0, "kind": "bf16", "layout": "TN", "m": ..., "n": ..., "k": ...,
                   "terms": "bias", "torch": 45.1, "us": [[0, 41.2, 40.9], [7, 55.3, null]]}]}

A launch is a number there, its place among "launches". Without a time it has two nulls.

Problems with an even index are for fitting the planner's constants. The others test its choices,
without a GPU (tests/plan/test_choice.py).

The file is written after each problem, so a run that is killed loses one. To add the choices of a
planner that has changed since, run --plan again and then measure.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import operator
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import RESULTS
from tcgemm.measure import command_line, machine, name_of, results
from tcgemm.measure.case import Case
from tcgemm.measure.drawn import log_uniform
from tcgemm.measure.operands import DTYPES, LAYOUTS
from tcgemm.measure.tune import measure as tuning
from tcgemm.measure.work import TORCH
from tcgemm.measure.workloads import Workload
from tcgemm.measure.works import work_of
from tcgemm.typing import Layout

FOLDER = RESULTS.parents[1] / "tests/data/rows"
SEED = 1
NEAREST, DRAWN = 24, 8  # launches beside the choice
NEAR = 3.0  # launches whose estimate is more times the least one are not drawn
ROUGH_MS, FINE_MS, FINALISTS = 10.0, 100.0, 4
GRAPH_US = 2000.0  # 32 launches are captured for each problem

# The ends of the strata of M and N, and of K: within one a size is log-uniform.
SIZES = (1, 17, 65, 257, 1025, 4097, 16385)
DEPTHS = (64, 257, 1025, 4097, 16385, 131073)
# Bytes: a contiguous dimension is an odd multiple of 16, of 32, or whole lines of L2.
PITCHES = (16, 32, 128)
LINE = 128
STEP = 8  # elements: other sizes of at least one tile are multiples, as in most models


@dataclasses.dataclass(frozen=True)
class Kind:
    """Problems with the same operands: how many are drawn, and what is drawn for each."""

    count: int
    dtype: str
    layouts: tuple[Layout, ...] = ("TN",)
    terms: tuple[str, ...] = ("",)  # epilogues, each as often as it is here
    operands: str = ""  # the terms of Case that describe the operands
    accumulation: str = ""
    pitches: tuple[int, ...] = PITCHES
    most_flops: float = 1.5e12  # of one product, so that a slice has several calls


_EPILOGUES = ("", "", "", "bias", "bias+gelu_tanh")
KINDS = {
    "bf16": Kind(76, "bf16", LAYOUTS, _EPILOGUES),
    "f16": Kind(44, "f16", LAYOUTS, _EPILOGUES),
    "e4m3": Kind(36, "e4m3", operands="tensor-scales", accumulation="fast"),
    "e4m3 promoted": Kind(28, "e4m3", operands="tensor-scales", accumulation="promoted"),
    "e4m3 128x128": Kind(16, "e4m3", operands="128x128-scales", accumulation="promoted"),
    "e4m3 1x128": Kind(20, "e4m3", operands="1x128-scales", accumulation="promoted"),
    "s8": Kind(36, "s8", LAYOUTS),
    "tf32": Kind(48, "tf32", LAYOUTS, most_flops=5e11),
    "f32": Kind(20, "f32", LAYOUTS, most_flops=1e11),
    "f64": Kind(24, "f64", LAYOUTS, most_flops=1e11),
    "int4": Kind(36, "bf16", operands="packed-int4-128", pitches=(256,)),
    "int8": Kind(20, "bf16", operands="packed-int8-row", pitches=(256,)),
    "bf16 2:4": Kind(24, "bf16", operands="sparse", pitches=(128,)),
    "s8 2:4": Kind(12, "s8", operands="sparse", pitches=(128,)),
}


@dataclasses.dataclass
class Problem:
    """A drawn problem on a GPU: its recorded times, and what the planner says of it today."""

    device: str  # the planner's name of the GPU; it is in the header of a file
    index: int
    kind: str
    layout: Layout
    m: int
    n: int
    k: int
    terms: str
    torch: float | None = None  # us
    us: dict[str, list[Any]] = dataclasses.field(default_factory=dict)  # {launch: [rough, fine]}

    def __str__(self) -> str:
        size = f"{self.m}x{self.n}x{self.k}"
        return f"{self.index} {self.kind} {self.layout} {size} {self.terms}".rstrip()

    @property
    def case(self) -> Case:
        """The problem as a case of the benchmarks."""
        kind = KINDS[self.kind]
        terms = "+".join(filter(None, (kind.operands, self.terms))) or "none"
        options = {"accumulation": kind.accumulation, "epilogue": terms}
        return Case("mm", kind.dtype, self.layout, self.m, self.n, self.k, **options)

    @functools.cached_property
    def work(self) -> Workload:
        """The problem without memory, to be planned."""
        return work_of(self.case, "meta")

    @functools.cached_property
    def choice(self) -> str:
        """The launch that the planner chooses."""
        return name_of(tuning.ask(self.work, device=self.device))

    def launches(self) -> list[str]:
        """The planner's choice and the launches that are measured beside it."""
        plan = tuning.ask(self.work, device=self.device)
        every = tuning.estimates(self.work, plan, self.device)
        least = min([*every.values(), plan.microseconds or 0.0])
        nearest, others = list(every)[:NEAREST], list(every.items())[NEAREST:]
        far = [launch for launch, us in others if us <= NEAR * least]
        drawn = random.Random(str(self)).sample(far, min(DRAWN, len(far)))
        return [self.choice, *nearest, *drawn]

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
        known = {launch: us for launch, us in self.us.items() if us[0]}
        scales = [fine / rough for rough, fine in known.values() if fine]
        scale = statistics.median(scales) if scales else 1.0
        return {launch: fine or scale * rough for launch, (rough, fine) in known.items()}

    @property
    def loss(self) -> float | None:
        """The time of the planner's choice divided by the best time, less 1; None if not known."""
        known = self.times
        return known[self.choice] / min(known.values()) - 1 if self.choice in known else None

    @property
    def line(self) -> str:
        """The problem, its fastest launch, and the loss of the planner's choice."""
        known = self.times
        if not known:
            return f"{self!s:48} no launch could be timed"
        us, best = min((us, launch) for launch, us in known.items())
        share = "not measured" if self.loss is None else f"+{100 * self.loss:.1f} %"
        choice = "" if self.choice == best else f"; choice {share}: {self.choice}"
        beside = f" {self.torch / us:5.2f} x torch" if self.torch else ""
        return f"{self!s:48} {us:9.2f} us{beside} {best}{choice}"


class Recording(NamedTuple):
    """A file: the machine and the seed, and the problems."""

    header: dict[str, Any]
    problems: list[Problem]


def draw(device: str, seed: int = SEED) -> list[Problem]:
    """The problems of a seed, without times; those of the kinds are interleaved."""
    drawn = {name: _of_kind(name, kind, seed) for name, kind in KINDS.items()}
    order = [
        ((place + 0.5) / len(problems), name, problem)
        for name, problems in drawn.items()
        for place, problem in enumerate(problems)
    ]
    return [
        Problem(device, index, name, *problem)
        for index, (_, name, problem) in enumerate(sorted(order))
    ]


def _of_kind(name: str, kind: Kind, seed: int) -> list[tuple[Layout, int, int, int, str]]:
    """The layout, M, N, K and terms of the problems of a kind.

    Their strata are all combinations of those of M, N and K, in an order that the seed shuffles.
    Those whose smallest product has too many operations are left out.
    """
    source = random.Random(f"{name} {seed}")
    ranges = [list(itertools.pairwise(ends)) for ends in (SIZES, SIZES, DEPTHS)]
    strata = list(itertools.product(*ranges))
    source.shuffle(strata)
    small = [s for s in strata if 4.0 * math.prod(low for low, _ in s) <= kind.most_flops]
    found = []
    for stratum in itertools.islice(itertools.cycle(small), kind.count):
        layout, terms = source.choice(kind.layouts), source.choice(kind.terms)
        found.append((layout, *_sizes(source, kind, layout, stratum), terms))
    return found


def _sizes(
    source: random.Random, kind: Kind, layout: Layout, stratum: tuple[tuple[int, int], ...]
) -> tuple[int, int, int]:
    """M, N and K within their ranges, of at most the operations of the kind."""
    itemsize = DTYPES[kind.dtype].itemsize
    contiguous = {"K" if layout[0] == "T" else "N", "K" if layout[1] == "N" else "M"}
    pitch = source.choice(kind.pitches)
    while True:
        sizes = {
            dim: log_uniform(source, low, high - 1, 1)
            for dim, (low, high) in zip("MNK", stratum, strict=True)
        }
        for dim in contiguous:
            sizes[dim] = _with_pitch(sizes[dim], itemsize, pitch)
        if "N" not in contiguous and sizes["N"] >= SIZES[2]:
            sizes["N"] = round(sizes["N"] / STEP) * STEP
        if 2.0 * math.prod(sizes.values()) <= kind.most_flops:
            return sizes["M"], sizes["N"], sizes["K"]


def _with_pitch(size: int, itemsize: int, pitch: int) -> int:
    """About so many elements, in an odd multiple of `pitch` bytes, or a multiple of whole lines."""
    unit, rest = (pitch, 0) if pitch >= LINE else (2 * pitch, pitch)
    count = round((size * itemsize - rest) / unit) * unit + rest
    return max(count, pitch) // itemsize


def path_of(device: str) -> Path:
    """The file of a GPU."""
    return FOLDER / f"{device.lower()}.json"


def load(path: Path) -> Recording:
    """The recording of a file, or an empty one if there is no such file."""
    if not path.exists():
        return Recording({}, [])
    content = json.loads(path.read_text())
    header = content["header"]
    names, problems = header.pop("launches"), []
    for fields in content["problems"]:
        us = {names[place]: times for place, *times in fields.pop("us")}
        problems.append(Problem(header["device"], **fields, us=us))
    return Recording(header, problems)


def save(recording: Recording, path: Path) -> None:
    """Writes a file with one problem per line."""
    problems = sorted(recording.problems, key=operator.attrgetter("index"))
    names = list(dict.fromkeys(itertools.chain.from_iterable(problem.us for problem in problems)))
    place_of = {name: place for place, name in enumerate(names)}
    lines = []
    for problem in problems:
        fields = dataclasses.asdict(problem)
        del fields["device"]
        fields["us"] = [[place_of[launch], *times] for launch, times in problem.us.items()]
        lines.append(fields)
    results.write(path, {"header": recording.header | {"launches": names}, "problems": lines})


def plan(recording: Recording, device: str, seed: int) -> Recording:
    """The recording with what is to be measured: all launches of new problems, and the choices of
    the others."""
    known = {problem.index: problem for problem in recording.problems}
    problems = [known.get(problem.index, problem) for problem in draw(device, seed)]
    for problem in problems:
        for launch in [problem.choice] if problem.us else problem.launches():
            problem.us.setdefault(launch, [None, None])
    return Recording({"device": device, "seed": seed} | recording.header, problems)


def lacks_times(problem: Problem) -> bool:
    """Is there a launch that was not measured?"""
    return any(rough is None for rough, _ in problem.us.values())


def measure(problem: Problem) -> Problem:
    """The problem with the times that it lacked, and all fine ones anew: two days differ by 1 %.

    Launches that cannot be timed are left out.
    """
    work = work_of(problem.case, "cuda")
    rough = {launch: us for launch, (us, _) in problem.us.items() if us}
    rough |= _times(work, [launch for launch in problem.us if launch not in rough], 2 * ROUGH_MS)
    fastest = sorted(rough, key=rough.__getitem__)[:FINALISTS]
    finalists = [launch for launch in dict.fromkeys([problem.choice, *fastest]) if launch in rough]
    fine = _times(work, [*finalists, TORCH], FINE_MS)
    us = {launch: [us, fine.get(launch)] for launch, us in rough.items()}
    return dataclasses.replace(problem, torch=fine.get(TORCH), us=us)


def _times(work: Workload, names: Sequence[str], ms: float) -> dict[str, float]:
    """Microseconds of launches and of torch; those that cannot be timed are left out."""
    launches = [name for name in names if name != TORCH]
    candidates = work.candidates() if TORCH in names else {}
    beside = {name: call for name, call in candidates.items() if name == TORCH}
    refusals: dict[str, str] = {}
    found = tuning.times(work, launches, ms, beside, graph_us=GRAPH_US, refusals=refusals)
    for name, reason in refusals.items():
        print(f"  {name}: {reason}")
    return found


def main(argv=None):
    parser = command_line.parser("python -m benchmarks rows", __doc__)
    parser.add_argument("--plan", metavar="GPU", help="draw and list the launches, such as H200")
    parser.add_argument("--seed", type=int, default=SEED, help="of the problems (1)")
    parser.add_argument("--minutes", type=float, default=8.0, help="stop after so many (8)")
    parser.add_argument("--out", type=Path, help="the file; without it tests/data/rows/<gpu>.json")
    parser.add_argument("--commit", help="the measured commit, where there is no git")
    options = parser.parse_args(argv)
    if options.plan:
        path = options.out or path_of(options.plan)
        recorded = load(path)
        seed = recorded.header.get("seed", options.seed)
        if seed != options.seed:
            raise SystemExit(
                f"{path} has the problems of seed {seed}; pass --seed {seed} or --out."
            )
        planned = plan(recorded, options.plan, seed)
        save(planned, path)
        missing = sum(map(lacks_times, planned.problems))
        print(f"{missing} of {len(planned.problems)} problems are to be measured: {path}")
        return 0
    gpu = machine.known_gpu("cuda")
    if gpu is None:
        name = machine.gpu_name("cuda")
        raise SystemExit(f"The planner does not know this GPU ({name}): docs/dev/devices.md.")
    path = options.out or path_of(gpu["name"])
    recorded = load(path)
    if not recorded.problems:
        raise SystemExit(f"{path} has no problems: python -m benchmarks rows --plan {gpu['name']}")
    if recorded.header["device"] != gpu["name"]:
        raise SystemExit(f"{path} is about an {recorded.header['device']}, not {gpu['name']}.")
    commits = [*recorded.header.get("commits", []), options.commit or results.commit()]
    header = recorded.header | machine.facts("cuda") | {"commits": list(dict.fromkeys(commits))}
    measured = {problem.index: problem for problem in recorded.problems}
    missing = list(filter(lacks_times, recorded.problems))
    stop = time.monotonic() + 60 * options.minutes
    print(f"{len(missing)} problems of {path}")
    for problem in missing:
        if time.monotonic() > stop:
            print(f"{options.minutes:g} minutes are over; call it again to go on.")
            break
        measured[problem.index] = outcome = measure(problem)
        save(Recording(header, list(measured.values())), path)
        print(outcome.line, flush=True)
    return 0
