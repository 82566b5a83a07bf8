"""Performance targets for whole sets of cases on an H200, and whether they are met.

    Target    a least geometric mean of a ratio over its shapes, with a limit for the lowest one; a
              least ratio for every shape (`each`); or a time (`within`)
    cliff     the times of sizes that differ by a few elements: slowest over fastest

Both read the rows and details of results_file.py, so that a run and the report judge alike. The
targets of single cases are `Case.target`.
"""

import math
from dataclasses import asdict, dataclass, field

from tcgemm.bench import results_file
from tcgemm.bench.cases import CLIFF, EVEN, cases

LOWEST = 0.95  # no shape may be below this, unless the target itself is lower
MAX_CLIFF = 1.15
CLIFF_AXES = ("M", "N", "K", "all")
EDGE = 4096  # the aligned size of a cliff
FEW_ROWS = 128  # shapes with fewer rows have targets of their own


@dataclass(frozen=True)
class Target:
    """A target of the ratio to torch, or to the second baseline (`self_baseline`), or of a time.

    It is about the rows whose fields have these values; a tuple lists the values that fit.
    """

    name: str
    least: float
    fields: dict = field(hash=False)
    self_baseline: bool = False
    sizes: tuple = ()  # of the cubes; (): any
    cubes: bool = True  # only M = N = K
    volume: int = 0  # the least m n k
    few_rows: bool = False
    within: float = 0.0  # us
    each: bool = False  # a target for each shape instead of their mean

    def is_about(self, row):
        cube = row["m"] == row["n"] == row["k"] and (not self.sizes or row["m"] in self.sizes)
        large = row["m"] * row["n"] * row["k"] >= self.volume
        rows = (row["m"] < FEW_ROWS) == self.few_rows
        return large and rows and (cube or not self.cubes) and self._has_fields(row)

    def _has_fields(self, row):
        return all(
            row[name] in value if isinstance(value, tuple) else row[name] == value
            for name, value in self.fields.items()
        )

    @property
    def lowest(self):
        """The limit of the lowest shape."""
        return self.least if self.each else min(LOWEST, self.least)

    def expected(self):
        """The number of shapes it is about."""
        return sum(self.is_about(asdict(case)) for case in cases(self.fields["set"]))

    def ratio(self, row, results):
        if self.within:
            return row["us"] and self.within / row["us"]
        detail = results["details"].get(results_file.key(row), {})
        return detail.get("own_ratio") if self.self_baseline else row["ratio"]


def _fp8(accumulation, epilogue):
    name = "fp8" if epilogue == "tensor-scales" else "scales"
    return {"set": name, "dtype": "e4m3", "accumulation": accumulation, "epilogue": epilogue}


def _targets():
    even = {"sizes": EVEN}
    yield Target(
        "s8 TN x torch._int_mm", 1.6, {"set": "int8", "dtype": "s8", "layout": "TN"}, **even
    )
    s8_nn = {"set": "int8", "dtype": "s8", "layout": "NN"}
    yield Target("s8 NN x our own TN", 0.93, s8_nn, self_baseline=True, **even)
    for mode in ("fast", "promoted"):
        fields = _fp8(mode, "tensor-scales")
        yield Target(f"e4m3 {mode} x torch._scaled_mm", 1.02, fields, **even)
    for mode in ("fast", "promoted"):
        rows = _fp8(mode, "row-scales")
        name = f"e4m3 {mode}, row scales x"
        yield Target(f"{name} a scale a tensor", 0.98, rows, self_baseline=True)
        yield Target(f"{name} torch._scaled_mm", 1.03, rows)
    blocks = _fp8("promoted", "128x128-scales")
    yield Target("e4m3 1x128 by 128x128 x torch._scaled_mm", 1.12, blocks)
    for dtype, least, sizes in (("tf32", 1.08, EVEN[:3]), ("f64", 1.04, (1024, *EVEN[:3]))):
        fields = {"set": dtype, "dtype": dtype, "layout": ("TN", "NN")}
        yield Target(f"{dtype} TN and NN x torch.mm", least, fields, sizes=sizes)
    f32 = {"set": "highest", "op": "mm", "dtype": "f32", "epilogue": "none"}
    for sizes, name, least in (
        ((2048, 3072, 4096, 6144, 8192), "2048 to 8192", 4.0),
        ((1024,), "1024", 2.0),
        ((512,), "512", 1.2),
    ):
        yield Target(f"each f32 {name} x torch.mm", least, f32, sizes=sizes, each=True)
    spread = {**f32, "epilogue": "spread"}
    yield Target("each f32 spread, 2048 to 8192 x torch.mm", 2.2, spread, each=True)


def _sparse_targets():
    every, sparse = {"cubes": False}, {"set": "sparse-mm", "op": "mm"}
    for dtype in ("f16", "bf16"):
        fields = {**sparse, "dtype": dtype}
        yield Target(f"{dtype} 2:4 x cuSPARSELt", 1.03, fields, **every)
        large = {**every, "volume": 4096**3, "self_baseline": True}
        yield Target(f"{dtype} 2:4 from 4096^3 x our own dense", 1.4, fields, **large)
    for dtype, epilogue, name in (
        ("s8", "sparse", "s8 2:4"),
        ("s8", "sparse+to-bf16", "s8 2:4 to bf16"),
        ("e4m3", "sparse", "e4m3 2:4"),
    ):
        yield Target(f"{name} x cuSPARSELt", 1.03, {**sparse, "dtype": dtype, "epilogue": epilogue})
    yield Target("tf32 1:2 x torch.mm, dense", 1.6, {**sparse, "dtype": "tf32"}, **every)
    few = {**every, "few_rows": True, "self_baseline": True}
    yield Target("bf16 2:4, few rows x our own dense", 1.4, {**sparse, "dtype": "bf16"}, **few)
    for fields, name, us in (
        ({"op": "compress", "dtype": "bf16"}, "prune and compress bf16", 70.0),
        ({"op": "compress", "dtype": "s8"}, "prune and compress s8", 45.0),
        ({"op": "prune"}, "transposable prune bf16", 200.0),
        ({"op": "linear"}, "host time of each sparse linear", 15.0),
    ):
        timed = {**every, "within": us, "each": True}
        yield Target(f"{us:.0f} us / {name}", 1.0, {**sparse, **fields}, **timed)


TARGETS = (*_targets(), *_sparse_targets())


@dataclass(frozen=True)
class Outcome:
    """A target with the ratios and errors of the shapes that were measured."""

    target: Target
    expected: int
    ratios: list
    errors: list  # in units of the bound

    @property
    def name(self):
        return self.target.name

    @property
    def least(self):
        return self.target.least

    @property
    def measured(self):
        return len(self.ratios)

    @property
    def mean(self):
        return math.exp(sum(map(math.log, self.ratios)) / self.measured) if self.ratios else None

    @property
    def lowest(self):
        return min(self.ratios, default=None)

    @property
    def met(self):
        if self.measured < self.expected:
            return False
        return self.mean >= self.least and self.lowest >= self.target.lowest

    @property
    def word(self):
        if self.measured < self.expected:
            return f"{self.measured} of {self.expected} shapes"
        return "PASS" if self.met else "MISS"


def outcomes(results):
    """An Outcome for each target that some row is about."""
    found = []
    for target in TARGETS:
        rows = list(filter(target.is_about, results["rows"]))
        ratios = [target.ratio(row, results) for row in rows]
        errors = [row["max_error_ratio"] for row in rows]
        known = [[value for value in values if value is not None] for values in (ratios, errors)]
        if rows:
            found.append(Outcome(target, target.expected(), *known))
    return found


def cliff_axis(row):
    """ "M", "N", "K" or "all": the sizes of a row that are beside 4096; "" if none is.

    None if the row is no part of a cliff.
    """
    plain = (row["op"], row["layout"], row["epilogue"]) == ("mm", "TN", "none")
    beside = [name for name in "mnk" if row[name] != EDGE]
    if not plain or any(row[name] not in CLIFF for name in beside):
        return None
    if len(beside) < 2:
        return "".join(beside).upper()
    return "all" if row["m"] == row["n"] == row["k"] else None


def cliffs(results):
    """{dtype: {"M" | "N" | "K" | "all": slowest over fastest, with 4096^3 among them}}."""
    rows = [row for row in results["rows"] if row["us"] and ":" not in row["set"]]
    found = {}
    for dtype in sorted({row["dtype"] for row in rows}):
        times = {}
        for row in rows:
            if row["dtype"] == dtype:
                times.setdefault(cliff_axis(row), {})[row["m"], row["n"], row["k"]] = row["us"]
        for axis in CLIFF_AXES:
            mine = times.get(axis, {}).values()
            if "" in times and len(mine) == len(CLIFF):
                both = [*mine, *times[""].values()]
                found.setdefault(dtype, {})[axis] = max(both) / min(both)
    return found


def summary_lines(results):
    """The outcomes as lines of text, how many targets are met, and how many there are."""
    text, met = [], 0
    found, edges = outcomes(results), cliffs(results)
    for outcome in found:
        span = "" if outcome.mean is None else f"{outcome.mean:6.3f}, lowest {outcome.lowest:5.3f}"
        text.append(f"  {outcome.name:46} {span:22} >= {outcome.least:.2f}  {outcome.word}")
        met += outcome.met
    for dtype, spreads in edges.items():
        good = max(spreads.values()) <= MAX_CLIFF
        span = ", ".join(f"{axis} {spread:.2f}" for axis, spread in spreads.items())
        name = f"cliff {dtype}: {span}"
        text.append(f"  {name:69} <= {MAX_CLIFF:.2f}  {'PASS' if good else 'MISS'}")
        met += good
    return text, met, len(found) + len(edges)
