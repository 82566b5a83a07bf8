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

import functools
import json
import random
import statistics
from pathlib import Path
from typing import Any

from benchmarks import RESULTS
from tcgemm import info
from tcgemm.measure import drawn, results
from tcgemm.measure.case import Case
from tcgemm.measure.operands import LAYOUTS
from tcgemm.measure.workloads import Workload
from tcgemm.ops import query

FOLDER = RESULTS.parents[1] / "tests/data/rows"
SEED, PROBLEMS = 1, 120
SMALLEST, LARGEST = 64, 16384
DTYPES = ("bf16", "bf16", "f16", "e4m3")  # each is drawn as often as it is here
EPILOGUES = ("", "", "bias", "bias+gelu_tanh")
FINE = 3  # so many of the fastest launches are measured again
CLUSTERS = (1, 2, 4)  # CTAs
NEAR = 3.0  # launches whose estimate is more times the least one are left out

Problem = dict[str, Any]
Recording = dict[str, Any]
Facts = dict[str, Any]  # of a plan


def draw(seed: int = SEED, count: int = PROBLEMS) -> list[Problem]:
    """The problems of a seed, without times."""
    source = random.Random(f"rows {seed}")
    problems: list[Problem] = []
    while len(problems) < count:
        dtype, epilogue = source.choice(DTYPES), source.choice(EPILOGUES)
        layout = "TN" if dtype == "e4m3" else source.choice(LAYOUTS)
        m, n, k = drawn.shape(source, SMALLEST, LARGEST, drawn.STEPS.get(dtype, drawn.STEP))
        sizes = {"m": m, "n": n, "k": k, "epilogue": epilogue}
        problem = {"index": len(problems), "dtype": dtype, "layout": layout, **sizes}
        problems.append({**problem, "commits": [], "us": {}})
    return problems


def case_of(problem: Problem) -> Case:
    """The problem as a case of the benchmarks; e4m3 has fast sums and a scale a tensor."""
    terms = [problem["epilogue"]] if problem["epilogue"] else []
    accumulation = ""
    if problem["dtype"] == "e4m3":
        terms, accumulation = ["tensor-scales", *terms], "fast"
    fields = {name: problem[name] for name in ("dtype", "layout", "m", "n", "k")}
    epilogue = "+".join(terms) or "none"
    return Case("mm", **fields, accumulation=accumulation, epilogue=epilogue, set="rows")


def name_of(problem: Problem) -> str:
    """The problem in one line."""
    size = "x".join(str(problem[name]) for name in "mnk")
    words = (str(problem["index"]), problem["dtype"], problem["layout"], size, problem["epilogue"])
    return " ".join(words).rstrip()


@functools.cache
def catalog() -> dict[str, dict[str, Any]]:
    """{name: row of tcgemm.info.catalog()}."""
    return {row["name"]: row for row in info.catalog()}


@functools.cache
def _workload(case: Case) -> Workload:
    return Workload(case, "meta")


def plan(device: str, problem: Problem, kernel: str = "") -> Facts | None:
    """The plan of the problem on a GPU by name, of all kernels or of one; None if it cannot run."""
    work = _workload(case_of(problem))
    options = work.options | {"device": device, "kernel": kernel or None}
    try:
        return query.ask("explain", work.operands.a[0], work.b[0], **options)
    except RuntimeError:
        return None


def launch_of(facts: Facts) -> str:
    """The launch of a plan."""
    suffix = "c" if facts["cluster_adds"] else ""
    return f"{facts['kernel']}@{facts['cluster']}/{facts['slices']}{suffix}"


def kernel_of(launch: str) -> str:
    """The kernel of a launch."""
    return launch.partition("@")[0]


def choice(device: str, problem: Problem) -> str:
    """The launch that the planner chooses."""
    facts = plan(device, problem)
    assert facts is not None, f"no kernel computes {name_of(problem)} on {device}"
    return launch_of(facts)


def plans(device: str, problem: Problem) -> dict[str, Facts]:
    """{name of a kernel: the plan that asks for it} of the kernels for operands of this dtype."""
    dense = [row for row in catalog().values() if not row["weight_bits"]]
    names = [row["name"] for row in dense if row["input"] == problem["dtype"]]
    all_plans = {name: plan(device, problem, name) for name in names}
    return {name: facts for name, facts in all_plans.items() if facts is not None}


def hidden(device: str, problem: Problem) -> list[str]:
    """Kernels that cannot be asked for, because a longer name with theirs in it is preferred."""
    return [name for name, facts in plans(device, problem).items() if facts["kernel"] != name]


def runnable(device: str, problem: Problem) -> dict[str, float]:
    """{launch: the planner's estimate in us} of those that compute the problem without copies.

    Those with the planner's number of slices are among them. Launches with estimates far above the
    least one are not, nor GEMV kernels unless the planner takes one.
    """
    estimates = {}
    best = plan(device, problem)
    slices = [f"/{best['slices']}", f"/{best['slices']}c"] if best and best["slices"] > 1 else []
    gemv = best is not None and catalog()[best["kernel"]]["gemv"]
    for name, undivided in plans(device, problem).items():
        if catalog()[name]["gemv"] and not gemv:
            continue
        for facts in [undivided, *(plan(device, problem, name + division) for division in slices)]:
            if facts and facts["kernel"] == name and not facts["copies"] and not facts["split"]:
                estimates[launch_of(facts)] = facts["microseconds"]
    least = min(estimates.values(), default=0.0)
    return {launch: us for launch, us in estimates.items() if us <= NEAR * least}


def clusters(device: str, problem: Problem, kernel: str) -> list[str]:
    """The launches of a kernel with every cluster that has no more blocks than rows of tiles."""
    single = plan(device, problem, f"{kernel}@1")
    if single is None:
        return []
    sizes = [size for size in CLUSTERS if size <= single["tiles_m"]]
    candidates = [plan(device, problem, f"{kernel}@{size}") for size in sizes]
    return [launch_of(facts) for facts in candidates if facts is not None]


def fastest(problem: Problem, count: int = FINE) -> list[str]:
    """The fastest launches by their rough times."""
    return sorted(problem["us"], key=lambda launch: problem["us"][launch][0])[:count]


def times(problem: Problem) -> dict[str, float]:
    """The best known time of each launch in us: the fine one, or else the rough one.

    Rough times are scaled by what the fine ones of this problem are above theirs.
    """
    scales = [fine / rough for rough, fine in problem["us"].values() if fine]
    scale = statistics.median(scales) if scales else 1.0
    return {launch: fine or scale * rough for launch, (rough, fine) in problem["us"].items()}


def loss(problem: Problem, launch: str) -> float | None:
    """The time of a launch divided by the best time, less 1; None if it was not measured."""
    known = times(problem)
    return known[launch] / min(known.values()) - 1 if launch in known else None


def is_held_out(problem: Problem) -> bool:
    """Is the problem one of the half that the constants are not fitted to?"""
    return problem["index"] % 2 == 1


def path_of(device: str) -> Path:
    """The file of a GPU."""
    return FOLDER / f"{device.lower()}.json"


def load(path: Path | str) -> Recording:
    """The recording of a file, or an empty one if there is no such file."""
    path = Path(path)
    return json.loads(path.read_text()) if path.exists() else {"header": {}, "problems": []}


def save(recording: Recording, path: Path | str) -> None:
    """Writes a file with one problem per line."""
    problems = sorted(recording["problems"], key=lambda problem: problem["index"])
    results.write(Path(path), {"header": recording["header"], "problems": problems})


def merge(target: Recording, new: Recording) -> Recording:
    """Puts the problems of `new` into `target`; a problem of both comes from `new`, if measured."""
    seeds = {data["header"].get("seed") for data in (target, new) if data["problems"]}
    if len(seeds) > 1:
        raise ValueError("the recordings have problems of different seeds; measure one of them.")
    problems = {problem["index"]: problem for problem in target["problems"]}
    for problem in new["problems"]:
        old = problems.get(problem["index"])
        if old is None or len(problem["us"]) >= len(old["us"]):
            problems[problem["index"]] = problem
    return {"header": new["header"] or target["header"], "problems": list(problems.values())}
