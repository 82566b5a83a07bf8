"""What was promised for an H200 about whole sets of cases, and how it came out.

    Promise   the geometric mean of a ratio over its shapes, and no shape far below; or of f32,
              whatever the shape, no less; or a time
    cliff     the times of a product whose sizes differ by a few elements: slowest over fastest

Both read results (rows and details of store.py), so that a run and the report judge alike. The
promises of single cases are `target` in shapes.py.
"""

import math
from dataclasses import asdict, dataclass, field

import shapes
import store

LOWEST = 0.95  # no shape of a promise below it, unless less was promised of them all
STEEPEST = 1.15  # of a cliff
CLIFFS = ("M", "N", "K", "all")
EDGE = 4096  # the size beside which the others of the cliff lie


@dataclass(frozen=True)
class Promise:
    """One line: rows with these values, their ratio to torch or (`own`) to our other product; or
    that of so many microseconds (`within`) to theirs."""

    name: str
    least: float
    fields: dict = field(hash=False)
    own: bool = False
    sizes: tuple = ()  # of the cubes; (): any
    cubes: bool = True  # or every shape,
    volume: int = 0  # m n k of at least this
    within: float = 0.0  # us
    each: bool = False  # promised of each shape, not of their mean

    def is_about(self, row):
        cube = row["m"] == row["n"] == row["k"] and (not self.sizes or row["m"] in self.sizes)
        large = row["m"] * row["n"] * row["k"] >= self.volume
        fits = large and (cube or not self.cubes)
        return fits and all(row[name] == value for name, value in self.fields.items())

    @property
    def lowest(self):
        """What no shape may be below."""
        return self.least if self.each else min(LOWEST, self.least)

    def expected(self):
        """How many shapes it is about."""
        cases = shapes.cases(self.fields["set"])
        return sum(self.is_about(asdict(case)) for case in cases)

    def ratio(self, row, results):
        if self.within:
            return row["us"] and self.within / row["us"]
        detail = results["details"].get(store.key(row), {})
        return detail.get("own_ratio") if self.own else row["ratio"]


def _fp8(accumulation, epilogue):
    name = "fp8" if epilogue == "tensor-scales" else "scales"
    return {"set": name, "dtype": "e4m3", "accumulation": accumulation, "epilogue": epilogue}


def _promises():
    yield Promise("s8 TN x torch._int_mm", 1.6, {"set": "int8", "dtype": "s8", "layout": "TN"})
    turned = {"set": "int8", "dtype": "s8", "layout": "NN"}
    yield Promise("s8 NN x our own TN", 0.93, turned, own=True)
    for word in ("fast", "promoted"):
        yield Promise(f"e4m3 {word} x torch._scaled_mm", 1.02, _fp8(word, "tensor-scales"))
    for word in ("fast", "promoted"):
        rows = _fp8(word, "row-scales")
        yield Promise(f"e4m3 {word}, row scales x a scale a tensor", 0.98, rows, own=True)
        yield Promise(f"e4m3 {word}, row scales x torch._scaled_mm", 1.03, rows)
    blocks = _fp8("promoted", "128x128-scales")
    yield Promise("e4m3 1x128 by 128x128 x torch._scaled_mm", 1.12, blocks)
    yield Promise("tf32 TN and NN x torch.mm", 1.08, {"set": "tf32", "dtype": "tf32"})
    yield Promise("f64 TN and NN x torch.mm", 1.04, {"set": "f64", "dtype": "f64"})
    f32 = {"set": "highest", "op": "mm", "dtype": "f32", "epilogue": "none"}
    for sizes, name, least in (
        ((2048, 3072, 4096, 6144, 8192), "2048 to 8192", 4.0),
        ((1024,), "1024", 2.0),
        ((512,), "512", 1.2),
    ):
        yield Promise(f"each f32 {name} x torch.mm", least, f32, sizes=sizes, each=True)
    spread = {**f32, "epilogue": "spread"}
    yield Promise("each f32 spread, 2048 to 8192 x torch.mm", 2.2, spread, each=True)


def _sparse_promises():
    every = {"cubes": False}
    for dtype in ("f16", "bf16"):
        mine = {"set": "sparse-mm", "dtype": dtype}
        yield Promise(f"{dtype} 2:4 x cuSPARSELt", 1.03, mine, **every)
        large = {**every, "volume": 4096**3}
        yield Promise(f"{dtype} 2:4 from 4096^3 x our own dense", 1.4, mine, own=True, **large)
    for dtype, epilogue, name in (
        ("s8", "sparse", "s8 2:4"),
        ("s8", "sparse+to-bf16", "s8 2:4 to bf16"),
        ("e4m3", "sparse", "e4m3 2:4"),
    ):
        fields = {"set": "sparse-mm", "dtype": dtype, "epilogue": epilogue}
        yield Promise(f"{name} x cuSPARSELt", 1.03, fields)
    tf32 = {"set": "sparse-mm", "dtype": "tf32"}
    yield Promise("tf32 1:2 x torch.mm, dense", 1.6, tf32, **every)
    few = {"set": "sparse-few", "dtype": "bf16"}
    yield Promise("bf16 2:4, few rows x our own dense", 1.4, few, own=True, **every)
    for fields, name, us in (
        ({"op": "compress", "dtype": "bf16"}, "prune and compress bf16", 70.0),
        ({"op": "compress", "dtype": "s8"}, "prune and compress s8", 45.0),
        ({"op": "prune"}, "transposable prune bf16", 200.0),
        ({"op": "linear"}, "host time of each sparse linear", 15.0),
    ):
        where = "sparse-host" if fields["op"] == "linear" else "sparse-passes"
        timed = {**every, "within": us, "each": True}
        yield Promise(f"{us:.0f} us / {name}", 1.0, {"set": where, **fields}, **timed)


PROMISES = (*_promises(), *_sparse_promises())


@dataclass(frozen=True)
class Verdict:
    """How a promise came out; of the ratios and errors of its shapes."""

    promise: Promise
    expected: int
    ratios: list
    errors: list  # in units of the bound

    @property
    def name(self):
        return self.promise.name

    @property
    def least(self):
        return self.promise.least

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
        return self.mean >= self.least and self.lowest >= self.promise.lowest

    @property
    def word(self):
        if self.measured < self.expected:
            return f"{self.measured} of {self.expected} shapes"
        return "PASS" if self.met else "MISS"


def verdicts(results):
    """A Verdict for each promise of which a shape was tried."""
    found = []
    for promise in PROMISES:
        rows = list(filter(promise.is_about, results["rows"]))
        ratios = [promise.ratio(row, results) for row in rows]
        errors = [row["max_error_ratio"] for row in rows]
        known = [[value for value in values if value is not None] for values in (ratios, errors)]
        if rows:
            found.append(Verdict(promise, promise.expected(), *known))
    return found


def _axis(row):
    """Which sizes of a row of the cliff are beside the edge."""
    beside = [name for name in "mnk" if row[name] != EDGE]
    return beside[0].upper() if len(beside) == 1 else "all" if len(beside) == 3 else None


def cliffs(results):
    """{dtype: {"M" | "N" | "K" | "all": slowest over fastest, the even size among them}}."""
    rows = [row for row in results["rows"] if row["set"] == "cliff" and row["us"]]
    found = {}
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        mine = [row for row in rows if row["dtype"] == dtype]
        edge = [row["us"] for row in mine if row["m"] == row["n"] == row["k"] == EDGE]
        for axis in CLIFFS:
            times = [row["us"] for row in mine if _axis(row) == axis]
            if edge and len(times) == len(shapes.CLIFF):
                both = times + edge
                found.setdefault(dtype, {})[axis] = max(both) / min(both)
    return found


def lines(results):
    """The verdicts as text, and (met, promised)."""
    text, met = [], 0
    found, edges = verdicts(results), cliffs(results)
    for verdict in found:
        span = "" if verdict.mean is None else f"{verdict.mean:6.3f}, lowest {verdict.lowest:5.3f}"
        text.append(f"  {verdict.name:46} {span:22} >= {verdict.least:.2f}  {verdict.word}")
        met += verdict.met
    for dtype, spreads in edges.items():
        good = max(spreads.values()) <= STEEPEST
        span = ", ".join(f"{axis} {spread:.2f}" for axis, spread in spreads.items())
        name = f"cliff {dtype}: {span}"
        text.append(f"  {name:69} <= {STEEPEST:.2f}  {'PASS' if good else 'MISS'}")
        met += good
    return text, met, len(found) + len(edges)
