"""Recordings of the planner's problems: the time of every kernel on drawn problems.

    {"header":   {"gpu": ..., "device": "H200", "seed": 1, ...}
     "problems": [{"index": 0, "dtype": "bf16", "layout": "TN", "m": ..., "n": ..., "k": ...,
                   "epilogue": "bias", "commits": [...], "rows": [
                      {"kernel": ..., "cluster": 2, "slices": "", "rough_us": 41.2,
                       "fine_us": 40.9}]}]}

`python -m benchmarks rows` writes results/rows/<device>.json. A row is a kernel with a number of
CTAs in a cluster and the slices of k, because a plan has all three: "/4" are four slices
that another kernel adds, "/4c" four that a cluster adds. rough_us is from a tenth of a second of
each row, fine_us from a second of the fastest rows and of the planner's choice, in alternating
order.

Problems with an even index are for fitting the planner's constants. The others test its choices,
without a GPU (tests/plan/test_choice.py).
"""

import functools
import json
import random
import statistics
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks import RESULTS
from tcgemm import dtypes, info
from tcgemm.measure import drawn, results_file
from tcgemm.measure.case import Case
from tcgemm.measure.operands import LAYOUTS, in_layout
from tcgemm.ops import query

FOLDER = RESULTS / "rows"
SEED, PROBLEMS = 1, 120
SMALLEST, LARGEST = 64, 16384
DTYPES = ("bf16", "bf16", "f16", "e4m3")  # each is drawn as often as it is here
TORCH_DTYPES = {name: dtype for dtype, name in dtypes.NAMES.items()}
EPILOGUES = ("", "", "bias", "bias+gelu_tanh")
FINE = 3  # so many of the fastest rows are measured again
CLUSTERS = (1, 2, 4)  # CTAs
NEAR = 3.0  # rows whose estimate is more times the least one are left out

Problem = dict[str, Any]
Recording = dict[str, Any]


class Row(NamedTuple):
    """A kernel, the number of CTAs in its clusters, and the slices of k."""

    kernel: str
    cluster: int
    slices: str = ""

    @property
    def request(self) -> str:
        """The text that asks for this row."""
        return f"{self.kernel}@{self.cluster}{self.slices}"

    def __str__(self) -> str:
        return f"{self.kernel} c{self.cluster}{self.slices}"


def draw(seed: int = SEED, count: int = PROBLEMS) -> list[Problem]:
    """The problems of a seed, without rows."""
    source = random.Random(f"rows {seed}")
    problems: list[Problem] = []
    while len(problems) < count:
        dtype, epilogue = source.choice(DTYPES), source.choice(EPILOGUES)
        layout = "TN" if dtype == "e4m3" else source.choice(LAYOUTS)
        m, n, k = drawn.shape(source, SMALLEST, LARGEST, drawn.STEPS.get(dtype, drawn.STEP))
        sizes = {"m": m, "n": n, "k": k, "epilogue": epilogue}
        problem = {"index": len(problems), "dtype": dtype, "layout": layout, **sizes}
        problems.append({**problem, "commits": [], "rows": []})
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


def plan(device: str, problem: Problem, kernel: str = "") -> dict[str, Any] | None:
    """The plan of the problem on a GPU by name, of all kernels or of one; None if it cannot run."""
    m, n, k = (problem[size] for size in "mnk")
    fp8, dtype = problem["dtype"] == "e4m3", TORCH_DTYPES[problem["dtype"]]
    meta = functools.partial(torch.empty, device="meta")
    a, b = in_layout(problem["layout"], meta(m, k, dtype=dtype), meta(k, n, dtype=dtype))
    has_bias, _, activation = problem["epilogue"].partition("+")
    options: dict[str, Any] = {"device": device, "kernel": kernel or None}
    options["activation"] = activation or None
    if has_bias:
        options["bias"] = meta(n, dtype=torch.bfloat16 if fp8 else dtype)
    if fp8:
        options |= {"precision": "fast", "scale_a": meta(1, 1), "scale_b": meta(1, 1)}
    try:
        return query.ask("explain", a, b, **options)
    except RuntimeError:
        return None


def row_of(facts: dict[str, Any]) -> Row:
    """The row of a plan."""
    slices = f"/{facts['slices']}" + "c" * facts["cluster_adds"] if facts["slices"] > 1 else ""
    return Row(facts["kernel"], facts["cluster"], slices)


def choice(device: str, problem: Problem) -> Row:
    """The row that the planner chooses."""
    facts = plan(device, problem)
    assert facts is not None, f"no kernel computes {name_of(problem)} on {device}"
    return row_of(facts)


def plans(device: str, problem: Problem) -> dict[str, dict[str, Any]]:
    """{name of a kernel: the plan that asks for it} of the kernels for operands of this dtype."""
    dense = [row for row in catalog().values() if not row["weight_bits"]]
    names = [row["name"] for row in dense if row["input"] == problem["dtype"]]
    all_plans = {name: plan(device, problem, name) for name in names}
    return {name: facts for name, facts in all_plans.items() if facts is not None}


def hidden(device: str, problem: Problem) -> list[str]:
    """Kernels that cannot be asked for, because a longer name with theirs in it is preferred."""
    return [name for name, facts in plans(device, problem).items() if facts["kernel"] != name]


def runnable(device: str, problem: Problem) -> dict[Row, float]:
    """{row: the planner's estimate in us} of the rows that compute the problem without copies.

    Those with the planner's number of slices are among them. Rows with estimates far above the
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
                estimates[row_of(facts)] = facts["microseconds"]
    least = min(estimates.values(), default=0.0)
    return {row: us for row, us in estimates.items() if us <= NEAR * least}


def clusters(device: str, problem: Problem, kernel: str) -> list[Row]:
    """The rows of a kernel with every cluster that has no more blocks than rows of tiles."""
    single = plan(device, problem, f"{kernel}@1")
    if single is None:
        return []
    sizes = [size for size in CLUSTERS if size <= single["tiles_m"]]
    candidates = [plan(device, problem, f"{kernel}@{size}") for size in sizes]
    return [row_of(facts) for facts in candidates if facts is not None]


def rows_of(problem: Problem) -> dict[Row, dict[str, Any]]:
    """{row: what was measured}."""
    return {
        Row(row["kernel"], row["cluster"], row.get("slices", "")): row for row in problem["rows"]
    }


def fastest(problem: Problem, count: int = FINE) -> list[Row]:
    """The fastest rows by their rough times."""
    rows = rows_of(problem)
    return sorted(rows, key=lambda row: rows[row]["rough_us"])[:count]


def times(problem: Problem) -> dict[Row, float]:
    """The best known time of each row in us: the fine one, or else the rough one.

    Rough times are scaled by what the fine ones of this problem are above theirs.
    """
    rows = rows_of(problem)
    scales = [row["fine_us"] / row["rough_us"] for row in rows.values() if row["fine_us"]]
    scale = statistics.median(scales) if scales else 1.0
    return {name: row["fine_us"] or scale * row["rough_us"] for name, row in rows.items()}


def loss(problem: Problem, row: Row) -> float | None:
    """The time of a row divided by the best time, less 1; None if it was not measured."""
    known_times = times(problem)
    return known_times[row] / min(known_times.values()) - 1 if row in known_times else None


def is_held_out(problem: Problem) -> bool:
    """Is the problem one of the half that the constants are not fitted to?"""
    return problem["index"] % 2 == 1


def path_of(device: str) -> Path:
    """The file of a GPU."""
    return FOLDER / f"{device.lower()}.json"


def empty() -> Recording:
    """A recording without problems."""
    return {"header": {}, "problems": []}


def load(path: Path | str) -> Recording:
    """The recording of a file, or an empty one if there is no such file."""
    path = Path(path)
    return json.loads(path.read_text()) if path.exists() else empty()


def save(recording: Recording, path: Path | str) -> None:
    """Writes a file with one problem per line."""
    problems = sorted(recording["problems"], key=lambda problem: problem["index"])
    results_file.write(Path(path), {"header": recording["header"], "problems": problems})


def merge(target: Recording, new: Recording) -> Recording:
    """Puts the problems of `new` into `target`; a problem of both comes from `new`, if measured."""
    seeds = {data["header"].get("seed") for data in (target, new) if data["problems"]}
    if len(seeds) > 1:
        raise ValueError("the recordings have problems of different seeds; measure one of them.")
    problems = {problem["index"]: problem for problem in target["problems"]}
    for problem in new["problems"]:
        old = problems.get(problem["index"])
        if old is None or len(problem["rows"]) >= len(old["rows"]):
            problems[problem["index"]] = problem
    return {"header": new["header"] or target["header"], "problems": list(problems.values())}
